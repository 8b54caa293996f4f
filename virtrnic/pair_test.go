// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// pair is two NICs back to back, one connected queue pair each.
type pair struct {
	t   *testing.T
	net *machinetest.Net
	nic [2]*NIC
	pd  [2]*PD
	cq  [2]*CQ
	qp  [2]*QP
}

type pairOptions struct {
	mtu, ackEvery int
	psn           wire.PSN
	timeout       uint8
	retry, rnr    uint8
	trust         bool
	log           bool
	headers       bool // the log has them
	delay         vtime.Duration
	recvWR        int
	cqDepth       int
	congestion    *DCQCN
	irn           [2]*IRN
	typ           QPType
	rdAtomic      uint8 // initiator depth and responder resources; > 0 opens READ and atomics
	init          func(*QPInit)
	unsignalled   bool
	lossy         uint8
	weights       [8]uint8
	traffic       uint8 // traffic class; 0: DSCP 26
	self          bool  // both queue pairs are at the first NIC
	vlan          uint16
	ipv6          bool
}

// eventLog writes a NIC's events into the transcript.
type eventLog struct {
	net  *machinetest.Net
	name string
}

func (l eventLog) Trace(now vtime.Time, e machine.Event) {
	l.net.Logf("%-12v   %s: %v", now, l.name, &e)
}

func newPair(t *testing.T, o pairOptions) *pair {
	t.Helper()
	if o.mtu == 0 {
		o.mtu = 1024
	}
	if o.delay == 0 {
		o.delay = vtime.Microsecond
	}
	if o.recvWR == 0 {
		o.recvWR = 64
	}
	if o.cqDepth == 0 {
		o.cqDepth = 256
	}
	p := &pair{t: t, net: machinetest.New([]int{1, 1}, []machinetest.Link{{A: 0, B: 1, BitsPerSec: 100e9, Delay: o.delay}})}
	if o.log {
		p.net.Log, p.net.Headers = &strings.Builder{}, o.headers
	}
	root := prng.New(1)
	for i := range 2 {
		c := Config{
			IP: 10<<24 | uint32(i+1), Port: &p.net.PortsOf(i)[0], Pool: p.net.Pool, TrustICRC: o.trust, Lossy: o.lossy, Keys: root.Derive(string(rune('a' + i))),
			VLAN: o.vlan, IPv6: o.ipv6,
			Settings: Settings{AckEvery: o.ackEvery, Congestion: o.congestion, IRN: o.irn[i], Weights: o.weights},
		}
		if o.log {
			c.Trace = eventLog{p.net, string(rune('A' + i))}
		}
		p.nic[i] = New(c)
		p.net.Set(i, string(rune('A'+i)), p.nic[i])
		if o.self {
			p.nic[i] = p.nic[0]
		}
		p.pd[i] = p.nic[i].AllocPD()
		var err error
		if p.cq[i], err = p.nic[i].CreateCQ(o.cqDepth); err != nil {
			t.Fatal(err)
		}
		init := QPInit{
			Type: o.typ, PD: p.pd[i], SendCQ: p.cq[i], RecvCQ: p.cq[i], MaxSendWR: 64, MaxRecvWR: o.recvWR, SQSigAll: !o.unsignalled,
			MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 400,
		}
		if o.init != nil {
			o.init(&init)
		}
		p.qp[i], err = p.nic[i].CreateQP(init)
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		p.connect(i, o)
	}
	return p
}

func (p *pair) connect(i int, o pairOptions) {
	p.t.Helper()
	if o.typ == TypeUD {
		p.ready(i, o)
		return
	}
	a := QPAttr{
		State: StateInit, Port: 1, Access: AccessRemoteWrite | AccessLocalWrite,
		AV: AH{DGID: p.nic[1-i].IP(), TrafficClass: 26<<2 | wire.ECNECT0}, PathMTU: o.mtu, DestQPN: p.qp[1-i].Num(),
		RQPSN: o.psn, SQPSN: o.psn, MinRNRTimer: 1, Timeout: o.timeout, RetryCnt: o.retry, RNRRetry: o.rnr,
	}
	if o.traffic != 0 {
		a.AV.TrafficClass = o.traffic
	}
	if o.rdAtomic > 0 {
		a.Access |= AccessRemoteRead | AccessRemoteAtomic
		a.MaxQPRdAtomic, a.MaxDestRdAtomic = o.rdAtomic, o.rdAtomic
	}
	for _, to := range []QPState{StateInit, StateRTR, StateRTS} {
		p.modify(i, to, a)
	}
}

// modify changes the state of side i with only the attributes that this needs.
func (p *pair) modify(i int, to QPState, a QPAttr) {
	p.t.Helper()
	t := findTransition(p.qp[i].service, p.qp[i].state, to)
	if t == nil {
		p.t.Fatalf("no way from %v to %v", p.qp[i].state, to)
	}
	a.State = to
	if err := p.nic[i].ModifyQP(p.net.Now, p.qp[i], a, t.required|AttrState); err != nil {
		p.t.Fatal(err)
	}
}

const testQKey = 0x11111111

// ready brings a UD queue pair up.
func (p *pair) ready(i int, o pairOptions) {
	p.t.Helper()
	for _, to := range []QPState{StateInit, StateRTR, StateRTS} {
		p.modify(i, to, QPAttr{Port: 1, QKey: testQKey, SQPSN: o.psn})
	}
}

// dest addresses the other side's UD queue pair.
func (p *pair) dest(i int) UDDest {
	p.t.Helper()
	ah, err := p.nic[i].CreateAH(p.pd[i], AH{DGID: p.nic[1-i].IP(), TrafficClass: 26<<2 | wire.ECNECT0})
	if err != nil {
		p.t.Fatal(err)
	}
	return UDDest{AH: ah, QPN: p.qp[1-i].Num(), QKey: testQKey}
}

// region registers n bytes of pattern seed (0: zeros) on side i.
func (p *pair) region(i, n int, seed uint64) (Bytes, *MR) {
	p.t.Helper()
	b := make(Bytes, n)
	if seed != 0 {
		prng.Fill(b, seed, 0)
	}
	m, err := p.nic[i].RegMR(p.pd[i], b, AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic)
	if err != nil {
		p.t.Fatal(err)
	}
	return b, m
}

func whole(m *MR, n int) SGE { return SGE{Addr: m.Addr(), Length: uint32(n), LKey: m.LKey()} }

func (p *pair) post(i int, wr SendWR) {
	p.t.Helper()
	if err := p.nic[i].PostSend(p.net.Now, p.qp[i], wr); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) recv(i int, wr RecvWR) {
	p.t.Helper()
	if err := p.nic[i].PostRecv(p.net.Now, p.qp[i], wr); err != nil {
		p.t.Fatal(err)
	}
}

// run runs the pair until it is idle and checks that no frame is left over.
func (p *pair) run() {
	p.t.Helper()
	if err := p.net.Run(1 << 20); err != nil {
		p.t.Fatal(err)
	}
	if p.net.Pool.Live != 0 || p.net.Pool.LiveBlocks != 0 {
		p.t.Errorf("at rest %d frames and %d payloads are live", p.net.Pool.Live, p.net.Pool.LiveBlocks)
	}
}

// completions takes all completions of side i.
func (p *pair) completions(i int) (all []WC) {
	for {
		w, ok := p.nic[i].PollCQ(p.cq[i])
		if !ok {
			return all
		}
		all = append(all, w)
	}
}

// transcript writes the completions, the events that wait and every counter that is not
// zero to the log and holds it against a golden file.
func (p *pair) transcript(t *testing.T, name string) {
	t.Helper()
	p.outcome()
	machinetest.Golden(t, name, p.net.Log.String())
}

// outcome writes the completions, the events that wait and the counters to the log.
func (p *pair) outcome() {
	for i := range 2 {
		for _, w := range p.completions(i) {
			p.net.Logf("%c completes %d: %v, %d bytes", 'A'+i, w.WRID, w.Status, w.ByteLen)
		}
	}
	for i := range 2 {
		for e, ok := p.nic[i].GetAsyncEvent(); ok; e, ok = p.nic[i].GetAsyncEvent() {
			p.net.Logf("%c is told: %v", 'A'+i, e.Type)
		}
		v := reflect.ValueOf(*p.nic[i].Stats())
		for k := range v.NumField() {
			if f := v.Field(k); f.Kind() == reflect.Uint64 && f.Uint() > 0 {
				p.net.Logf("%c %s %d", 'A'+i, v.Type().Field(k).Name, f.Uint())
			}
		}
		for _, why := range DropReasons() {
			if n := p.nic[i].Stats().Drops[why]; n > 0 {
				p.net.Logf("%c dropped as %v %d", 'A'+i, why, n)
			}
		}
	}
}

// want checks the completions of side i by work request and status.
func (p *pair) want(i int, want ...WC) {
	p.t.Helper()
	got := p.completions(i)
	if len(got) != len(want) {
		p.t.Fatalf("side %d: %d completions, want %d: %+v", i, len(got), len(want), got)
	}
	for k, w := range want {
		w.QPN = p.qp[i].Num()
		if got[k] != w {
			p.t.Errorf("side %d completion %d\n got %+v\nwant %+v", i, k, got[k], w)
		}
	}
}

func TestSendSizes(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4, 1023, 1024, 1025, 2048, 5000, 65536} {
		p := newPair(t, pairOptions{timeout: 10, retry: 7, rnr: 6})
		src, sm := p.region(0, max(1, n), 7)
		dst, dm := p.region(1, max(1, n), 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSendWithImm, Imm: 0xabcd, SGE: whole(sm, n)})
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: uint32(n)})
		p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: uint32(n), WithImm: true, Imm: 0xabcd})
		if !bytes.Equal(src[:n], dst[:n]) {
			t.Errorf("%d bytes: receiver has others", n)
		}
	}
}
