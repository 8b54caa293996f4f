// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// churn makes and destroys queue pairs, regions and completion queues beside a model.
type churn struct {
	t     *testing.T
	r     *rand.Rand
	n     *NIC
	pd    *PD
	cqs   []*CQ
	qps   []*QP
	mrs   []*MR
	timer map[*QP][2]vtime.Time // when its timers are to fire
	made  Made

	numbers map[wire.QPN]bool // that there were
	keys    map[uint32]bool
}

func newChurn(t *testing.T, seed uint64) *churn {
	p := newPair(t, pairOptions{})
	n := p.nic[0]
	if err := errors.Join(n.DestroyQP(0, p.qp[0]), n.DestroyCQ(p.cq[0]), n.DeallocPD(p.pd[0])); err != nil {
		t.Fatal(err)
	}
	c := &churn{
		t: t, r: rand.New(rand.NewPCG(seed, 23)), n: n, pd: n.AllocPD(), timer: map[*QP][2]vtime.Time{},
		numbers: map[wire.QPN]bool{p.qp[0].num: true}, keys: map[uint32]bool{},
	}
	c.made.PDs = 1
	return c
}

func (c *churn) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// create makes a queue pair, on completion queues of which some are its own.
func (c *churn) create() {
	for range 2 {
		if len(c.cqs) == 0 || c.r.IntN(3) == 0 {
			cq, err := c.n.CreateCQ(1 + c.r.IntN(8))
			c.must(err)
			c.cqs = append(c.cqs, cq)
			c.made.CQs++
		}
	}
	q, err := c.n.CreateQP(QPInit{PD: c.pd, SendCQ: anyElement(c.r, c.cqs), RecvCQ: anyElement(c.r, c.cqs), MaxSendWR: 1, MaxRecvWR: 1})
	c.must(err)
	if c.numbers[q.num] || q.num >= wire.QPNMulticast {
		c.t.Fatalf("queue pair %d: the number was used before, or is none", q.num)
	}
	c.numbers[q.num] = true
	c.qps = append(c.qps, q)
	c.timer[q] = [2]vtime.Time{vtime.Never, vtime.Never}
	c.made.QPs++
}

// destroy takes a queue pair back, and a completion queue, which may be in use.
func (c *churn) destroy() {
	if len(c.qps) > 0 {
		i := c.r.IntN(len(c.qps))
		q := c.qps[i]
		c.must(c.n.DestroyQP(0, q))
		if c.n.DestroyQP(0, q) == nil || c.n.qp(q.num) != nil {
			c.t.Fatalf("queue pair %d is there after it was destroyed", q.num)
		}
		delete(c.timer, q)
		c.qps[i] = c.qps[len(c.qps)-1]
		c.qps = c.qps[:len(c.qps)-1]
		c.made.QPs--
	}
	if len(c.cqs) == 0 {
		return
	}
	if i := c.r.IntN(len(c.cqs)); c.cqs[i].users == 0 {
		c.must(c.n.DestroyCQ(c.cqs[i]))
		c.cqs = append(c.cqs[:i], c.cqs[i+1:]...)
		c.made.CQs--
	} else if err := c.n.DestroyCQ(c.cqs[i]); !errors.Is(err, ErrBusy) {
		c.t.Fatalf("a completion queue in use is destroyed: %v", err)
	}
}

// region registers memory or takes some back.
func (c *churn) region() {
	if c.r.IntN(2) == 0 && len(c.mrs) < 100 || len(c.mrs) == 0 {
		m, err := c.n.RegMR(c.pd, Phantom(64), AccessLocalWrite)
		c.must(err)
		if c.keys[m.key] {
			c.t.Fatalf("key %#x was used before", m.key)
		}
		c.keys[m.key] = true
		c.mrs = append(c.mrs, m)
		c.made.MRs++
		return
	}
	i := c.r.IntN(len(c.mrs))
	m := c.mrs[i]
	c.must(c.n.DeregMR(m))
	if c.n.region(m.key) != nil || c.n.DeregMR(m) == nil {
		c.t.Fatalf("key %#x works after its region was deregistered", m.key)
	}
	c.mrs[i] = c.mrs[len(c.mrs)-1]
	c.mrs = c.mrs[:len(c.mrs)-1]
	c.made.MRs--
}

// arm sets or stops a timer of a queue pair.
func (c *churn) arm() {
	if len(c.qps) == 0 {
		return
	}
	q := anyElement(c.r, c.qps)
	at := c.timer[q]
	k := c.r.IntN(2)
	if at[k] = vtime.Time(1 + c.r.IntN(1000)); c.r.IntN(3) == 0 {
		at[k] = vtime.Never
	}
	c.timer[q] = at
	slot := []int{q.timerRTO(), q.timerRNR()}[k]
	if at[k] == vtime.Never {
		c.n.timers.Stop(slot)
	} else {
		c.n.timers.Set(slot, at[k])
	}
}

// check compares the NIC with the model.
func (c *churn) check() {
	n := c.n
	if n.Made() != c.made {
		c.t.Fatalf("the NIC has %+v, want %+v", n.Made(), c.made)
	}
	if len(n.qps) > MaxQPs || len(n.mrs) > keysFresh || len(n.slots) > 2*len(c.qps)+slotHoles+1 || n.timers.Len() != timerQPs+2*len(n.slots) {
		c.t.Fatalf("%d queue pairs, %d regions: tables of %d and %d, %d timer slots of %d pairs", len(c.qps), len(c.mrs), len(n.qps), len(n.mrs), n.timers.Len(), len(n.slots))
	}
	armed := 0
	for _, q := range c.qps {
		at := c.timer[q]
		if n.qp(q.num) != q || n.slots[q.slot] != q || n.timers.At(q.timerRTO()) != at[0] || n.timers.At(q.timerRNR()) != at[1] {
			c.t.Fatalf("queue pair %d, slot %d: timers at %v and %v, want %v", q.num, q.slot, n.timers.At(q.timerRTO()), n.timers.At(q.timerRNR()), at)
		}
		for _, t := range at {
			if t != vtime.Never {
				armed++
			}
		}
	}
	if n.ArmedTimers() != armed {
		c.t.Fatalf("%d timers are armed, want %d", n.ArmedTimers(), armed)
	}
	for _, m := range c.mrs {
		if n.region(m.key) != m {
			c.t.Fatalf("key %#x names another region", m.key)
		}
	}
}

func anyElement[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// TestReclaim makes and destroys 200,000 queue pairs, as many regions and completion queues,
// at random and with bursts. Tables stay small, no number and no key comes twice, and
// whatever slot a queue pair has, its timers are its own.
func TestReclaim(t *testing.T) {
	most := 200_000
	if testing.Short() {
		most = 70_000 // all first numbers are used up
	}
	c := newChurn(t, 1)
	want := 8
	for step := 0; len(c.numbers) < most || len(c.keys) < most; step++ {
		if step%1000 == 0 {
			want = []int{0, 3, 8, 40, 200}[c.r.IntN(5)]
		}
		if len(c.qps) < 2*want && (len(c.qps) < want || c.r.IntN(2) == 0) {
			c.create()
		} else {
			c.destroy()
		}
		c.region()
		if c.r.IntN(4) == 0 {
			c.arm()
		}
		if step%(1+len(c.qps)) == 0 { // as many looks as there are steps
			c.check()
		}
	}
	for len(c.qps) > 0 || len(c.cqs) > 0 {
		c.destroy()
	}
	for len(c.mrs) > 0 {
		c.region()
	}
	c.check()
	c.must(c.n.DeallocPD(c.pd))
	if c.n.Made() != (Made{}) || c.n.events.Len() != 0 {
		t.Errorf("at the end there are %+v and %d events", c.n.Made(), c.n.events.Len())
	}
}

// TestNumbersComeRound: an index has 255 numbers, below that of multicast, and is the one that
// was freed first; a full table takes no more, of whatever age.
func TestNumbersComeRound(t *testing.T) {
	c := newChurn(t, 1)
	n := c.n
	n.qps, n.freedQPNs = make([]*QP, MaxQPs), queue.FIFO[wire.QPN]{}
	last := firstQPN + 7 + (qpnUses-1)*MaxQPs
	if last+MaxQPs-8 >= wire.QPNMulticast {
		t.Fatalf("the last number is %d", last+MaxQPs-8)
	}
	n.freedQPNs.Push(firstQPN + 3)
	n.freedQPNs.Push(last)
	for _, want := range []struct {
		num wire.QPN
		ok  bool
	}{{firstQPN + 3 + MaxQPs, true}, {firstQPN + 7, true}, {}} {
		if num, ok := n.freeQPN(); num != want.num || ok != want.ok {
			t.Errorf("the next number is %d, %v; want %v", num, ok, want)
		}
	}
}

// TestTimersAfterCompaction: unanswered requests end when their own timers expire, on queue pairs whose
// timers have moved because hundreds made before them were destroyed.
func TestTimersAfterCompaction(t *testing.T) {
	o := pairOptions{mtu: 1024, timeout: 2, retry: 1}
	p := newPair(t, o)
	n := p.nic[0]
	init := QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0], MaxSendWR: 4, MaxRecvWR: 4, SQSigAll: true}
	var before []*QP
	for range 300 {
		q, err := n.CreateQP(init)
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, q)
	}
	old := p.qp[0]
	var late [3]*QP
	for i := range late {
		q, err := n.CreateQP(init)
		if err != nil {
			t.Fatal(err)
		}
		late[i], p.qp[0] = q, q
		o.timeout = uint8(2 + i)
		p.connect(0, o)
	}
	if err := p.nic[1].DestroyQP(0, p.qp[1]); err != nil {
		t.Fatal(err)
	}
	for i, q := range late {
		p.qp[0] = q
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSend})
	}
	slots := n.timers.Len()
	for _, q := range append(before, old) {
		if err := n.DestroyQP(p.net.Now, q); err != nil {
			t.Fatal(err)
		}
	}
	if n.timers.Len() >= slots/2 || late[0].slot > slotHoles {
		t.Fatalf("%d timer slots of %d, the first queue pair has %d", n.timers.Len(), slots, late[0].slot)
	}
	p.run()
	for i, q := range late {
		w, ok := n.PollCQ(p.cq[0])
		if !ok || w.WRID != uint64(i) || w.QPN != q.num || w.Status != WCRetryExcErr {
			t.Errorf("completion %d is %+v, %v; want retries exceeded on queue pair %d", i, w, ok, q.num)
		}
	}
}

// TestDestroyOrder: an object in use cannot be destroyed, nor one twice, nor one from before the NIC's
// restart; nothing can be made with a destroyed object; and events of a queue pair are destroyed with
// it.
func TestDestroyOrder(t *testing.T) {
	p := newPair(t, pairOptions{})
	n := p.nic[0]
	srq, err := n.CreateSRQ(p.pd[0], 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	ah, err := n.CreateAH(p.pd[0], AH{DGID: 10<<24 | 2})
	if err != nil {
		t.Fatal(err)
	}
	mr, err := n.RegMRAs(p.pd[0], Phantom(8), 0, 1<<40, ChosenKeys)
	if err != nil {
		t.Fatal(err)
	}
	n.event(EventCommEst, p.qp[0])
	n.event(EventSQDrained, p.qp[0])
	want := func(what string, err, is error) {
		t.Helper()
		if !errors.Is(err, is) {
			t.Errorf("%s: %v, want %v", what, err, is)
		}
	}
	want("completion queue in use", n.DestroyCQ(p.cq[0]), ErrBusy)
	want("domain in use", n.DeallocPD(p.pd[0]), ErrBusy)
	want("queue pair", n.DestroyQP(0, p.qp[0]), nil)
	want("completion queue", n.DestroyCQ(p.cq[0]), nil)
	want("completion queue twice", n.DestroyCQ(p.cq[0]), ErrInvalid)
	if e, ok := n.GetAsyncEvent(); ok {
		t.Errorf("event %v of a queue pair that is gone", e.Type)
	}
	_, err = n.CreateQP(QPInit{PD: p.pd[0], SendCQ: p.cq[0], RecvCQ: p.cq[0]})
	want("queue pair on a completion queue that is gone", err, ErrInvalid)
	want("domain with a shared receive queue", n.DeallocPD(p.pd[0]), ErrBusy)
	want("shared receive queue", n.DestroySRQ(srq), nil)
	want("shared receive queue twice", n.DestroySRQ(srq), ErrInvalid)
	want("domain with an address handle", n.DeallocPD(p.pd[0]), ErrBusy)
	want("address handle", n.DestroyAH(ah), nil)
	want("address handle twice", n.DestroyAH(ah), ErrInvalid)
	want("domain with a region", n.DeallocPD(p.pd[0]), ErrBusy)
	want("region", n.DeregMR(mr), nil)
	want("domain", n.DeallocPD(p.pd[0]), nil)
	want("domain twice", n.DeallocPD(p.pd[0]), ErrInvalid)
	_, err = n.RegMR(p.pd[0], Phantom(8), 0)
	want("region in a domain that is gone", err, ErrInvalid)
	if n.Made() != (Made{}) {
		t.Errorf("the NIC has %+v", n.Made())
	}

	n = p.nic[1]
	n.Restart(0)
	want("queue pair of before the restart", n.DestroyQP(0, p.qp[1]), ErrInvalid)
	want("completion queue of before", n.DestroyCQ(p.cq[1]), ErrInvalid)
	want("domain of before", n.DeallocPD(p.pd[1]), ErrInvalid)
	if n.Made() != (Made{}) {
		t.Errorf("after a restart the NIC has %+v", n.Made())
	}
}

// wrecked makes and destroys objects of all kinds of two NICs at random, those that are in use,
// gone or the other NIC's, too. When all are taken back in the verbs' order nothing is left.
func wrecked(t *testing.T, r *rand.Rand) {
	p := newPair(t, pairOptions{})
	n := p.nic[0]
	pds, cqs, qps := append([]*PD{nil}, p.pd[:]...), p.cq[:], p.qp[1:] // the first queue pair keeps its domain and its completion queue
	var srqs []*SRQ
	ahs := []*AddressHandle{nil}
	var mrs []*MR
	create := func() {
		switch pd := anyElement(r, pds); r.IntN(7) {
		case 0:
			pds = append(pds, n.AllocPD())
		case 1:
			if c, err := n.CreateCQ(4); err == nil {
				cqs = append(cqs, c)
			}
		case 2:
			if s, err := n.CreateSRQ(pd, 4, 1); err == nil {
				srqs = append(srqs, s)
			}
		case 3:
			if a, err := n.CreateAH(pd, AH{DGID: 10<<24 | 2}); err == nil {
				ahs = append(ahs, a)
			}
		case 4:
			if m, err := n.RegMR(pd, Phantom(8), 0); err == nil {
				mrs = append(mrs, m)
			}
		default:
			init := QPInit{PD: pd, SendCQ: anyElement(r, cqs), RecvCQ: anyElement(r, cqs)}
			if r.IntN(2) == 0 {
				init.PD, init.SendCQ, init.RecvCQ = p.pd[0], p.cq[0], p.cq[0]
			}
			if len(srqs) > 0 && r.IntN(2) == 0 {
				init.SRQ = anyElement(r, srqs)
			}
			if q, err := n.CreateQP(init); err == nil {
				n.event(EventCommEst, q)
				qps = append(qps, q)
			}
		}
	}
	destroy := func() {
		_ = n.DeallocPD(anyElement(r, pds)) // refusals are the subject of this test
		_ = n.DestroyCQ(anyElement(r, cqs))
		_ = n.DestroyQP(0, anyElement(r, qps))
		_ = n.DestroyAH(anyElement(r, ahs))
		if len(srqs) > 0 {
			_ = n.DestroySRQ(anyElement(r, srqs))
		}
		if len(mrs) > 0 {
			_ = n.DeregMR(anyElement(r, mrs))
		}
	}
	for step := range 3000 {
		if create(); step%3 == 0 {
			destroy()
		}
		if step%20 == 0 {
			n.GetAsyncEvent()
		}
	}
	for _, q := range append(qps, p.qp[0]) {
		_ = n.DestroyQP(0, q) // destroyed objects are refused, here and below
	}
	for _, s := range srqs {
		_ = n.DestroySRQ(s)
	}
	for _, a := range ahs {
		_ = n.DestroyAH(a)
	}
	for _, m := range mrs {
		_ = n.DeregMR(m)
	}
	for _, c := range cqs {
		_ = n.DestroyCQ(c)
	}
	for _, pd := range pds {
		_ = n.DeallocPD(pd)
	}
	if e, ok := n.GetAsyncEvent(); ok || n.Made() != (Made{}) || len(n.slots)-n.holes != 0 {
		t.Errorf("an event %v (%v), %+v, %d timer slots with %d holes", e.Type, ok, n.Made(), len(n.slots), n.holes)
	}
}
