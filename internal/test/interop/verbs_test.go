// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// verbsBench is two NICs back to back whose wire is captured.
type verbsBench struct {
	t        *testing.T
	net      *machinetest.Net
	nic      [2]*virtrnic.NIC
	pd       [2]*virtrnic.PD
	cq       [2]*virtrnic.CQ
	mr       [2]*virtrnic.MR
	lose     func(f *wire.Frame) bool
	statuses map[virtrnic.WCStatus]bool
}

const benchBytes = 1 << 16

func newVerbsBench(t *testing.T, c *traces.Capture, keys string) *verbsBench {
	b := &verbsBench{
		t: t, statuses: map[virtrnic.WCStatus]bool{},
		net: machinetest.New([]int{1, 1}, []machinetest.Link{{A: 0, B: 1, BitsPerSec: 100e9, Delay: vtime.Microsecond}}),
	}
	b.net.Fate = func(now vtime.Time, _ int, f *wire.Frame) faults.Verdict {
		c.Frame(now, now, f)
		return faults.Verdict{Drop: b.lose != nil && b.lose(f)}
	}
	root := prng.New(1)
	for i := range 2 {
		b.nic[i] = virtrnic.New(virtrnic.Config{
			IP: 10<<24 | uint32(i+1), Port: &b.net.PortsOf(i)[0], Pool: b.net.Pool, Keys: root.Derive(fmt.Sprint(keys, i)),
		})
		b.net.Set(i, string(rune('A'+i)), b.nic[i])
		b.pd[i] = b.nic[i].AllocPD()
		var err error
		if b.cq[i], err = b.nic[i].CreateCQ(1 << 12); err != nil {
			t.Fatal(err)
		}
		mem := make(virtrnic.Bytes, benchBytes)
		prng.Fill(mem, uint64(i+1), 0)
		b.mr[i] = b.region(i, mem)
	}
	return b
}

func (b *verbsBench) region(i int, mem virtrnic.Bytes) *virtrnic.MR {
	const all = virtrnic.AccessLocalWrite | virtrnic.AccessRemoteWrite | virtrnic.AccessRemoteRead | virtrnic.AccessRemoteAtomic
	m, err := b.nic[i].RegMR(b.pd[i], mem, all)
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

// connect makes a connected pair of queue pairs; change may make the attributes wrong.
func (b *verbsBench) connect(typ virtrnic.QPType, change func(side int, a *virtrnic.QPAttr)) (q [2]*virtrnic.QP) {
	b.t.Helper()
	for i := range 2 {
		var err error
		q[i], err = b.nic[i].CreateQP(virtrnic.QPInit{
			Type: typ, PD: b.pd[i], SendCQ: b.cq[i], RecvCQ: b.cq[i], MaxSendWR: 64, MaxRecvWR: 64, MaxInline: 400, SQSigAll: true,
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	const (
		init = virtrnic.AttrState | virtrnic.AttrPort | virtrnic.AttrPKeyIndex
		rtr  = virtrnic.AttrState | virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN
		rts  = virtrnic.AttrState | virtrnic.AttrSQPSN
	)
	masks := [3]virtrnic.AttrMask{init | virtrnic.AttrAccessFlags, rtr, rts}
	switch typ {
	case virtrnic.TypeUD:
		masks = [3]virtrnic.AttrMask{init | virtrnic.AttrQKey, virtrnic.AttrState, rts}
	case virtrnic.TypeRC:
		masks[1] |= virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer
		masks[2] |= virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrMaxQPRdAtomic
	}
	for i := range 2 {
		a := virtrnic.QPAttr{
			Port: 1, Access: 15, QKey: 0x11111111, AV: virtrnic.AH{DGID: b.nic[1-i].IP(), TrafficClass: 26<<2 | wire.ECNECT0},
			PathMTU: 256, DestQPN: q[1-i].Num(), RQPSN: 0xfffffc, SQPSN: 0xfffffc, MaxQPRdAtomic: 4, MaxDestRdAtomic: 4,
			Timeout: 4, RetryCnt: 2, RNRRetry: 0, MinRNRTimer: 1,
		}
		if change != nil {
			change(i, &a)
		}
		for k, to := range []virtrnic.QPState{virtrnic.StateInit, virtrnic.StateRTR, virtrnic.StateRTS} {
			a.State = to
			if err := b.nic[i].ModifyQP(b.net.Now, q[i], a, masks[k]); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	return q
}

func (b *verbsBench) post(q *virtrnic.QP, w virtrnic.SendWR) {
	b.t.Helper()
	if err := b.nic[0].PostSend(b.net.Now, q, w); err != nil {
		b.t.Fatal(err)
	}
}

func (b *verbsBench) recv(q *virtrnic.QP, e virtrnic.SGE) {
	b.t.Helper()
	if err := b.nic[1].PostRecv(b.net.Now, q, virtrnic.RecvWR{SGE: e}); err != nil {
		b.t.Fatal(err)
	}
}

// run runs until nothing is pending, and notes how work requests ended.
func (b *verbsBench) run() {
	b.t.Helper()
	if err := b.net.Run(1 << 20); err != nil {
		b.t.Fatal(err)
	}
	for i := range 2 {
		for {
			w, ok := b.nic[i].PollCQ(b.cq[i])
			if !ok {
				break
			}
			b.statuses[w.Status] = true
		}
	}
}

func (b *verbsBench) sge(i, n int) virtrnic.SGE {
	return virtrnic.SGE{Addr: b.mr[i].Addr(), Length: uint32(n), LKey: b.mr[i].LKey()}
}

// traffic sends every opcode: all work requests with one packet and with four.
func (b *verbsBench) traffic() {
	multicast, err := b.nic[0].CreateAH(b.pd[0], virtrnic.AH{DGID: 0xef010203})
	if err != nil {
		b.t.Fatal(err)
	}
	unicast, err := b.nic[0].CreateAH(b.pd[0], virtrnic.AH{DGID: b.nic[1].IP()})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, typ := range []virtrnic.QPType{virtrnic.TypeRC, virtrnic.TypeUC, virtrnic.TypeUD} {
		q := b.connect(typ, nil)
		for _, n := range []int{8, 1001} {
			for _, op := range []virtrnic.WROpcode{
				virtrnic.WRSend, virtrnic.WRSendWithImm, virtrnic.WRRDMAWrite, virtrnic.WRRDMAWriteWithImm,
				virtrnic.WRRDMARead, virtrnic.WRAtomicCmpAndSwp, virtrnic.WRAtomicFetchAdd, virtrnic.WRSendWithInv,
			} {
				w := virtrnic.SendWR{Opcode: op, SGE: b.sge(0, n), RemoteAddr: b.mr[1].Addr(), RKey: b.mr[1].RKey(), Imm: 0x01020304}
				atomic := op == virtrnic.WRAtomicCmpAndSwp || op == virtrnic.WRAtomicFetchAdd
				switch {
				case typ == virtrnic.TypeUD && op != virtrnic.WRSend && op != virtrnic.WRSendWithImm, typ == virtrnic.TypeUC && op > virtrnic.WRSendWithImm:
					continue
				case atomic && n != 8:
					continue
				case op == virtrnic.WRSendWithInv:
					w.RKey = b.region(1, make(virtrnic.Bytes, 8)).RKey()
				}
				w.UD = virtrnic.UDDest{AH: unicast, QPN: q[1].Num(), QKey: 0x11111111}
				b.recv(q[1], b.sge(1, 2000))
				b.post(q[0], w)
				if typ == virtrnic.TypeUD {
					w.UD.AH, w.UD.QPN = multicast, wire.QPNMulticast
					b.post(q[0], w)
				}
				b.run()
			}
		}
	}
}

// errors causes every syndrome, and every completion status that frames of a peer can cause.
func (b *verbsBench) errors() {
	write := virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: b.sge(0, 8), RemoteAddr: b.mr[1].Addr(), RKey: b.mr[1].RKey()}
	send := virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: b.sge(0, 8)}
	read := write
	read.Opcode = virtrnic.WRRDMARead
	do := func(w virtrnic.SendWR, recv *virtrnic.SGE, change func(int, *virtrnic.QPAttr)) {
		q := b.connect(virtrnic.TypeRC, change)
		if recv != nil {
			b.recv(q[1], *recv)
		}
		b.post(q[0], w)
		b.post(q[0], send) // flushed, if the first fails
		b.run()
	}
	for code := range uint8(32) {
		do(send, nil, func(_ int, a *virtrnic.QPAttr) { a.MinRNRTimer = code })
	}
	do(write, nil, func(_ int, a *virtrnic.QPAttr) { a.Access = 0 })
	do(read, nil, func(_ int, a *virtrnic.QPAttr) { a.MaxDestRdAtomic = 0 })
	do(read, nil, func(_ int, a *virtrnic.QPAttr) { a.MaxQPRdAtomic = 0 })
	bad := write
	bad.RKey ^= 1
	do(bad, nil, nil)
	bad.Opcode = virtrnic.WRRDMAWriteWithImm
	room := b.sge(1, 100)
	do(bad, &room, nil)
	room.Length = 4
	do(send, &room, nil)
	room = virtrnic.SGE{Length: 8, LKey: 1}
	do(send, &room, nil)
	bad = send
	bad.SGE.LKey ^= 1
	do(bad, nil, nil)
	n := 0
	b.lose = func(f *wire.Frame) bool { n++; return n == 1 }
	do(write, nil, nil)
	b.lose = func(f *wire.Frame) bool { return f.OpCode() == wire.OpReadRequest }
	do(read, nil, nil)
	b.lose = nil
	b.forged(read, wire.OpAtomicAck)
	b.forged(send, wire.OpReadRespOnly)
}

// forged answers a request with a packet that does not belong to it.
func (b *verbsBench) forged(w virtrnic.SendWR, op wire.OpCode) {
	q := b.connect(virtrnic.TypeRC, nil)
	psn := q[0].SQPSN()
	b.lose = func(f *wire.Frame) bool { return f.DstIP() == b.nic[1].IP() }
	b.post(q[0], w)
	b.net.At(b.net.Now.Add(vtime.Microsecond), func(now vtime.Time) {
		e := wire.NewEnvelope(wire.Flow{
			SrcMAC: wire.HostMAC(b.nic[1].IP()), DstMAC: wire.HostMAC(b.nic[0].IP()), Src: b.nic[1].IP(), Dst: b.nic[0].IP(), TTL: 64,
			SrcPort: 0xc000, DstPort: wire.PortRoCEv2,
		})
		f := b.net.Pool.Get()
		f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: q[0].Num(), PSN: psn})
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
		if op == wire.OpAtomicAck {
			f.AddAtomicAckETH(wire.AtomicAckETH{Original: 1})
		}
		f.Seal(0, false)
		b.net.Fate(now, 1, f) // so that the capture has it
		b.nic[0].HandleFrame(now, 0, f)
	})
	b.run()
	b.lose = nil
}

// verbsCapture writes a capture of traffic and errors to a file.
func verbsCapture(t *testing.T) (file string, statuses map[virtrnic.WCStatus]bool) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "verbs.pcapng")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := traces.NewCapture(out, "a:0", 0, &traces.Budget{Left: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	b := newVerbsBench(t, c, "keys")
	b.traffic()
	b.errors()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return file, b.statuses
}

// TestWiresharkVerbs: every opcode the NIC has and every syndrome are in one capture, in which
// tshark finds nothing malformed and no error but the NAKs themselves. Every completion status
// occurred while it was made.
func TestWiresharkVerbs(t *testing.T) {
	tshark := tool(t, "tshark")
	file, statuses := verbsCapture(t)
	args := []string{"-r", file}
	for _, p := range []string{"rpcordma", "nvme-rdma", "iser", "smb_direct", "lnet", "smc"} {
		args = append(args, "--disable-protocol", p) // their heuristics claim any payload
	}
	if bad := output(t, tshark, append(args, "-Y", "_ws.malformed || (_ws.expert.severity == error && infiniband.aeth.syndrome.opcode != 3)")...); bad != "" {
		t.Errorf("tshark complains:\n%s", first(bad, 5))
	}
	fields := func(name string) map[string]int {
		seen := map[string]int{}
		for _, v := range strings.Fields(output(t, tshark, append(args, "-T", "fields", "-e", name)...)) {
			seen[v]++
		}
		return seen
	}
	ops := fields("infiniband.bth.opcode")
	for o := range 256 {
		if op := wire.OpCode(o); op.Is(wire.OpAssigned) && op != wire.OpCNP && ops[fmt.Sprint(o)] == 0 {
			t.Errorf("no frame of %v", op)
		}
	}
	syndromes := fields("infiniband.aeth.syndrome")
	want := []int{0x1f, 0x60, 0x61, 0x62, 0x63}
	for code := range 32 {
		want = append(want, 0x20+code)
	}
	for _, s := range want {
		if syndromes[fmt.Sprint(s)] == 0 {
			t.Errorf("no frame with syndrome %#x: %v", s, syndromes)
		}
	}
	for _, f := range []string{
		"infiniband.reth.r_key", "infiniband.atomiceth.swapdt", "infiniband.atomicacketh.origremdt", "infiniband.deth.q_key", "infiniband.immdt", "infiniband.ieth",
	} {
		if len(fields(f)) == 0 {
			t.Errorf("tshark sees no field %s", f)
		}
	}
	for _, s := range []virtrnic.WCStatus{
		virtrnic.WCSuccess, virtrnic.WCLocLenErr, virtrnic.WCLocQPOpErr, virtrnic.WCLocProtErr, virtrnic.WCWRFlushErr, virtrnic.WCBadRespErr, virtrnic.WCLocAccessErr,
		virtrnic.WCRemInvReqErr, virtrnic.WCRemAccessErr, virtrnic.WCRemOpErr, virtrnic.WCRetryExcErr, virtrnic.WCRNRRetryExcErr, virtrnic.WCFatalErr,
	} {
		if !statuses[s] {
			t.Errorf("nothing ended with %q", s)
		}
	}
}

// TestScapyVerbs: the ICRC that scapy computes is the one that the frame carries, for every
// frame of the same capture.
func TestScapyVerbs(t *testing.T) {
	python := scapy(t)
	file, _ := verbsCapture(t)
	got := strings.Fields(output(t, python, "testdata/icrc.py", file, "100000"))
	if len(got) != 4 || !slices.Equal(got[2:], []string{"wrong", "0"}) || len(got[1]) < 3 {
		t.Errorf("scapy: %v", got)
	}
}
