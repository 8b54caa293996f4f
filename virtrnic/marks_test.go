// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// chaos is two NICs whose applications call verbs at random, right and wrong, while the
// wire loses, doubles, delays and damages frames and strangers send others.
type chaos struct {
	*pair
	r     *rand.Rand
	qps   [2][]*QP
	cqs   [2][]*CQ
	srqs  [2][]*SRQ
	ahs   [2][]*AddressHandle
	mrs   [2][]*MR
	chans [2][]*CompChannel
	psn   wire.PSN
}

// oneOf returns one of some values.
func oneOf[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// anyOf returns one of the side's objects, sometimes one of the other device, sometimes none.
func anyOf[T any](r *rand.Rand, all [2][]*T, side int) *T {
	if r.IntN(30) == 0 {
		return nil
	}
	if r.IntN(30) == 0 {
		side = 1 - side
	}
	if len(all[side]) == 0 {
		return nil
	}
	return all[side][r.IntN(len(all[side]))]
}

func newChaos(t *testing.T, r *rand.Rand, log bool) *chaos {
	o := pairOptions{
		typ: oneOf(r, TypeRC, TypeRC, TypeUC, TypeUD), mtu: 256 << r.IntN(5), ackEvery: 1 + r.IntN(6), psn: wire.PSN(0).Add(-r.IntN(60)),
		timeout: uint8(1 + r.IntN(5)), retry: uint8(r.IntN(3)), rnr: uint8(r.IntN(3)), rdAtomic: uint8(r.IntN(4)), cqDepth: oneOf(r, 2, 8, 64, 256),
		recvWR: 1 + r.IntN(8), irn: drawIRN(r), delay: vtime.Duration(1+r.IntN(3000)) * vtime.Nanosecond, log: log, headers: log,
	}
	if r.IntN(2) == 0 {
		o.congestion = setOf(t, oneOf(r, "dcqcn", "dcqcn-connectx", "dcqcn-hpcc"))
	}
	var srqs [2][]*SRQ
	if o.typ != TypeUC && r.IntN(3) == 0 {
		o.init = func(i *QPInit) {
			s, err := i.PD.nic.CreateSRQ(i.PD, 8, 4)
			if err != nil {
				t.Fatal(err)
			}
			i.SRQ = s
			side := i.PD.nic.ip&0xff - 1
			srqs[side] = append(srqs[side], s)
		}
	}
	c := &chaos{pair: newPair(t, o), r: r, psn: o.psn, srqs: srqs}
	bad := 0.05 * r.Float64()
	c.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
		fate.Drop, fate.Twice = r.Float64() < bad, r.Float64() < bad
		if r.Float64() < bad {
			fate.Delay = vtime.Duration(r.IntN(4000)) * vtime.Nanosecond
			fate.Delay2 = fate.Delay
		}
		if r.Float64() < bad {
			c.net.Pool.Damage(f, r.Uint64())
		}
		if r.Float64() < 4*bad && f.Kind() == wire.KindRoCE {
			f.SetECN(wire.ECNCE)
		}
		return fate
	}
	for i := range 2 {
		c.qps[i], c.cqs[i] = []*QP{c.qp[i]}, []*CQ{c.cq[i]}
		for range 3 {
			c.memory(i)
		}
	}
	return c
}

// note writes the result of a verb.
func (c *chaos) note(err error) {
	if c.net.Log != nil {
		c.net.Logf("verb: %v", err)
	}
}

// memory registers a region of any kind, size and access.
func (c *chaos) memory(i int) {
	r := c.r
	size := oneOf(r, 8, 64, 4096, 16384)
	mem := oneOf[Memory](r, make(Bytes, size), make(Bytes, size), Phantom(size), NewHashed(uint64(size)))
	access := oneOf(r, 15, 15, 15, 1, 7, AccessFlags(r.IntN(16)))
	pd := oneOf(r, c.pd[i], c.pd[i], c.pd[i], c.pd[i], c.nic[i].AllocPD(), c.pd[1-i], nil)
	var m *MR
	var err error
	if r.IntN(4) > 0 {
		m, err = c.nic[i].RegMR(pd, mem, access)
	} else {
		m, err = c.nic[i].RegMRAs(pd, mem, access, oneOf(r, 1<<40, 1<<40, ^uint64(0)-3), oneOf(r, ChosenKeys, ChosenKeys+1, ChosenKeys+2, 5))
	}
	if c.note(err); err == nil {
		c.mrs[i] = append(c.mrs[i], m)
	}
}

// sge names memory of a side, mostly as it is.
func (c *chaos) sge(i int) SGE {
	r := c.r
	m := anyOf(r, c.mrs, i)
	if m == nil {
		return SGE{LKey: r.Uint32(), Length: oneOf[uint32](r, 0, 8)}
	}
	s := SGE{Addr: m.addr + oneOf[uint64](r, 0, 0, 0, 8, 3, m.length), LKey: m.key, Length: oneOf(r, 8, 8, uint32(m.length), uint32(r.IntN(4096)), 0)}
	if r.IntN(50) == 0 {
		s.Length = oneOf[uint32](r, MaxMessage, MaxMessage, MaxMessage+1)
	}
	return s
}

func (c *chaos) sgl(i int) (l []SGE) {
	for range c.r.IntN(6) {
		l = append(l, c.sge(i))
	}
	return l
}

// send posts a request of any kind.
func (c *chaos) send(i int) {
	r := c.r
	q := anyOf(r, c.qps, i)
	if q == nil || q.nic != c.nic[i] {
		return
	}
	w := SendWR{WRID: r.Uint64(), Opcode: WROpcode(r.IntN(11)), Flags: SendFlags(r.IntN(16)), SGE: c.sge(i), Imm: r.Uint32(), SwapAdd: 1, Compare: uint64(r.IntN(2))}
	if r.IntN(4) > 0 {
		w.Flags &^= SendInline
	}
	if r.IntN(3) == 0 {
		w.SGL = c.sgl(i)
	}
	w.Inline = make([]byte, oneOf(r, 0, 1, 400, 401))
	if far := anyOf(r, c.mrs, 1-i); far != nil {
		w.RemoteAddr, w.RKey = far.addr+oneOf[uint64](r, 0, 0, 0, 8, 1, far.length), far.key
	}
	w.UD = UDDest{AH: anyOf(r, c.ahs, i), QPN: oneOf(r, c.qp[1-i].num, c.qp[1-i].num, wire.QPNMulticast, 99), QKey: oneOf[uint32](r, testQKey, testQKey, 1<<31, 7)}
	c.note(c.nic[i].PostSend(c.net.Now, q, w)) // refusals are the subject of this test
}

// receive posts a buffer, to a queue pair or a shared queue.
func (c *chaos) receive(i int) {
	w := RecvWR{WRID: c.r.Uint64(), SGE: c.sge(i)}
	if c.r.IntN(3) == 0 {
		w.SGL = c.sgl(i)
	}
	if s := anyOf(c.r, c.srqs, i); s != nil && c.r.IntN(3) == 0 {
		c.note(s.nic.PostSRQRecv(s, w))
		return
	}
	if q := anyOf(c.r, c.qps, i); q != nil {
		c.note(q.nic.PostRecv(c.net.Now, q, w))
	}
}

// create makes a queue pair, or another object.
func (c *chaos) create(i int) {
	r, n := c.r, c.nic[i]
	switch r.IntN(8) {
	case 0:
		q, err := n.CreateCQ(oneOf(r, 0, 1, 8, 64, MaxQPWR*16+1))
		if ch := anyOf(r, c.chans, i); r.IntN(2) == 0 {
			q, err = n.CreateCQOn(ch, oneOf(r, 0, 4, 64))
		}
		if err == nil {
			c.cqs[i] = append(c.cqs[i], q)
		}
	case 1:
		if s, err := n.CreateSRQ(oneOf(r, c.pd[i], c.pd[i], c.pd[1-i], nil), oneOf(r, 0, 1, 4, MaxQPWR+1), oneOf(r, -1, 0, 2, MaxSGE+1)); err == nil {
			c.srqs[i] = append(c.srqs[i], s)
		}
	case 2:
		a := AH{DGID: oneOf(r, c.nic[1-i].ip, c.nic[1-i].ip, 239<<24|1, 239<<24|2, wire.GroupNet|5, 1), TrafficClass: uint8(r.Uint32()), HopLimit: uint8(r.IntN(3))}
		if h, err := n.CreateAH(oneOf(r, c.pd[i], c.pd[i], c.pd[i], c.pd[1-i], nil), a); err == nil {
			c.ahs[i] = append(c.ahs[i], h)
		}
	case 3:
		c.chans[i] = append(c.chans[i], n.CreateCompChannel())
	case 4:
		c.memory(i)
	default:
		init := QPInit{
			Type: QPType(oneOf(r, 0, 2, 2, 3, 4, 9)), PD: oneOf(r, c.pd[i], c.pd[i], c.pd[i], c.pd[1-i]), SendCQ: anyOf(r, c.cqs, i), RecvCQ: anyOf(r, c.cqs, i),
			MaxSendWR: oneOf(r, 1, 8, 8, -1, MaxQPWR+1), MaxRecvWR: oneOf(r, 1, 8, 8, MaxQPWR+1), MaxSendSGE: oneOf(r, 0, 4, 4, MaxSGE+1),
			MaxRecvSGE: oneOf(r, 0, 4, 4, -1), MaxInline: oneOf(r, 0, 400, 400, 401), SQSigAll: r.IntN(2) == 0,
		}
		if r.IntN(3) == 0 {
			init.SRQ = anyOf(r, c.srqs, i)
		}
		q, err := n.CreateQP(init)
		if c.note(err); err == nil {
			c.qps[i] = append(c.qps[i], q)
		}
	}
}

// modify takes a queue pair a step on, or where there is no way.
func (c *chaos) modify(i int) {
	r, q := c.r, anyOf(c.r, c.qps, i)
	if q == nil {
		return
	}
	next := map[QPState][]QPState{
		StateReset: {StateInit, StateInit, StateInit, StateErr}, StateInit: {StateRTR, StateRTR, StateInit}, StateRTR: {StateRTS},
		StateRTS: {StateSQD, StateRTS, StateErr}, StateSQD: {StateRTS, StateRTS, StateSQD}, StateSQE: {StateRTS, StateErr}, StateErr: {StateReset, StateErr},
	}
	to := oneOf(r, next[q.state]...)
	if r.IntN(8) == 0 {
		to = QPState(r.IntN(7))
	}
	far := c.qps[1-i][r.IntN(len(c.qps[1-i]))]
	a := QPAttr{
		State: to, CurState: oneOf(r, q.state, q.state, StateRTS), EnSQDAsync: r.IntN(2) == 0, Access: oneOf(r, 15, 15, 15, AccessFlags(r.IntN(16))), Port: 1,
		AV:      AH{DGID: oneOf(r, far.nic.ip, far.nic.ip, far.nic.ip, 1), TrafficClass: oneOf[uint8](r, 26<<2|2, 0), HopLimit: uint8(r.IntN(2))},
		PathMTU: oneOf(r, q.mtu, 256, 1024, 4096, 4096, 300), Timeout: oneOf[uint8](r, 1, 2, 3, 0, 32), RetryCnt: oneOf[uint8](r, 0, 1, 2, 8), RNRRetry: oneOf[uint8](r, 0, 1, 2, 8),
		RQPSN: c.psn, SQPSN: c.psn, MinRNRTimer: oneOf[uint8](r, 1, 1, 1, 32), MaxQPRdAtomic: oneOf[uint8](r, 0, 1, 4, MaxRdAtomic+1),
		MaxDestRdAtomic: oneOf[uint8](r, 0, 1, 4, MaxRdAtomic+1), DestQPN: oneOf(r, far.num, far.num, far.num, 0), QKey: testQKey,
	}
	mask := AttrState
	if t := findTransition(q.service, q.state, to); t != nil {
		mask |= t.required | t.optional&AttrMask(r.Uint32())
	}
	if r.IntN(6) == 0 {
		mask ^= 1 << r.IntN(21)
	}
	c.note(q.nic.ModifyQP(c.net.Now, q, a, mask))
}

// away takes an object back.
func (c *chaos) away(i int) {
	r, n := c.r, c.nic[i]
	switch r.IntN(4) {
	case 0:
		if q := anyOf(r, c.qps, i); q != nil && len(c.qps[i]) > 2 {
			c.note(n.DestroyQP(c.net.Now, q))
		}
	case 1:
		m := anyOf(r, c.mrs, i)
		if r.IntN(2) == 0 {
			c.note(n.DeregMR(m))
			return
		}
		next, err := n.ReregMR(m, oneOf(r, c.pd[i], c.pd[i], c.pd[1-i], nil), AccessFlags(r.IntN(16)))
		if c.note(err); err == nil {
			c.mrs[i] = append(c.mrs[i], next)
		}
	case 2:
		if s := anyOf(r, c.srqs, i); s != nil && s.nic == n {
			c.note(n.DestroySRQ(s))
		}
	default:
		if q := anyOf(r, c.qps, i); q != nil && q.nic == n {
			c.note(n.DetachMcast(q, oneOf[uint32](r, 239<<24|1, 239<<24|2)))
		}
	}
}

// various calls the remaining verbs.
func (c *chaos) various(i int) {
	r, n := c.r, c.nic[i]
	switch r.IntN(9) {
	case 0:
		if q := anyOf(r, c.qps, i); q != nil && q.nic == n {
			group := oneOf[uint32](r, 239<<24|1, 239<<24|2, 5)
			c.note(n.AttachMcast(q, group))
			c.note(n.AttachUC(q, group))
		}
	case 1:
		if s := anyOf(r, c.srqs, i); s != nil {
			c.note(n.ModifySRQ(s, oneOf(r, 0, 1, 3, -1, 99)))
		}
	case 2:
		if q := anyOf(r, c.cqs, i); q != nil {
			c.note(n.ReqNotifyCQ(q, r.IntN(2) == 0))
		}
	case 3:
		if ch := anyOf(r, c.chans, i); ch != nil {
			_, ok := n.GetCQEvent(ch)
			c.net.Logf("event of a channel: %v", ok)
		}
		e, ok := n.GetAsyncEvent()
		c.net.Logf("event %v: %v", e.Type, ok)
	case 4:
		if q := anyOf(r, c.cqs, i); q != nil {
			c.note(n.ResizeCQ(q, oneOf(r, 0, 1, 8, 64, MaxQPWR*16+1)))
		}
	case 5:
		if q := anyOf(r, c.qps, i); q != nil && q.nic == n {
			c.note(n.SyncPSN(c.net.Now, q, PSNSource(r.IntN(2))))
		}
	case 6:
		n.SendPause(c.net.Now, uint8(r.Uint32()), oneOf[uint16](r, 0, 1, 500))
	case 7:
		f := c.request(nil, func(h *wire.BTH) { h.Version = uint8(r.IntN(2)) })
		if r.IntN(2) == 0 {
			c.net.Pool.Put(f)
			f = c.net.Pool.Get()
			e := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 1, DstPort: 9})
			f.StartDatagram(&e)
			f.Seal(0, false)
		}
		n.SendFrame(c.net.Now, f)
	default:
		for range r.IntN(4) {
			if q := anyOf(r, c.cqs, i); q != nil {
				w, ok := n.PollCQ(q)
				c.net.Logf("completion %v, %+v", ok, w)
			}
		}
	}
}

// strange hands side 1 an invented packet, to any of its queue pairs.
func (c *chaos) strange() {
	r := c.r
	m := &MR{addr: 1 << 20, key: 0x100}
	if k := len(c.mrs[1]); k > 0 {
		m = c.mrs[1][r.IntN(k)]
	}
	far := c.qps[1][r.IntN(len(c.qps[1]))]
	was := c.qp[1]
	c.qp[1] = far
	var b [8]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	f := bent(c.pair, m, b[:])
	c.qp[1] = was
	if r.IntN(10) == 0 { // to a multicast group
		e := wire.NewEnvelope(wire.Flow{Src: c.nic[0].ip, Dst: 239<<24 | uint32(r.IntN(3)), TTL: 3, DstPort: wire.PortRoCEv2})
		h := wire.BTH{OpCode: wire.OpUDSendOnly, PKey: wire.PKeyDefault, DestQP: wire.QPNMulticast}
		switch r.IntN(8) {
		case 0:
			h.Version = 1
		case 1:
			h.DestQP = 17
		case 2:
			h.OpCode = wire.OpCode(r.Uint32())
		case 3:
			h.PKey = 3
		}
		c.net.Pool.Strip(f)
		f.Start(&e, h)
		if i := h.OpCode.Info(); i.DETH {
			f.AddDETH(wire.DETH{QKey: oneOf[uint32](r, testQKey, testQKey, 5)})
		}
		f.Seal(0, false)
		if r.IntN(8) == 0 {
			c.net.Pool.Damage(f, r.Uint64())
		}
	}
	c.inject(f)
}

// flood attaches more queue pairs to a group, and makes more queue pairs and regions, than
// a NIC takes. The tables are filled with holes: real objects would take gigabytes.
func (c *chaos) flood() {
	n := c.nic[0]
	init := QPInit{Type: TypeUD, PD: c.pd[0], SendCQ: c.cq[0], RecvCQ: c.cq[0]}
	for range MaxMcastQPs + 1 {
		if q, err := n.CreateQP(init); err == nil {
			c.qps[0] = append(c.qps[0], q)
			_ = n.AttachMcast(q, 239<<24|1)
			_ = n.DestroyQP(c.net.Now, q) // attached: refused
		}
	}
	for range c.qp[0].sq.max + 1 {
		_ = n.PostSend(c.net.Now, c.qp[0], SendWR{Opcode: WRSend, UD: UDDest{AH: anyOf(c.r, c.ahs, 0)}})
	}
	full := n.tables
	n.qps, n.mrs, n.freedQPNs, n.freedKeys = make([]*QP, MaxQPs), make([]*MR, ChosenKeys>>8-1), queue.FIFO[wire.QPN]{}, queue.FIFO[uint32]{}
	_, errQP := n.CreateQP(init)
	_, errMR := n.RegMR(c.pd[0], Phantom(1), 0)
	n.tables = full
	if errQP == nil || errMR == nil {
		c.t.Errorf("full tables take more: %v, %v", errQP, errMR)
	}
}

// torn has both sides move long messages of all kinds while regions are taken away, keys
// are taken back, rights change, and packets that have passed come again as they were or
// asking for more.
func torn(t *testing.T, r *rand.Rand, log bool) *pair {
	c := newChaos(t, r, log)
	c.mrs = [2][]*MR{}
	var seen []*wire.Frame
	fate := c.net.Fate
	c.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if port == 0 && len(seen) < 40 && f.Kind() == wire.KindRoCE && !f.OpCode().Is(wire.OpResponse) && f.OpCode() != wire.OpCNP {
			seen = append(seen, c.net.Pool.Clone(f))
		}
		return fate(now, port, f)
	}
	for i := range 2 {
		for range 4 {
			m, err := c.nic[i].RegMR(c.pd[i], make(Bytes, 16384), 15)
			if r.IntN(4) == 0 {
				m, err = c.nic[i].RegMR(c.pd[i], NewHashed(16384), 7)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.mrs[i] = append(c.mrs[i], m)
		}
	}
	for i := range 2 {
		for range 4 {
			m := c.mrs[i][r.IntN(4)]
			w := RecvWR{SGE: whole(m, 16000), WRID: 1}
			if r.IntN(2) == 0 {
				w.SGL = split(m, 5000, 5000, 5000)
			}
			if q := c.qp[i]; q.srq != nil {
				_ = c.nic[i].PostSRQRecv(q.srq, w)
			} else {
				_ = c.nic[i].PostRecv(0, q, w)
			}
		}
		for range 3 {
			m, far := c.mrs[i][r.IntN(4)], c.mrs[1-i][r.IntN(4)]
			w := SendWR{
				Opcode: oneOf(r, WRSend, WRSend, WRRDMAWrite, WRRDMARead, WRRDMARead, WRSendWithInv, WRAtomicFetchAdd), SGE: whole(m, 100+r.IntN(15000)),
				RemoteAddr: far.addr, RKey: far.key, Flags: SendFlags(r.IntN(2)),
			}
			if c.qp[i].service == wire.UD {
				w.UD, w.Opcode = c.dest(i), WRSend
			}
			if w.Opcode == WRAtomicFetchAdd {
				w.SGE.Length = 8
			}
			if r.IntN(3) == 0 && w.Opcode != WRAtomicFetchAdd {
				w.SGL = split(m, 3000, 3000)
			}
			_ = c.nic[i].PostSend(0, c.qp[i], w)
		}
	}
	for range 12 {
		for range r.IntN(40) {
			c.net.Step()
		}
		i := r.IntN(2)
		m := c.mrs[i][r.IntN(4)]
		switch r.IntN(8) {
		case 0:
			_ = c.nic[i].DeregMR(m)
		case 1:
			m.closed = true // as a SEND with invalidate leaves it
		case 2:
			_ = c.nic[i].ModifyQP(c.net.Now, c.qp[i], QPAttr{State: StateRTS, Access: AccessFlags(r.IntN(16))}, AttrState|AttrAccessFlags)
		case 3:
			_ = c.nic[i].ModifyQP(c.net.Now, c.qp[i], QPAttr{State: StateErr}, AttrState)
		case 4:
			c.amid(m)
		case 5:
			c.answer()
		default:
			if len(seen) > 0 {
				c.again(seen[r.IntN(len(seen))])
			}
		}
	}
	c.net.Fate = fate
	for _, f := range seen {
		c.net.Pool.Put(f)
	}
	c.end()
	return c.pair
}

// again hands side 1 a packet that it has had; a READ may ask for more, or for memory to which it has
// no right.
func (c *chaos) again(old *wire.Frame) {
	f := c.net.Pool.Clone(old)
	if f.OpCode() == wire.OpReadRequest && c.r.IntN(2) == 0 {
		h, psn := f.RETH(), f.PSN()
		h.DMALen += uint32(c.r.IntN(40000))
		h.VA += uint64(oneOf(c.r, 0, 0, 0, c.qp[1].mtu))
		c.net.Pool.Strip(f)
		e := c.nic[0].envelope(c.qp[0])
		f.Start(&e, wire.BTH{OpCode: wire.OpReadRequest, PKey: wire.PKeyDefault, DestQP: c.qp[1].num, PSN: psn})
		f.AddRETH(h)
		f.Seal(0, false)
	}
	c.inject(f)
}

// answer hands side 1 an answer of any kind to its first request.
func (c *chaos) answer() {
	if c.qp[1].service != wire.RC {
		return
	}
	op := oneOf(c.r, wire.OpAtomicAck, wire.OpReadRespFirst, wire.OpReadRespMiddle, wire.OpReadRespLast, wire.OpReadRespOnly)
	f := c.net.Pool.Get()
	e := c.nic[0].envelope(c.qp[0])
	f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: c.qp[1].num, PSN: c.qp[1].sq.psn(c.qp[1].sq.una)})
	if op.Info().AETH {
		f.AddAETH(wire.AETH{Syndrome: oneOf(c.r, wire.SyndromeACK, wire.SyndromeACK, wire.SyndromeRNR)})
	}
	if op == wire.OpAtomicAck {
		f.AddAtomicAckETH(wire.AtomicAckETH{Original: 1})
	} else {
		f.SetPhantom(oneOf(c.r, c.qp[1].mtu, 10))
	}
	f.Seal(0, false)
	c.inject(f)
}

// amid hands side 1, which may be in the middle of a message, the next packet: a READ, or a WRITE that
// is too long or too short for its opcode.
func (c *chaos) amid(m *MR) {
	if c.qp[1].service != wire.RC {
		return
	}
	f := c.net.Pool.Get()
	e := c.nic[0].envelope(c.qp[0])
	op, size := oneOf(c.r, wire.OpReadRequest, wire.OpWriteFirst), uint32(100)
	if op == wire.OpWriteFirst { // of more than there may be, or of less than would need it
		size = oneOf[uint32](c.r, MaxMessage+1, 100)
	}
	f.Start(&e, wire.BTH{OpCode: op, PKey: wire.PKeyDefault, DestQP: c.qp[1].num, PSN: c.qp[1].RQPSN()})
	f.AddRETH(wire.RETH{VA: m.addr, RKey: m.key, DMALen: size})
	if op == wire.OpWriteFirst {
		f.SetPhantom(c.qp[1].mtu)
	}
	f.Seal(0, false)
	c.inject(f)
}

// hashed writes a Hashed region at random and compares its answers with a plain copy.
func hashed(t *testing.T, r *rand.Rand) {
	const size = 64
	m, plain, times := NewHashed(size), make([]byte, size), make([]int, size)
	m.Reset(1, false)
	torn := false
	for range 1 + r.IntN(8) {
		off := r.IntN(size)
		b := make([]byte, 1+r.IntN(size-off))
		for i := range b {
			b[i] = byte(r.Uint32())
			torn = torn || times[off+i] > 0
			times[off+i]++
		}
		m.write(b, uint64(off), len(b))
		if torn {
			break // its contents are not known any more
		}
		copy(plain[off:], b)
	}
	end := 0
	for end < size && times[end] == 1 {
		end++
	}
	whole := !torn && end > 0
	for _, k := range times[end:] {
		whole = whole && k == 0
	}
	if sum, ok := m.Sum(uint64(end)); ok != whole && end > 0 || whole && sum != wire.HashBytes(plain[:end]) {
		t.Errorf("%d bytes, written %v: sum %x, complete %v, want %v", end, times, sum, ok, whole)
	}
}

// end takes everything back: no frame may be left.
func (c *chaos) end() {
	for i, n := range c.nic {
		for _, q := range c.qps[i] {
			for _, g := range []uint32{239<<24 | 1, 239<<24 | 2} {
				_ = n.DetachMcast(q, g)
			}
			_ = n.DestroyQP(c.net.Now, q)
		}
		for _, s := range c.srqs[i] {
			_ = n.DestroySRQ(s)
		}
	}
	c.run()
}

// chaosRun lets chaos reign for a while.
func chaosRun(t *testing.T, r *rand.Rand, log bool) *pair {
	c := newChaos(t, r, log)
	for range 30 + r.IntN(200) {
		i := r.IntN(2)
		switch k := r.IntN(40); {
		case k < 10:
			c.send(i)
		case k < 16:
			c.receive(i)
		case k < 20:
			c.create(i)
		case k < 25:
			c.modify(i)
		case k < 26:
			c.away(i)
		case k < 31:
			c.various(i)
		case k < 34:
			c.strange()
		default:
			for range r.IntN(30) {
				c.net.Step()
			}
		}
	}
	c.end()
	return c.pair
}

// interrupted sends to a NIC that is stalled until its buffer is full and beyond, and restarts before
// it resumes and sends its ready frames.
func interrupted(t *testing.T, r *rand.Rand) [2]*NIC {
	const n = 2 << 20
	p := newPair(t, pairOptions{timeout: 8, retry: 1})
	_, sm := p.region(0, n, 3)
	_, dm := p.region(1, n, 0)
	p.recv(1, RecvWR{SGE: whole(dm, n)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, n)})
	p.net.At(1+vtime.Time(r.IntN(1000)), func(now vtime.Time) { p.nic[1].Stall(now, true) })
	p.net.At(200*us, func(now vtime.Time) {
		f := p.net.Pool.Get()
		f.StartNext(&p.qp[1].env, wire.OpAcknowledge, 0, 0)
		f.AddAETH(wire.AETH{Syndrome: wire.SyndromeACK})
		f.Seal(0, false)
		p.nic[1].SendFrame(now, f)
	})
	p.net.At(300*us, func(now vtime.Time) { p.nic[1].Restart(now) })
	p.net.At(310*us, func(now vtime.Time) { p.nic[1].Stall(now, false) })
	p.run()
	return p.nic
}

// TestGuardsFire: every reason to drop a frame fires in random inputs by seed. Package
// guards looks at the other guards under coverage.
func TestGuardsFire(t *testing.T) {
	var fired [dropReasons]uint64
	count := func(nics ...*NIC) {
		for _, n := range nics {
			for why, k := range n.stats.Drops {
				fired[why] += k
			}
		}
	}
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		r := rand.New(rand.NewPCG(seed, 12))
		data := make([]byte, 4+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		count(hostileRun(t, data, r.IntN(2) == 0), selectiveRun(t, data), generalRun(t, rand.New(rand.NewPCG(seed, 27))))
		for range 4 {
			some, others := chaosRun(t, r, false), torn(t, r, false)
			count(append(some.nic[:], others.nic[:]...)...)
			hashed(t, r)
		}
		if seed%4 == 0 {
			own := rand.New(rand.NewPCG(seed, 24)) // the draws of one sweep move no other
			copied(t, own)
			for _, p := range []*pair{slowed(t, seed), gathered(t, own, false), repeated(t, own, false)} {
				count(p.nic[:]...)
			}
		}
		if seed%100 == 0 {
			nics := interrupted(t, r)
			count(nics[:]...)
			c := newChaos(t, r, false)
			c.flood()
			c.end()
			wrecked(t, rand.New(rand.NewPCG(seed, 25)))
			piled(t, rand.New(rand.NewPCG(seed, 26)))
			_, err := DCQCNByName(oneOf(r, "none", ""))
			if _, odd := DCQCNByName("nonesuch"); err != nil || odd == nil {
				t.Error("DCQCNByName takes what there is not")
			}
		}
		if t.Failed() {
			t.Fatalf("replay: go test ./virtrnic -run GuardsFire -from %d -seeds 1", seed)
		}
	}
	for _, why := range DropReasons() {
		if fired[why] == 0 && *seedCount >= 100 {
			t.Errorf("%v never fired in %d inputs", why, *seedCount)
		}
	}
	t.Logf("drops by reason: %v", fired)
}

// TestEveryRequestIsOffered: the responder handles every request opcode that exists; other opcodes
// never get past demux.
func TestEveryRequestIsOffered(t *testing.T) {
	for o := range 256 {
		op := wire.OpCode(o)
		rc := op.Service() == wire.RC || op.Service() == wire.UC
		if !rc || !op.Is(wire.OpAssigned) || op.Is(wire.OpResponse) {
			continue
		}
		if k := op.Operation(); k > wire.OpWriteOnlyImm && !isReadOrAtomic(k) && !k.Info().IETH {
			t.Errorf("%v is a request that accept takes for a SEND", op)
		}
	}
}
