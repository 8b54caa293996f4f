// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// own holds everything that a rank, or a view of one (Sub), has made on its host and not
// destroyed yet, so that all of it can be released at once, wherever the program stopped.
type own struct {
	qps    map[*virtrnic.QP]struct{}
	mcast  map[*virtrnic.QP][]uint32 // the multicast groups that a queue pair is attached to
	cqs    []*virtrnic.CQ
	ahs    []*virtrnic.AddressHandle
	groups map[uint32]bool // groups that this host's agent is registered for, by McstID
}

// job holds the state that all views of a rank share.
type job struct {
	views  []*Rank // in the order in which they were made; the first is the rank itself
	mrs    map[*virtrnic.MR]bool
	health health
	common map[string]any // values that views share, by name (Common)
	calls  boundCalls

	waited struct { // the last text of named, with its target and direction
		to   target
		send bool
		text string
	}
}

func newJob() *job {
	j := &job{mrs: map[*virtrnic.MR]bool{}, common: map[string]any{}}
	j.health.job = j
	j.calls.bind()
	return j
}

// open makes the completion queue of a view of a rank and adds the view to the job.
func (r *Rank) open(nic *virtrnic.NIC) (err error) {
	if r.cq, err = nic.CreateCQ(cqDepth); err != nil {
		return err
	}
	r.addr = nic.Addr
	r.own = own{qps: map[*virtrnic.QP]struct{}{}, cqs: []*virtrnic.CQ{r.cq}, groups: map[uint32]bool{}}
	r.job.views = append(r.job.views, r)
	return nil
}

// newQP makes a queue pair that the rank owns.
func (r *Rank) newQP(nic *virtrnic.NIC, init virtrnic.QPInit) (*virtrnic.QP, error) {
	q, err := nic.CreateQP(init)
	if err == nil {
		r.own.qps[q] = struct{}{}
	}
	return q, err
}

// attached records that a queue pair is attached to a multicast group.
func (r *Rank) attached(q *virtrnic.QP, group uint32) {
	if r.own.mcast == nil {
		r.own.mcast = map[*virtrnic.QP][]uint32{}
	}
	if all := r.own.mcast[q]; !slices.Contains(all, group) {
		r.own.mcast[q] = append(all, group)
	}
}

// newAH makes an address handle that the rank owns.
func (r *Rank) newAH(nic *virtrnic.NIC, to virtrnic.AH) (*virtrnic.AddressHandle, error) {
	a, err := nic.CreateAH(r.pd, to)
	if err == nil {
		r.own.ahs = append(r.own.ahs, a)
	}
	return a, err
}

// destroyAH takes an address handle back.
func (r *Rank) destroyAH(nic *virtrnic.NIC, a *virtrnic.AddressHandle) error {
	r.own.ahs = slices.DeleteFunc(r.own.ahs, func(o *virtrnic.AddressHandle) bool { return o == a })
	return nic.DestroyAH(a)
}

// newCQ makes a completion queue that the rank owns.
func (r *Rank) newCQ(nic *virtrnic.NIC, depth int) (*virtrnic.CQ, error) {
	c, err := nic.CreateCQ(depth)
	if err == nil {
		r.own.cqs = append(r.own.cqs, c)
	}
	return c, err
}

// destroyCQ takes a completion queue back.
func (r *Rank) destroyCQ(nic *virtrnic.NIC, c *virtrnic.CQ) error {
	r.own.cqs = slices.DeleteFunc(r.own.cqs, func(o *virtrnic.CQ) bool { return o == c })
	return nic.DestroyCQ(c)
}

// newMR records a region as the rank's. All views may use it, so it outlives the view that
// registered it.
func (r *Rank) newMR(m *virtrnic.MR, err error) (*virtrnic.MR, error) {
	if err == nil {
		r.job.mrs[m] = true
	}
	return m, err
}

// deregister deregisters a region.
func (r *Rank) deregister(nic *virtrnic.NIC, m *virtrnic.MR) error {
	delete(r.job.mrs, m)
	return nic.DeregMR(m)
}

// joined records that the host's agent is a member of a group, or leads it.
func (r *Rank) joined(a *mrp.Agent, group uint32, qpn wire.QPN) {
	a.Join(group, qpn)
	r.own.groups[group] = true
}

// left undoes joined. If the agent leads the group, it continues to delete it.
func (r *Rank) left(a *mrp.Agent, group uint32) {
	a.Leave(group)
	delete(r.own.groups, group)
}

// destroy destroys a queue pair that is attached to no multicast group.
func (r *Rank) destroy(q *virtrnic.QP) (err error) {
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = r.destroyQP(now, nic, q) })
	return err
}

func (r *Rank) destroyQP(now vtime.Time, nic *virtrnic.NIC, q *virtrnic.QP) error {
	delete(r.own.qps, q)
	delete(r.own.mcast, q)
	return nic.DestroyQP(now, q)
}

// Close destroys the objects that the rank has made: queue pairs, completion queues and address
// handles. On the rank itself, rather than a view, this includes the objects of the views, memory and
// the protection domain. If the rank leads a group that has not been deleted, Close asks the fabric to
// delete the group. It does not wait for other ranks. Runtimes call it on the rank itself when all
// ranks have ended.
func (r *Rank) Close() {
	some := false
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) {
		if r.job.views[0] != r {
			some = r.release(now, nic, a)
			r.job.views = slices.DeleteFunc(r.job.views, func(v *Rank) bool { return v == r })
			return
		}
		for _, v := range slices.Backward(r.job.views) {
			some = v.release(now, nic, a) || some
		}
		r.job.views = r.job.views[:1]
		byKey := func(a, b *virtrnic.MR) int { return cmp.Compare(a.RKey(), b.RKey()) }
		for _, m := range slices.SortedFunc(maps.Keys(r.job.mrs), byKey) {
			_ = nic.DeregMR(m) // an error means that it is gone because the host was restarted
		}
		clear(r.job.mrs)
		_ = nic.DeallocPD(r.pd) // as above
	})
	if some {
		r.c.Host.Kick()
	}
}

// Abandon is Close for a program that stopped early or with an error. It may be called from
// any task of the host once the rank's own tasks have stopped.
func (r inside) Abandon() {
	for _, v := range r.job.views {
		v.broken = true
	}
	r.Close()
}

// release destroys the objects that a view has made, except memory, and reports whether requests have
// completed. Errors are ignored: they mean that the object is gone because the host was restarted.
func (r *Rank) release(now vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) (some bool) {
	some = r.take(nic)
	for _, g := range slices.Sorted(maps.Keys(r.own.groups)) {
		_ = a.Delete(now, g) // refused if another host leads it
		a.Leave(g)
	}
	byNumber := func(a, b *virtrnic.QP) int { return cmp.Compare(a.Num(), b.Num()) }
	for _, q := range slices.SortedFunc(maps.Keys(r.own.qps), byNumber) {
		for _, g := range r.own.mcast[q] {
			_ = nic.DetachMcast(q, g)
		}
		_ = nic.DestroyQP(now, q)
	}
	for _, h := range r.own.ahs {
		_ = nic.DestroyAH(h)
	}
	for _, c := range r.own.cqs {
		_ = nic.DestroyCQ(c)
	}
	clear(r.own.qps)
	clear(r.own.mcast)
	clear(r.own.groups)
	clear(r.conns)
	r.reqs.forget()
	r.own.ahs, r.own.cqs = nil, nil
	return some
}
