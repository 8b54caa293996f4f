package rank

import (
	"cmp"
	"maps"
	"slices"

	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// own is what a rank, or a view of one (Sub), has made on its host and not taken back. It is
// what lets everything go at once, wherever a program was left.
type own struct {
	qps    map[*virtrnic.QP][]uint32 // with the multicast groups each is attached to
	cqs    []*virtrnic.CQ
	ahs    []*virtrnic.AddressHandle
	groups map[uint32]bool // those that this host's agent answers for, by McstID
}

// job is what all views of a rank share.
type job struct {
	views  []*Rank // in the order in which they were made; the first is the rank itself
	mrs    map[*virtrnic.MR]bool
	health health
}

func newJob() *job {
	j := &job{mrs: map[*virtrnic.MR]bool{}}
	j.health.job = j
	return j
}

// open makes what a view of a rank needs: a completion queue, in the rank's domain.
func (r *Rank) open(nic *virtrnic.NIC) (err error) {
	if r.cq, err = nic.CreateCQ(cqDepth); err != nil {
		return err
	}
	r.addr = nic.Addr
	r.own = own{qps: map[*virtrnic.QP][]uint32{}, cqs: []*virtrnic.CQ{r.cq}, groups: map[uint32]bool{}}
	r.job.views = append(r.job.views, r)
	return nil
}

// newQP makes a queue pair that the rank owns.
func (r *Rank) newQP(nic *virtrnic.NIC, init virtrnic.QPInit) (*virtrnic.QP, error) {
	q, err := nic.CreateQP(init)
	if err == nil {
		r.own.qps[q] = nil
	}
	return q, err
}

// attached notes that a queue pair takes what is sent to a multicast group.
func (r *Rank) attached(q *virtrnic.QP, group uint32) {
	if all := r.own.qps[q]; !slices.Contains(all, group) {
		r.own.qps[q] = append(all, group)
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

// newMR notes a region as the rank's. All its views may use it, so it outlives the one that
// has registered it.
func (r *Rank) newMR(m *virtrnic.MR, err error) (*virtrnic.MR, error) {
	if err == nil {
		r.job.mrs[m] = true
	}
	return m, err
}

// deregister takes a region back.
func (r *Rank) deregister(nic *virtrnic.NIC, m *virtrnic.MR) error {
	delete(r.job.mrs, m)
	return nic.DeregMR(m)
}

// joined notes that the host's agent answers for a group.
func (r *Rank) joined(a *mrp.Agent, group uint32, qpn wire.QPN) {
	a.Join(group, qpn)
	r.own.groups[group] = true
}

// left undoes joined. The agent goes on with the deletion of a group that it leads.
func (r *Rank) left(a *mrp.Agent, group uint32) {
	a.Leave(group)
	delete(r.own.groups, group)
}

// destroy takes a queue pair back, which is attached to no multicast group.
func (r *Rank) destroy(q *virtrnic.QP) (err error) {
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { err = r.destroyQP(now, nic, q) })
	return err
}

func (r *Rank) destroyQP(now vtime.Time, nic *virtrnic.NIC, q *virtrnic.QP) error {
	delete(r.own.qps, q)
	return nic.DestroyQP(now, q)
}

// Close takes back what the rank has made: queue pairs, completion queues, address handles
// and, of the rank itself, what its views have made, memory and the protection domain. Of a
// group that is not deleted it asks the fabric to forget it, if it leads it. It waits for
// nobody. Runtimes call it on the rank itself when all ranks have ended.
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
			_ = nic.DeregMR(m) // the rank's own, or gone because the host was restarted
		}
		clear(r.job.mrs)
		_ = nic.DeallocPD(r.pd) // as above
	})
	if some {
		r.c.Host.Kick()
	}
}

// Abandon is Close for a program that was left at any point, or did not end well. It may be
// called from any task of the host once the rank's own tasks run no more.
func (r *Rank) Abandon() {
	for _, v := range r.job.views {
		v.broken = true
	}
	r.Close()
}

// release takes back what a view has made, but for memory. Errors mean that it is gone
// already, because the host was restarted. It reports whether requests have ended.
func (r *Rank) release(now vtime.Time, nic *virtrnic.NIC, a *mrp.Agent) (some bool) {
	some = r.take(nic)
	for _, g := range slices.Sorted(maps.Keys(r.own.groups)) {
		_ = a.Delete(now, g) // refused if another host leads it
		a.Leave(g)
	}
	byNumber := func(a, b *virtrnic.QP) int { return cmp.Compare(a.Num(), b.Num()) }
	for _, q := range slices.SortedFunc(maps.Keys(r.own.qps), byNumber) {
		for _, g := range r.own.qps[q] {
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
	clear(r.own.groups)
	clear(r.conns)
	clear(r.reqs)
	r.own.ahs, r.own.cqs = nil, nil
	return some
}
