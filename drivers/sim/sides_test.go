// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Beside the broadcasts of the seed sweep hosts talk to each other by all the other verbs:
// RC with READ, WRITE, atomics and SEND in both directions, UC, and UD to hosts and to
// multicast groups, with receive queues of their own and shared ones.

// sideOp is one request of a flow.
type sideOp struct {
	at       vtime.Time
	end      int // the end that posts it
	op       virtrnic.WROpcode
	n        int // bytes
	seed     uint64
	pieces   int // 0: inline
	flags    virtrnic.SendFlags
	add      uint64 // atomics
	compare  uint64
	original uint64 // value that an atomic must find
	stranger bool   // UD: with a key that is not the receiver's
}

// receives reports whether the request takes a receive at the other end.
func (o *sideOp) receives() bool {
	return o.op != virtrnic.WRRDMAWrite && !o.answered()
}

// answered reports whether the request is a READ or an atomic.
func (o *sideOp) answered() bool {
	return o.op >= virtrnic.WRRDMARead && o.op <= virtrnic.WRAtomicFetchAdd
}

// sideFlow is a connection, or a sender of datagrams and whom it sends to.
type sideFlow struct {
	typ     virtrnic.QPType
	hosts   []int  // ends; UD: the sender, then the receivers
	shared  []bool // ends that receive from their host's shared queue
	group   uint32 // UD: address of a multicast group, 0: one receiver
	deaf    bool   // the last of its members has not attached its queue pair
	traffic uint8
	depth   uint8
	psn     wire.PSN
	ops     []sideOp
	words   [2]uint64     // values that the atomics at each end leave
	late    vtime.Time    // when half of the receives are posted
	rest    [2]vtime.Time // when end 0 drains its send queue, and when it resumes; 0: never
	last    [2]vtime.Time // drawing: when each end has posted last
	sent    [][]*sideOp   // by end: receives() only, in order
	ends    []*sideEnd    // running
}

const sideKey = 0x00c0ffee

// drawSides draws the flows.
func (v *trial) drawSides(r *rand.Rand) {
	for range r.IntN(9) {
		f := sideFlow{
			typ: []virtrnic.QPType{virtrnic.TypeRC, virtrnic.TypeRC, virtrnic.TypeUC, virtrnic.TypeUD}[r.IntN(4)], depth: uint8(1 + r.IntN(4)),
			psn: wire.PSN(0).Add(-r.IntN(40)), late: vtime.Time(r.IntN(200)) * vtime.Time(vtime.Microsecond),
			// Priorities 3, 5, 4 and 0; one that a single wrong bit turns into the lossless one is not among them.
			traffic: []uint8{26<<2 | wire.ECNECT0, 26<<2 | wire.ECNECT0, 40 << 2, 32<<2 | wire.ECNECT0, 0}[r.IntN(5)],
		}
		peers := r.Perm(v.graph.Hosts)
		f.hosts = peers[:2]
		if f.typ == virtrnic.TypeUD && r.IntN(2) == 0 {
			f.group = 239<<24 | uint32(1+r.IntN(1<<12))<<4 | uint32(len(v.flows)) // no two alike
			f.hosts, f.deaf = peers[:min(len(peers), 2+r.IntN(6))], r.IntN(4) == 0
		}
		if v.tight && f.typ == virtrnic.TypeRC {
			f.traffic = 26<<2 | wire.ECNECT0 // the rest beside lossy classes is too small to repeat through
		}
		for range f.hosts {
			f.shared = append(f.shared, f.typ != virtrnic.TypeUC && r.IntN(3) == 0)
		}
		if r.IntN(3) == 0 {
			f.rest[0] = vtime.Time(1+r.IntN(100)) * vtime.Time(vtime.Microsecond)
			f.rest[1] = f.rest[0].Add(vtime.Duration(1+r.IntN(100)) * vtime.Microsecond)
		}
		for range 1 + r.IntN(24) {
			v.drawOp(r, &f)
		}
		v.flows = append(v.flows, f)
	}
}

// sideBytes is the most a request moves.
const sideBytes = 4096

func (v *trial) drawOp(r *rand.Rand, f *sideFlow) {
	o := sideOp{seed: r.Uint64(), n: r.IntN(sideBytes + 1), pieces: 1, end: r.IntN(2)}
	all := []virtrnic.WROpcode{virtrnic.WRSend, virtrnic.WRSendWithImm}
	switch f.typ {
	case virtrnic.TypeRC:
		all = append(all, virtrnic.WRRDMAWrite, virtrnic.WRRDMAWriteWithImm, virtrnic.WRRDMARead, virtrnic.WRAtomicCmpAndSwp, virtrnic.WRAtomicFetchAdd,
			virtrnic.WRSendWithInv)
	case virtrnic.TypeUC:
		all = append(all, virtrnic.WRRDMAWrite, virtrnic.WRRDMAWriteWithImm)
	default:
		o.end, o.n, o.stranger = 0, r.IntN(v.mtu+1), r.IntN(16) == 0
	}
	o.op = all[r.IntN(len(all))]
	switch {
	case o.op == virtrnic.WRAtomicCmpAndSwp || o.op == virtrnic.WRAtomicFetchAdd:
		o.n, o.add = 8, r.Uint64()
		word := &f.words[1-o.end]
		o.original, o.compare = *word, *word+uint64(r.IntN(2))
		switch {
		case o.op == virtrnic.WRAtomicFetchAdd:
			*word += o.add
		case o.compare == o.original:
			*word = o.add
		}
	case r.IntN(4) == 0:
		o.pieces = 2 + r.IntN(3)
	case r.IntN(4) == 0 && !o.answered():
		o.pieces, o.n = 0, min(o.n, virtrnic.MaxInlineData)
	}
	for _, flag := range []virtrnic.SendFlags{virtrnic.SendSignaled, virtrnic.SendSolicited, virtrnic.SendFence} {
		if r.IntN(2) == 0 {
			o.flags |= flag
		}
	}
	o.at = f.last[o.end].Add(vtime.Duration(1 + r.IntN(int(10*vtime.Microsecond))))
	f.last[o.end] = o.at
	f.ops = append(f.ops, o)
}

// sideHost holds the state that the flows of a host share.
type sideHost struct {
	node     int
	fresh    []amount // objects that the lab has to hold there at rest, once the flows have begun
	nic      *virtrnic.NIC
	pd       *virtrnic.PD
	sends    *virtrnic.CQ
	recvs    *virtrnic.CQ
	common   map[virtrnic.QPType]*common // never walked
	received map[wire.QPN][]virtrnic.WC
	sent     map[wire.QPN][]virtrnic.WC
	err      error // of a call while the lab runs
}

// common is a shared receive queue of a host. RC and UD have one each: a datagram that the
// fabric doubles takes two receives, and a message of RC would wait for ever.
type common struct {
	srq    *virtrnic.SRQ
	buf    area
	wanted int // receives that will be posted
	posted int
}

// sideEnd is one queue pair and its memory.
type sideEnd struct {
	*sideHost
	qp     *virtrnic.QP
	shared *common // nil: it has receives of its own
	ah     *virtrnic.AddressHandle
	local  area // data to send, and the place of answers: a slot for each of the flow's requests
	recv   area // its own receives
	target area // of the peer's WRITEs: a slot for each of the flow's requests
	source area // of the peer's READs
	word   area
	token  area // whose key the peer takes back
}

// area is registered memory.
type area struct {
	b  virtrnic.Bytes
	mr *virtrnic.MR
}

// Slots of memory, with room for a global route header.
const sideSlot = virtrnic.GRHLen + sideBytes

// sides are the flows of a run.
type sides struct {
	lab   aLab
	hosts map[int]*sideHost // by node; never walked while the lab runs
	flows []sideFlow
	err   error
}

// must keeps the first error of calls outside the running lab.
func (s *sides) must(err error) {
	if s.err == nil && err != nil {
		s.err = fmt.Errorf("traffic beside: %w", err)
	}
}

// must keeps the first error of a host. Parts run at the same time, and so their hosts have nothing in common.
func (h *sideHost) must(err error) {
	if h.err == nil && err != nil {
		h.err = err
	}
}

// at arranges for a call at a host.
func (s *sides) at(h *sideHost, at vtime.Time, f func(now vtime.Time)) { s.lab.Of(h.node).At(at, f) }

// startSides connects the flows and arranges for their requests.
func (v trial) startSides(n aLab) (*sides, error) {
	s := &sides{lab: n, hosts: map[int]*sideHost{}, flows: slices.Clone(v.flows)}
	for i := range s.flows {
		s.connect(&v, &s.flows[i])
	}
	for i := range s.flows {
		s.arrange(&s.flows[i])
	}
	if whole, ok := n.(*Net); ok {
		whole.noteBaseline() // the flows stay when the ranks have ended
		for node, h := range s.hosts {
			h.fresh = whole.baseline[node]
		}
	}
	return s, s.err
}

func (s *sides) host(node int) *sideHost {
	h := s.hosts[node]
	if h != nil {
		return h
	}
	h = &sideHost{
		node: node, nic: s.lab.Of(node).NIC(node), common: map[virtrnic.QPType]*common{}, received: map[wire.QPN][]virtrnic.WC{}, sent: map[wire.QPN][]virtrnic.WC{},
	}
	h.pd = h.nic.AllocPD()
	var err error
	h.sends, err = h.nic.CreateCQ(4096)
	s.must(err)
	h.recvs, err = h.nic.CreateCQ(4096)
	s.must(err)
	s.hosts[node] = h
	return h
}

// commonOf returns a host's shared receive queue for a service.
func (s *sides) commonOf(h *sideHost, typ virtrnic.QPType) *common {
	c := h.common[typ]
	if c == nil {
		c = &common{}
		var err error
		c.srq, err = h.nic.CreateSRQ(h.pd, 4096, 1)
		s.must(err)
		h.common[typ] = c
	}
	return c
}

func (h *sideHost) area(size int, access virtrnic.AccessFlags) area {
	a := area{b: make(virtrnic.Bytes, size)}
	var err error
	a.mr, err = h.nic.RegMR(h.pd, a.b, access|virtrnic.AccessLocalWrite)
	h.must(err)
	for i := range h.fresh { // it stays when the ranks have ended
		if h.fresh[i].what == "memory regions" {
			h.fresh[i].n++
		}
	}
	return a
}

// connect makes a flow's queue pairs and their memory.
func (s *sides) connect(v *trial, f *sideFlow) {
	f.sent = make([][]*sideOp, len(f.hosts))
	f.ends = make([]*sideEnd, len(f.hosts))
	for i := range f.ops {
		if o := &f.ops[i]; o.receives() {
			f.sent[o.end] = append(f.sent[o.end], o)
		}
	}
	for i, node := range f.hosts {
		e := &sideEnd{sideHost: s.host(node)}
		f.ends[i] = e
		init := virtrnic.QPInit{
			Type: f.typ, PD: e.pd, SendCQ: e.sends, RecvCQ: e.recvs, MaxSendWR: len(f.ops) + 1, MaxRecvWR: len(f.ops) + 1,
			MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: virtrnic.MaxInlineData,
		}
		if f.shared[i] {
			e.shared = s.commonOf(e.sideHost, f.typ)
			init.SRQ = e.shared.srq
		}
		var err error
		e.qp, err = e.nic.CreateQP(init)
		s.must(err)
		e.local = e.area(len(f.ops)*sideSlot, 0)
		e.recv = e.area(len(f.ops)*sideSlot, 0)
		if f.typ != virtrnic.TypeUD {
			e.target = e.area(len(f.ops)*sideSlot, virtrnic.AccessRemoteWrite)
		}
		if f.typ == virtrnic.TypeRC {
			e.source = e.area(sideBytes, virtrnic.AccessRemoteRead)
			e.word = e.area(8, virtrnic.AccessRemoteAtomic)
			e.token = e.area(8, virtrnic.AccessRemoteWrite)
			prng.Fill(e.source.b, uint64(e.qp.Num())<<32|uint64(node), 0)
		}
		s.must(e.err)
	}
	for i, e := range f.ends {
		a := virtrnic.QPAttr{
			Port: 1, Access: virtrnic.AccessRemoteWrite | virtrnic.AccessRemoteRead | virtrnic.AccessRemoteAtomic, PathMTU: v.mtu,
			SQPSN: f.psn, RQPSN: f.psn, Timeout: simlab.Params().Timeout, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1,
			MaxQPRdAtomic: f.depth, MaxDestRdAtomic: f.depth, QKey: sideKey,
		}
		if f.typ != virtrnic.TypeUD {
			a.AV, a.DestQPN = virtrnic.AH{DGID: f.ends[1-i].nic.IP(), TrafficClass: f.traffic}, f.ends[1-i].qp.Num()
		}
		s.must(bringUp(e.nic, e.qp, f.typ, a))
	}
	if f.typ == virtrnic.TypeUD {
		s.address(f)
	}
}

// address returns the destination of a flow's datagrams.
func (s *sides) address(f *sideFlow) {
	to := f.ends[1].nic.IP()
	if f.group != 0 {
		to = f.group
		s.must(setMulticast(s.lab, f.group, f.hosts[1:], f.hosts[:1]))
		for i, e := range f.ends[1:] {
			if !f.deaf || i < len(f.ends)-2 {
				s.must(e.nic.AttachMcast(e.qp, f.group))
			}
		}
	}
	var err error
	e := f.ends[0]
	e.ah, err = e.nic.CreateAH(e.pd, virtrnic.AH{DGID: to, TrafficClass: f.traffic})
	s.must(err)
}

// setMulticast installs a plain IP multicast group in a lab that is whole or in parts.
func setMulticast(n aLab, group uint32, members, senders []int) error {
	p, ok := n.(*Parts)
	if !ok {
		return n.(*Net).SetMulticast(group, members, senders)
	}
	entries, err := p.cfg.Multicast(group, members, senders)
	for _, e := range entries {
		p.Of(e.Switch).Switch(e.Switch).SetMulticast(e)
	}
	return err
}

// arrange schedules a flow's requests and receives.
func (s *sides) arrange(f *sideFlow) {
	for i := range f.ops {
		o := &f.ops[i]
		s.at(f.ends[o.end].sideHost, o.at, func(now vtime.Time) { f.post(now, i, o) })
	}
	if f.rest[0] > 0 {
		e := f.ends[0]
		s.at(e.sideHost, f.rest[0], func(now vtime.Time) { e.turn(now, virtrnic.StateRTS, virtrnic.StateSQD) })
		s.at(e.sideHost, f.rest[1], func(now vtime.Time) { e.turn(now, virtrnic.StateSQD, virtrnic.StateRTS) })
	}
	for i, e := range f.ends {
		from := 1 - i
		if f.typ == virtrnic.TypeUD {
			if from = 0; i == 0 {
				continue
			}
		}
		wanted := len(f.sent[from])
		if e.shared != nil {
			e.shared.wanted += wanted
		}
		for k := range wanted {
			at := vtime.Time(1 + k)
			if k >= wanted/2 {
				at = f.late.Add(vtime.Duration(1 + k))
			}
			s.at(e.sideHost, at, func(now vtime.Time) { e.receive(now, k) })
		}
	}
}

// turn takes a queue pair from one state to another if it is still in the first.
func (e *sideEnd) turn(now vtime.Time, from, to virtrnic.QPState) {
	if e.qp.State() == from {
		e.must(e.nic.ModifyQP(now, e.qp, virtrnic.QPAttr{State: to}, virtrnic.AttrState))
	}
}

// receive posts receive k of an end, or one more of its host's shared queue.
func (e *sideEnd) receive(now vtime.Time, k int) {
	if c := e.shared; c != nil { // posted whatever has become of this flow: others take them too
		if c.buf.mr == nil {
			c.buf = e.area(c.wanted*sideSlot, 0)
		}
		wr := virtrnic.RecvWR{WRID: uint64(c.posted), SGL: c.buf.pieces(c.posted, sideSlot, 1)}
		c.posted++
		e.must(e.nic.PostSRQRecv(c.srq, wr))
		return
	}
	if e.qp.State() == virtrnic.StateErr {
		return
	}
	wr := virtrnic.RecvWR{WRID: uint64(k), SGL: e.recv.pieces(k, sideSlot, 1+k%3)}
	e.must(e.nic.PostRecv(now, e.qp, wr))
}

// pieces divides the first n bytes of a slot.
func (a area) pieces(slot, n, count int) (l []virtrnic.SGE) {
	at := a.mr.Addr() + uint64(slot*sideSlot)
	for i := range count {
		from, to := n*i/count, n*(i+1)/count
		l = append(l, virtrnic.SGE{Addr: at + uint64(from), Length: uint32(to - from), LKey: a.mr.LKey()})
	}
	return l
}

// post posts request i of a flow.
func (f *sideFlow) post(now vtime.Time, i int, o *sideOp) {
	e := f.ends[o.end]
	if e.qp.State() == virtrnic.StateErr {
		return
	}
	wr := virtrnic.SendWR{WRID: uint64(i), Opcode: o.op, Flags: o.flags, Imm: uint32(i), SwapAdd: o.add, Compare: o.compare}
	slot := e.local.b[i*sideSlot : i*sideSlot+o.n]
	if !o.answered() {
		prng.Fill(slot, o.seed, 0)
	}
	if o.pieces == 0 {
		wr.Flags |= virtrnic.SendInline
		wr.Inline = slot
	} else {
		wr.SGL = e.local.pieces(i, o.n, o.pieces)
	}
	if f.typ == virtrnic.TypeUD {
		wr.UD = virtrnic.UDDest{AH: e.ah, QPN: f.ends[1].qp.Num(), QKey: sideKey}
		if f.group != 0 {
			wr.UD.QPN = wire.QPNMulticast
		}
		if o.stranger {
			wr.UD.QKey++
		}
		e.must(e.nic.PostSend(now, e.qp, wr))
		return
	}
	far := f.ends[1-o.end]
	switch o.op {
	case virtrnic.WRRDMAWrite, virtrnic.WRRDMAWriteWithImm:
		wr.RemoteAddr, wr.RKey = far.target.mr.Addr()+uint64(i*sideSlot), far.target.mr.RKey()
	case virtrnic.WRRDMARead:
		wr.RemoteAddr, wr.RKey = far.source.mr.Addr()+uint64(sideBytes-o.n), far.source.mr.RKey()
	case virtrnic.WRAtomicCmpAndSwp, virtrnic.WRAtomicFetchAdd:
		wr.RemoteAddr, wr.RKey = far.word.mr.Addr(), far.word.mr.RKey()
	case virtrnic.WRSendWithInv:
		wr.RKey = far.token.mr.RKey()
	}
	e.must(e.nic.PostSend(now, e.qp, wr))
}

// verify checks the results of all flows once the fabric is quiet, and counts the flows that ran out of
// retries.
func (s *sides) verify() (gaveUp int, err error) {
	for i := range s.flows {
		for _, e := range s.flows[i].ends {
			s.must(e.err)
			e.drain()
		}
	}
	for i := range s.flows {
		f := &s.flows[i]
		if s.err != nil {
			break
		}
		if f.typ != virtrnic.TypeRC {
			s.mustAt(i, f.loose())
			continue
		}
		if f.failed() {
			gaveUp++
			continue
		}
		s.mustAt(i, f.strict())
	}
	return gaveUp, s.err
}

func (s *sides) mustAt(flow int, err error) {
	if err != nil {
		f := &s.flows[flow]
		s.must(fmt.Errorf("flow %d (type %d, hosts %v): %w", flow, f.typ, f.hosts, err))
	}
}

// drain takes the completions of a host.
func (h *sideHost) drain() {
	for _, q := range []struct {
		cq *virtrnic.CQ
		by map[wire.QPN][]virtrnic.WC
	}{{h.sends, h.sent}, {h.recvs, h.received}} {
		for {
			w, ok := h.nic.PollCQ(q.cq)
			if !ok {
				break
			}
			q.by[w.QPN] = append(q.by[w.QPN], w)
		}
	}
}

// failed reports whether a connection ended because its retries were spent, which may happen when
// frames get lost. Any other error is one.
func (f *sideFlow) failed() bool {
	for _, e := range f.ends {
		for _, w := range e.sent[e.qp.Num()] {
			if w.Status == virtrnic.WCRetryExcErr {
				return true
			}
		}
	}
	return false
}

// strict checks a reliable connection: each request has had its effect once and in order, and has
// completed in order if it was signaled.
func (f *sideFlow) strict() error {
	for end, e := range f.ends {
		far := f.ends[1-end]
		if e.qp.State() != virtrnic.StateRTS {
			return fmt.Errorf("end %d is in %v: %+v", end, e.qp.State(), e.sent[e.qp.Num()])
		}
		told := e.sent[e.qp.Num()]
		for i := range f.ops {
			o := &f.ops[i]
			if o.end != end {
				continue
			}
			if o.flags&virtrnic.SendSignaled != 0 {
				if len(told) == 0 || told[0].Status != virtrnic.WCSuccess || told[0].WRID != uint64(i) {
					return fmt.Errorf("request %d of end %d is not the next to complete: %+v", i, end, told)
				}
				told = told[1:]
			}
			if err := f.effect(i, o, e, far); err != nil {
				return err
			}
		}
		if len(told) > 0 {
			return fmt.Errorf("end %d: completions of nothing: %+v", end, told)
		}
		got := far.received[far.qp.Num()]
		if len(got) != len(f.sent[end]) {
			return fmt.Errorf("end %d has received %d messages of %d", 1-end, len(got), len(f.sent[end]))
		}
		for k, w := range got {
			if err := far.message(w, f.sent[end][k], f.index(f.sent[end][k]), 0); err != nil {
				return err
			}
		}
		if w := binary.LittleEndian.Uint64(e.word.b); w != f.words[end] {
			return fmt.Errorf("the word at end %d is %#x after its atomics, want %#x", end, w, f.words[end])
		}
	}
	return nil
}

// index returns the number of a request.
func (f *sideFlow) index(o *sideOp) int {
	return slices.IndexFunc(f.ops, func(x sideOp) bool { return x.at == o.at && x.end == o.end })
}

// effect checks the effect of a request other than taking a receive.
func (f *sideFlow) effect(i int, o *sideOp, e, far *sideEnd) error {
	var got []byte
	want := make([]byte, o.n)
	switch {
	case o.op == virtrnic.WRRDMARead:
		got, want = e.local.b[i*sideSlot:], far.source.b[sideBytes-o.n:]
	case o.answered():
		got = e.local.b[i*sideSlot:]
		binary.LittleEndian.PutUint64(want, o.original)
	case o.op == virtrnic.WRRDMAWrite || o.op == virtrnic.WRRDMAWriteWithImm:
		got = far.target.b[i*sideSlot:]
		prng.Fill(want, o.seed, 0)
	default:
		return nil
	}
	if !bytes.Equal(got[:o.n], want) {
		return fmt.Errorf("request %d (opcode %d, %d bytes) has left other bytes", i, o.op, o.n)
	}
	return nil
}

// message compares a received message with the request that sent it. Data begins at an
// offset of the buffer.
func (e *sideEnd) message(w virtrnic.WC, o *sideOp, i, offset int) error {
	imm := o.op == virtrnic.WRSendWithImm || o.op == virtrnic.WRRDMAWriteWithImm
	if w.Status != virtrnic.WCSuccess || int(w.ByteLen) != o.n+offset || w.WithImm != imm || imm && int(w.Imm) != i {
		return fmt.Errorf("message %d (opcode %d, %d bytes) came as %+v", i, o.op, o.n, w)
	}
	if o.op == virtrnic.WRRDMAWriteWithImm || bytes.Equal(e.data(w, offset), expected(o)) {
		return nil
	}
	return fmt.Errorf("message %d (opcode %d, %d bytes) came with other bytes", i, o.op, o.n)
}

// data returns the bytes of a received message.
func (e *sideEnd) data(w virtrnic.WC, offset int) []byte {
	b := e.recv.b
	if e.shared != nil {
		b = e.shared.buf.b
	}
	at := int(w.WRID) * sideSlot
	return b[at+offset : at+int(w.ByteLen)]
}

func expected(o *sideOp) []byte {
	b := make([]byte, o.n)
	prng.Fill(b, o.seed, 0)
	return b
}

// loose checks an unreliable flow: every message that came is whole and one that was sent,
// and where WRITEs landed there is nothing but their bytes.
func (f *sideFlow) loose() error {
	offset := 0
	if f.typ == virtrnic.TypeUD {
		offset = virtrnic.GRHLen
	}
	for end, e := range f.ends {
		from := 1 - end
		if f.typ == virtrnic.TypeUD {
			if from = 0; end == 0 {
				continue
			}
		}
		if e.qp.State() != virtrnic.StateRTS {
			return fmt.Errorf("end %d is in %v", end, e.qp.State())
		}
		for _, w := range e.received[e.qp.Num()] {
			if err := f.sentBy(w, e, from, offset); err != nil {
				return err
			}
		}
		for i := range f.ops {
			if o := &f.ops[i]; o.end == from && !o.receives() {
				if !within(e.target.b[i*sideSlot:][:o.n], expected(o)) {
					return fmt.Errorf("WRITE %d has left other bytes", i)
				}
			}
		}
	}
	return nil
}

// sentBy looks for the request that a received message may come from.
func (f *sideFlow) sentBy(w virtrnic.WC, e *sideEnd, from, offset int) error {
	var last error
	for i := range f.ops {
		o := &f.ops[i]
		if o.end != from || !o.receives() || w.WithImm && int(w.Imm) != i || o.stranger {
			continue
		}
		if last = e.message(w, o, i, offset); last == nil {
			if o.op == virtrnic.WRRDMAWriteWithImm && !bytes.Equal(e.target.b[i*sideSlot:][:o.n], expected(o)) {
				return fmt.Errorf("WRITE %d is said to be complete and is not", i)
			}
			return nil
		}
	}
	return fmt.Errorf("nobody has sent what came as %+v: %w", w, last)
}

// within reports whether each byte is the expected one or has never been written.
func within(got, want []byte) bool {
	for i, b := range got {
		if b != want[i] && b != 0 {
			return false
		}
	}
	return true
}
