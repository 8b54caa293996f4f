// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// cqesMax is the largest depth of a completion queue, which is the NIC's. libfabric 1.17 asks for that many for verbs;ofi_rxm, whatever
// the device reports.
const cqesMax = virtrnic.MaxQPWR * 16

// channelsMax bounds the completion channels of a program: each takes a descriptor, of which the node's process has few.
const channelsMax = 128

// do carries out a request. The caller sends the descriptors with the answer and closes them.
func (c *client) do(o op, m any) (answer []byte, fds []int) {
	var r reply
	err := error(unix.EIO) // the loop has ended
	if c.isWrecked() {
		return c.doWrecked(o, m), nil
	}
	switch {
	case o >= opGroupWant:
		return c.doGroup(o, m), nil
	case o >= opCMCreate:
		return c.doCM(o, m), nil
	}
	switch m := m.(type) {
	case *regMR:
		r.ID, err = c.regMR(m)
	case *reregMR:
		r.ID, err = c.reregMR(m)
	case *createCQ:
		r, fds, err = c.createCQ(m)
	case *resizeCQ:
		r, fds, err = c.resizeCQ(m)
	case *createQP:
		r, fds, err = c.createQP(m)
	case *modifyQP:
		c.s.call(func(now vtime.Time) { err = c.modifyQP(now, m) })
		if m.Attr.State == uint32(virtrnic.StateReset) {
			c.ask(func() {}) // the library forgets completed requests, all of which are in its rings then
		}
	case *createSRQ:
		r, fds, err = c.createSRQ(m)
	case *modifySRQ:
		c.s.call(func(now vtime.Time) { err = c.modifySRQ(now, m) })
	case *createAH:
		c.s.call(func(vtime.Time) { r.ID, err = c.createAH(m) })
	case *mcast:
		c.s.call(func(now vtime.Time) { err = c.mcast(now, o, m) })
	case *byID:
		return c.simple(o, m.ID)
	}
	if err != nil {
		r = reply{Status: errno(err)}
	}
	return encode(r), fds
}

// simple does requests that carry only a number. What was destroyed has no part in the worker's jobs any
// more when the answer is given: nothing is written to memory that the program frees now.
func (c *client) simple(o op, id uint32) ([]byte, []int) {
	var r reply
	var fds []int
	err := error(unix.EIO)
	after := func() {}
	if o == opDestroyQP || o == opDestroyAH || o == opUnsent {
		c.ask(func() { c.work.takePosted(c) })
	}
	switch o {
	case opCreateChannel:
		r.ID, fds, err = c.createChannel()
	case opQueryQP:
		q := queried{}
		c.s.call(func(vtime.Time) { q.Attr, err = c.queryQP(id) })
		if err == nil {
			return encode(q), nil
		}
	case opClock:
		t := clock{}
		if c.s.call(func(now vtime.Time) { t.Now = nanoseconds(now) }) {
			return encode(t), nil
		}
	case opUnsent:
		c.s.call(func(vtime.Time) { r.Send, err = c.unsent(id) })
	case opQuerySRQ:
		c.s.call(func(vtime.Time) { r.Recv, err = c.querySRQ(id) })
	default:
		c.s.call(func(now vtime.Time) {
			switch o {
			case opAllocPD:
				r.ID, err = c.allocPD()
			case opDestroyAH:
				if err = c.s.nic.DestroyAH(c.ahs[id]); err == nil {
					delete(c.ahs, id)
				}
			case opDeallocPD:
				if err = c.s.nic.DeallocPD(c.pds[id]); err == nil {
					delete(c.pds, id)
				}
			default:
				after, err = c.destroy(now, o, id)
			}
		})
		if err == nil && o != opAllocPD {
			if c.ask(func() {}) {
				after()
			}
		}
	}
	if err != nil {
		r = reply{Status: errno(err)}
	}
	return encode(r), fds
}

func (c *client) nextID() uint32 {
	c.lastID++
	return c.lastID
}

// destroy removes an object from the NIC, and returns the rest of the work, to be called once the
// worker has dropped the object. It is called with the loop's lock.
func (c *client) destroy(now vtime.Time, o op, id uint32) (after func(), err error) {
	switch o {
	case opDestroyChannel:
		h := c.channels[id]
		if h == nil || h.users > 0 {
			return nil, fmt.Errorf("destroy channel %d: it does not exist or is in use: %w", id, unix.EBUSY)
		}
		delete(c.channels, id)
		return h.pipe.close, nil
	case opDestroyCQ:
		q := c.cqs[id]
		if q == nil {
			return nil, fmt.Errorf("destroy completion queue %d: it does not exist: %w", id, unix.EINVAL)
		}
		if err := c.s.nic.DestroyCQ(q.cq); err != nil {
			return nil, err
		}
		if q.channel != nil {
			q.channel.users--
		}
		delete(c.cqs, id)
		return func() { c.unshare(q.ring.mem) }, nil
	case opDestroyQP:
		q := c.qps[wire.QPN(id)]
		if q == nil {
			return nil, fmt.Errorf("destroy queue pair %d: it does not exist: %w", id, unix.EINVAL)
		}
		if len(q.groups) > 0 {
			return nil, fmt.Errorf("destroy queue pair %d: it is attached to multicast groups: %w", id, unix.EBUSY)
		}
		c.destroyQP(now, q)
		c.work.add(func() { c.work.drop(q) })
		return func() { c.unshare(q.mem) }, nil
	case opDestroySRQ:
		return c.destroySRQ(id)
	case opDeregMR:
		r := c.s.regions[id]
		if r == nil || c.s.owners[id] != c {
			return nil, fmt.Errorf("deregister memory: %w", virtrnic.ErrKey)
		}
		c.forgetMR(id)
		return func() { c.dropImage(r) }, nil
	}
	return nil, errMalformed
}

// unsent returns the number of sends that have to leave the NIC before a queue pair can be destroyed without loss. Packets of a
// reliable one may be lost anyway, unless its program waits for completions.
func (c *client) unsent(id uint32) (uint32, error) {
	q := c.qps[wire.QPN(id)]
	if q == nil {
		return 0, fmt.Errorf("count what queue pair %d has to send: it does not exist: %w", id, unix.EINVAL)
	}
	if q.reliable {
		return 0, nil
	}
	return uint32(q.qp.Outstanding()), nil
}

// destroyQP takes a queue pair from the NIC. It is called with the loop's lock.
func (c *client) destroyQP(now vtime.Time, q *qp) {
	q.bad.Store(true)
	q.resets++
	c.s.leave(now, q)
	for _, g := range q.groups {
		_ = c.s.nic.DetachMcast(q.qp, g) // it is attached
		c.s.joins.Leave(now, g)
	}
	n := q.qp.Num()
	if err := c.s.nic.DestroyQP(now, q.qp); err != nil {
		panic(err) // it exists, and is in no group
	}
	delete(c.qps, n)
	delete(c.s.qps, n)
}

// drop takes a queue pair from the worker's list.
func (w *worker) drop(q *qp) {
	for i, have := range w.qps {
		if have == q {
			w.qps = append(w.qps[:i:i], w.qps[i+1:]...)
			return
		}
	}
}

func (c *client) forgetMR(key uint32) {
	c.lose(c.s.regions[key])
	delete(c.s.regions, key)
	delete(c.s.owners, key)
}

func (c *client) regMR(m *regMR) (key uint32, err error) {
	if m.Addr+m.Length < m.Addr || m.IOVA+m.Length < m.IOVA {
		return 0, fmt.Errorf("register %d bytes at %#x, as %#x: one wraps: %w", m.Length, m.Addr, m.IOVA, unix.EINVAL)
	}
	if err := c.probe(m.Addr, m.Length); err != nil {
		return 0, err
	}
	r := &region{iova: m.IOVA, addr: m.Addr, access: virtrnic.AccessFlags(m.Access & 15)}
	if r.image, err = c.takeImage(m.Length); err != nil {
		return 0, err
	}
	err = unix.EIO
	c.s.call(func(vtime.Time) {
		if err = c.s.room(ofMR); err != nil {
			return
		}
		r.pd = c.pds[m.PD]
		key, err = c.enterMR(r)
	})
	if err != nil {
		c.dropImage(r)
	}
	return key, err
}

// enterMR registers a region at the NIC. It is called with the loop's lock.
func (c *client) enterMR(r *region) (key uint32, err error) {
	guest := &virtrnic.Guest{Image: r.image, Put: func(off uint64, b []byte) { c.put(r, off, b) }}
	if r.mr, err = c.s.nic.RegMRIova(r.pd, guest, r.access, r.iova); err != nil {
		return 0, err
	}
	key = r.mr.LKey()
	if c.s.regions[key] != nil { // the key of a region that was lost, and is still the program's
		return 0, errors.Join(virtrnic.ErrNoMem, c.s.nic.DeregMR(r.mr))
	}
	c.s.regions[key], c.s.owners[key] = r, c
	return key, nil
}

// probe returns an error if a region does not begin and end in memory that the program has, as the
// verb does. What lies between shows when it is used.
func (c *client) probe(addr, length uint64) error {
	if length == 0 {
		return nil
	}
	var b [1]byte
	var err error
	if !c.ask(func() { err = errors.Join(fetch(c.mem, b[:], addr), fetch(c.mem, b[:], addr+length-1)) }) {
		return unix.EIO
	}
	if err != nil {
		return fmt.Errorf("register %d bytes: %w: %w", length, unix.EFAULT, err)
	}
	return nil
}

func (c *client) createChannel() (id uint32, fds []int, err error) {
	p, far, err := c.newPipe()
	if err != nil {
		return 0, nil, err
	}
	err = unix.EIO // the loop has ended
	c.s.call(func(vtime.Time) {
		if err = nil; len(c.channels) >= channelsMax {
			err = fmt.Errorf("create channel: %d exist: %w", len(c.channels), unix.ENOMEM)
			return
		}
		id = c.nextID()
		c.channels[id] = &channel{id: id, pipe: p}
	})
	if err != nil {
		p.close()
		return 0, nil, errors.Join(err, unix.Close(far))
	}
	return id, []int{far}, nil
}

func (c *client) createQP(m *createQP) (r reply, fds []int, err error) {
	if m.SRQ != 0 {
		m.RecvWR, m.RecvSGE = 0, 0 // ignored, as in ibv_create_qp(3)
	}
	depth, pieces := max(m.SendWR, m.RecvWR), max(m.SendSGE, m.RecvSGE)
	if m.Flags&^blockSelfMulticast != 0 || depth > virtrnic.MaxQPWR || pieces > sgesMax || m.Inline > inlineMax {
		return r, nil, fmt.Errorf("create queue pair: beyond what the device has: %w", unix.EINVAL)
	}
	sends, recvs := ringEntries(m.SendWR), ringEntries(m.RecvWR)
	first := ringBytes(sends, sendLen)
	mem, fd, err := c.share(first + ringBytes(recvs, recvLen))
	if err != nil {
		return r, nil, err
	}
	q := &qp{client: c, mem: mem, sq: ring{mem[:first], sends, sendLen}, rq: receives{ring: ring{mem[first:], recvs, recvLen}}}
	q.reliable = m.Type == uint32(virtrnic.TypeRC)
	loopback := virtrnic.LoopbackAll
	if m.Flags&blockSelfMulticast != 0 {
		loopback = virtrnic.LoopbackOthers
	}
	err = unix.EIO
	c.s.call(func(vtime.Time) {
		if err = c.s.room(ofQP); err != nil {
			return
		}
		scq, rcq := c.cqs[m.SendCQ], c.cqs[m.RecvCQ]
		q.scq, q.rcq = scq, rcq
		if scq == nil || rcq == nil || m.Type > uint32(virtrnic.TypeUD) || m.Type < uint32(virtrnic.TypeRC) {
			err = fmt.Errorf("create queue pair: completion queues or type: %w", unix.EINVAL)
			return
		}
		var shared *virtrnic.SRQ
		if q.srq = c.srqs[m.SRQ]; q.srq != nil {
			shared = q.srq.srq
		} else if m.SRQ != 0 {
			err = fmt.Errorf("create queue pair: there is no shared receive queue %d: %w", m.SRQ, unix.EINVAL)
			return
		}
		q.qp, err = c.s.nic.CreateQP(virtrnic.QPInit{
			Type: virtrnic.QPType(m.Type), PD: c.pds[m.PD], SendCQ: scq.cq, RecvCQ: rcq.cq, SRQ: shared, SQSigAll: m.SigAll != 0,
			MaxSendWR: int(sends), MaxRecvWR: int(recvs), MaxSendSGE: int(m.SendSGE), MaxRecvSGE: int(m.RecvSGE), MaxInline: inlineMax,
			Loopback: loopback,
		})
		if err != nil {
			return
		}
		r = reply{ID: uint32(q.qp.Num()), Send: uint32(sends), Recv: uint32(recvs)}
		c.qps[q.qp.Num()], c.s.qps[q.qp.Num()] = q, q
	})
	if err != nil {
		c.unshare(mem)
		return r, nil, errors.Join(err, unix.Close(fd))
	}
	c.work.add(func() { c.work.qps = append(c.work.qps, q) })
	return r, []int{fd}, nil
}

func (c *client) allocPD() (id uint32, err error) {
	if len(c.pds) >= c.s.most[ofPD] {
		return 0, fmt.Errorf("allocate protection domain: %d exist: %w", len(c.pds), unix.ENOMEM)
	}
	id = c.nextID()
	c.pds[id] = c.s.nic.AllocPD()
	return id, nil
}

// addressOf returns the number of a GID in the lab.
func addressOf(gid [16]byte) (uint32, error) {
	ip, ok := wire.IPOf(netip.AddrFrom16(gid))
	if group, multicast := wire.GroupOf(gid); multicast {
		return group, nil
	}
	if !ok {
		return 0, fmt.Errorf("%v is no address of a lab: %w", netip.AddrFrom16(gid), unix.EINVAL)
	}
	return ip, nil
}

// hopsMin is the least hop limit of programs' packets. Those of rdma-core set 1, which suffices where switches
// only bridge; a lab's switches count as routers.
const hopsMin = 64

func (p *path) ah() (a virtrnic.AH, err error) {
	a = virtrnic.AH{FlowLabel: p.Flow & 0xfffff, TrafficClass: uint8(p.TrafficClass), HopLimit: max(uint8(p.Hops), hopsMin)}
	a.DGID, err = addressOf(p.GID)
	return a, err
}

func (c *client) createAH(m *createAH) (id uint32, err error) {
	if len(c.ahs) >= c.s.most[ofAH] {
		return 0, fmt.Errorf("create address handle: %d exist: %w", len(c.ahs), unix.ENOMEM)
	}
	a, err := m.Path.ah()
	if err != nil {
		return 0, err
	}
	h, err := c.s.nic.CreateAH(c.pds[m.PD], a)
	if err != nil {
		return 0, err
	}
	id = c.nextID()
	c.ahs[id] = h
	return id, nil
}

func (c *client) mcast(now vtime.Time, o op, m *mcast) error {
	q := c.qps[wire.QPN(m.QPN)]
	group, ok := wire.GroupOf(m.GID)
	if q == nil || !ok {
		return fmt.Errorf("attach or detach queue pair %d, group %v: %w", m.QPN, netip.AddrFrom16(m.GID), unix.EINVAL)
	}
	have := -1
	for i, g := range q.groups {
		if g == group {
			have = i
		}
	}
	if o == opAttachMcast {
		err := c.s.nic.AttachMcast(q.qp, group)
		if err == nil && have < 0 {
			q.groups = append(q.groups, group)
			c.s.joins.Join(now, group)
		}
		return err
	}
	err := c.s.nic.DetachMcast(q.qp, group)
	if err == nil && have >= 0 {
		q.groups = append(q.groups[:have:have], q.groups[have+1:]...)
		c.s.joins.Leave(now, group)
	}
	return err
}

func (c *client) modifyQP(now vtime.Time, m *modifyQP) error {
	q := c.qps[wire.QPN(m.QPN)]
	if q == nil {
		return fmt.Errorf("modify queue pair %d: it does not exist: %w", m.QPN, unix.EINVAL)
	}
	a, mask := &m.Attr, virtrnic.AttrMask(m.Mask)
	if a.State > uint32(virtrnic.StateErr) || a.CurState > uint32(virtrnic.StateErr) || a.RdAtomic > 255 || a.DestRdAtomic > 255 ||
		a.Timeout > 255 || a.RetryCnt > 255 || a.RNRRetry > 255 || a.MinRNRTimer > 255 {
		return fmt.Errorf("modify queue pair %d: an attribute is out of its range: %w", m.QPN, unix.EINVAL)
	}
	n := virtrnic.QPAttr{
		State: virtrnic.QPState(a.State), CurState: virtrnic.QPState(a.CurState), EnSQDAsync: a.SQDAsync != 0,
		Access: virtrnic.AccessFlags(a.Access & 15), PKeyIndex: uint16(a.PKeyIndex), Port: uint8(a.Port), PathMTU: int(a.PathMTU),
		Timeout: uint8(a.Timeout), RetryCnt: uint8(a.RetryCnt), RNRRetry: uint8(a.RNRRetry), RQPSN: wire.PSN(a.RQPSN), SQPSN: wire.PSN(a.SQPSN),
		MinRNRTimer: uint8(a.MinRNRTimer), MaxQPRdAtomic: uint8(a.RdAtomic), MaxDestRdAtomic: uint8(a.DestRdAtomic),
		DestQPN: wire.QPN(a.DestQPN), QKey: a.QKey,
	}
	if mask&virtrnic.AttrAV != 0 {
		var err error
		if n.AV, err = a.Path.ah(); err != nil {
			return err
		}
	}
	if err := c.s.mayJoin(q, &n, mask); err != nil {
		return err
	}
	if err := c.s.nic.ModifyQP(now, q.qp, n, mask); err != nil {
		return err
	}
	c.s.joined(now, q, &n, mask)
	if q.qp.State() == virtrnic.StateReset {
		q.forget()
	}
	q.stalled.Store(false)
	c.work.wake() // entries in the rings may go now, or have to be flushed
	return nil
}

func (c *client) queryQP(id uint32) (a attr, err error) {
	q := c.qps[wire.QPN(id)]
	if q == nil {
		return a, fmt.Errorf("query queue pair %d: it does not exist: %w", id, unix.EINVAL)
	}
	n := c.s.nic.QueryQP(q.qp)
	a = attr{
		State: uint32(n.State), CurState: uint32(n.State), Access: uint32(n.Access), PKeyIndex: uint32(n.PKeyIndex), Port: uint32(n.Port),
		PathMTU: uint32(n.PathMTU), Timeout: uint32(n.Timeout), RetryCnt: uint32(n.RetryCnt), RNRRetry: uint32(n.RNRRetry),
		RQPSN: uint32(n.RQPSN), SQPSN: uint32(n.SQPSN), MinRNRTimer: uint32(n.MinRNRTimer), RdAtomic: uint32(n.MaxQPRdAtomic),
		DestRdAtomic: uint32(n.MaxDestRdAtomic), DestQPN: uint32(n.DestQPN), QKey: n.QKey,
		Path: path{Flow: n.AV.FlowLabel, TrafficClass: uint32(n.AV.TrafficClass), Hops: uint32(n.AV.HopLimit)},
	}
	if n.EnSQDAsync {
		a.SQDAsync = 1
	}
	if n.AV.DGID != 0 {
		a.Path.GID = c.s.nic.Addr(n.AV.DGID).As16()
	}
	return a, nil
}
