// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Rank is one process of a distributed program.
type Rank struct {
	c rankhost.Config
	// stride is the number of places that a rank has in c.Names and c.IPs. A view of a column of a grid has the whole grid's
	// tables from the column's first member on, so its stride is the side of the grid.
	stride int
	cq     *virtrnic.CQ
	pd     *virtrnic.PD
	conns  map[int]*Conn
	reqs   requests
	addr   func(ip uint32) netip.Addr // converts an address to the fabric's IP version

	own      own
	job      *job
	broken   bool // Break was called
	survives bool // Survive was called
	health   *health
	waiting  []int // peers whose answer Connect waits for
}

// cqDepth is enough for every completion that a rank's workloads can have outstanding.
const cqDepth = 1 << 17

// start returns a rank; runtimes call it from the rank's own task.
func start(c rankhost.Config) (*Rank, error) {
	r := newRank(c, newJob())
	var err error
	c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		if err = r.open(nic); err == nil {
			r.pd = nic.AllocPD()
		}
	})
	if err != nil {
		return nil, fmt.Errorf("start rank %d: %w", c.ID, err)
	}
	return r, nil
}

func newRank(c rankhost.Config, j *job) *Rank {
	return &Rank{c: c, stride: 1, job: j, health: &j.health, conns: map[int]*Conn{}}
}

// ID returns the rank's number, 0 to Size-1.
func (r *Rank) ID() int { return r.c.ID }

// Size returns the number of ranks.
func (r *Rank) Size() int { return r.c.Size }

// Name returns the host's name.
func (r *Rank) Name() string { return r.c.HostName }

// NameOf returns the host name of another rank.
func (r *Rank) NameOf(rank int) string { return r.c.Names[rank*r.stride] }

// ip returns the address of a rank's host.
func (r *Rank) ip(rank int) uint32 { return r.c.IPs[rank*r.stride] }

// ips returns the addresses of all ranks' hosts.
func (r *Rank) ips() []uint32 {
	all := make([]uint32, r.c.Size)
	for i := range all {
		all[i] = r.ip(i)
	}
	return all
}

// MTU returns the path MTU: the largest number of payload bytes in a packet.
func (r *Rank) MTU() int { return r.c.Params.MTU }

// Params returns the settings of the rank's queue pairs.
func (r inside) Params() rankhost.Params { return *r.c.Params }

// ownParams returns the settings of the view's queue pairs, to be changed.
func (r *Rank) ownParams() *rankhost.Params {
	p := *r.c.Params
	r.c.Params = &p
	return &p
}

// LinkRate returns the rate of the host's link in bits per second.
func (r *Rank) LinkRate() (rate uint64) {
	r.c.Host.Do(func(_ vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) { rate = nic.LineRate() })
	return rate
}

// Now returns the lab time.
func (r *Rank) Now() vtime.Time { return r.c.Host.Now() }

// Random returns the rank's own stream of random numbers with the given name.
func (r *Rank) Random(name string) prng.Stream { return r.c.Random.Derive(name) }

// Sleep lets lab time pass.
func (r *Rank) Sleep(d vtime.Duration) {
	if d <= 0 {
		return
	}
	until := r.Now().Add(d)
	for r.Now() < until {
		r.c.Host.Park(until, "its clock")
	}
}

// Compute advances lab time by the duration of that many floating-point operations at the given rate
// per second.
func (r *Rank) Compute(flops, flopsPerSecond float64) {
	r.Sleep(vtime.Picoseconds(flops / flopsPerSecond * float64(vtime.Second)))
}

// External reports whether a rank is an external host, on which no program runs.
func (r *Rank) External(rank int) bool { return r.peer(rank) != nil }

// First returns the lowest rank on which a program runs.
func (r *Rank) First() int {
	for i := range r.c.Size {
		if !r.External(i) {
			return i
		}
	}
	return 0
}

func (r *Rank) peer(rank int) *rankhost.Peer {
	if rank < len(r.c.Peers) {
		return r.c.Peers[rank]
	}
	return nil
}

// Sync blocks until all ranks have called it. It works out of band: no packet is sent, and all ranks
// resume twice the lab's runtime.channel-delay (2 us) after the last call. Programs that measure time
// should synchronise over the fabric instead (collective.NewBarrier).
func (r *Rank) Sync() {
	if !r.c.Board.Barrier(r.over) {
		panic(failure{r.health.err})
	}
}

// Put publishes a value for the other ranks, out of band. A key may be written only once.
func (r *Rank) Put(key string, value []byte) { r.c.Board.Put(key, value) }

// Get blocks until the key has a value and returns it.
func (r *Rank) Get(key string) []byte { return r.get(key, "value "+key) }

// Report sets the text of the progress line.
func (r *Rank) Report(what string) { r.c.Board.Report(what) }

// Common returns the value of a name, which all views of the rank share; the first call makes it.
func (r inside) Common(name string, make func() any) any {
	v, ok := r.job.common[name]
	if !ok {
		v = make()
		r.job.common[name] = v
	}
	return v
}

// Open returns the sends, in their order and in the same memory, for which Wait has work to do. For the others, which have succeeded,
// Wait would return immediately and, if polling the NIC takes no time, without effect.
func (r inside) Open(sends []*Request) []*Request {
	if r.c.Params.Cost.Poll > 0 {
		return sends
	}
	return slices.DeleteFunc(sends, func(q *Request) bool { return q.done && q.status == virtrnic.WCSuccess })
}

// Emit hands a record of measurements to the runtime.
func (r inside) Emit(record []byte) { r.c.Board.Emit(record) }

// Go runs f concurrently with the rank, as a worker on the same host. Use Join to wait for it.
// An error of f ends all waits of the rank, as a failed request does, unless the rank survives
// failures (Survive).
func (r *Rank) Go(name string, f func() error) *Worker {
	w := &Worker{r: r, name: name}
	r.c.Host.Spawn(name, func() {
		if w.err = run(f); w.err != nil && !r.survives {
			r.health.fail(w.err)
		}
		w.done = true
		r.c.Host.Kick()
	})
	return w
}

// Worker is a function started with Go.
type Worker struct {
	r    *Rank
	name string
	done bool
	err  error
}

// Join waits until the worker has ended and returns its error.
func (w *Worker) Join() error {
	for !w.done {
		if err := w.r.Failed(); err != nil {
			return err
		}
		w.r.c.Host.Park(vtime.Never, "worker "+w.name)
	}
	return w.err
}

// spend lets the time pass that a piece of host software takes, with jitter.
func (r *Rank) spend(d vtime.Duration) {
	if j := r.c.Params.Cost.Jitter; d > 0 && j > 0 {
		d += vtime.Duration(r.c.Random.Float64() * float64(j))
	}
	r.Sleep(d)
}
