// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/outofband"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// host is one host of the lab as its ranks use it. It implements rankhost.Host.
type host struct {
	net   *Net
	node  int
	nic   *virtrnic.NIC
	agent *mrp.Agent
	tasks []*task
	seen  uint64 // rankhost.News for which the tasks have been woken

	// With a channel: the requests that have not been answered, by their numbers; the number of
	// the last one; and the instant of the event that wakes tasks, or vtime.Never.
	calls    map[uint64]*pending
	lastCall uint64
	armed    vtime.Time
}

// task is a rank, or a worker that a rank has started. It is a coroutine that runs between
// events.
type task struct {
	host   *host
	job    *job
	name   string
	label  *string // the name, for other goroutines to read
	id     int
	rank   int // of the program, or -1 for a worker
	next   func() (struct{}, bool)
	stop   func()
	yield  func(struct{}) bool
	queued bool       // the task is in net.ready
	asleep bool       // the task is parked
	until  vtime.Time // when a parked task wakes at the latest, or vtime.Never
	armed  vtime.Time // instant of the event that wakes the task, or vtime.Never
	why    string     // reason of a parked task's wait
	done   bool
}

// unwound is the value with which a parked task panics when the run is over, so that its
// deferred calls run.
type unwound struct{}

// Unwinds reports whether p, a recovered panic, unwinds a task at the end of a run. Any other
// panic comes from the program.
func Unwinds(p any) bool {
	_, is := p.(unwound)
	return is
}

// spawn makes a task that runs f. It first runs when the loop next runs tasks.
func (n *Net) spawn(h *host, j *job, rank int, name string, f func()) *task {
	t := &task{host: h, job: j, rank: rank, name: name, label: &name, id: n.freeTask(), armed: vtime.Never}
	n.tasks[t.id] = t
	h.tasks = append(h.tasks, t)
	j.live++
	t.next, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		t.yield = yield
		defer func() {
			t.done = true
			j.live--
			if p := recover(); p != nil {
				if !Unwinds(p) {
					panic(p)
				}
			}
		}()
		f()
	})
	n.makeReady(t)
	return t
}

// turn is the task that runs. Other goroutines may read it.
type turn struct {
	number atomic.Uint64          // number of turns so far
	task   atomic.Pointer[string] // name of the running task, or nil if none runs
}

func (u *turn) begin(t *task) {
	u.number.Add(1)
	u.task.Store(t.label)
}

func (u *turn) end() { u.task.Store(nil) }

// Turn returns the number of turns that tasks have had, and the name of the running task, or an
// empty name if none runs. A task that keeps its turn blocks outside of package rank. Any
// goroutine may call Turn at any time.
func (n *Net) Turn() (number uint64, name string) {
	if t := n.turn.task.Load(); t != nil {
		name = *t
	}
	return n.turn.number.Load(), name
}

// Turns returns Turn: a list of one, as Parts.Turns has one for each part.
func (n *Net) Turns() []func() (number uint64, name string) {
	return []func() (uint64, string){n.Turn}
}

// freeTask returns the number of a new task. It reuses those of tasks that have ended.
func (n *Net) freeTask() int {
	if k := len(n.ended); k > 0 {
		id := n.ended[k-1]
		n.ended = n.ended[:k-1]
		return id
	}
	if len(n.tasks) >= 1<<n.idBits {
		panic(fmt.Sprintf("sim: more than %d ranks and workers at a time", 1<<n.idBits))
	}
	n.tasks = append(n.tasks, nil)
	return len(n.tasks) - 1
}

func (n *Net) makeReady(t *task) {
	if !t.queued && !t.done {
		t.queued = true
		n.ready = append(n.ready, t)
	}
}

// runTasks runs the ready tasks, in the order in which they became ready, until all are parked.
func (n *Net) runTasks() {
	for i := 0; i < len(n.ready); i++ {
		t := n.ready[i]
		t.queued, t.asleep = false, false
		if t.done {
			continue
		}
		nd := n.at(t.host.node)
		if l := n.links.At(int(nd.first)); n.pastStarts && l.Next() <= n.now {
			t.host.nic.Settle(n.now, 0) // arrivals, starts, timers: frames that start now precede a rank's calls after the timers
		}
		n.running = t
		n.happens()
		n.moves++
		n.turn.begin(t)
		t.next()
		n.turn.end()
		n.running = nil
		if t.done {
			n.ended = append(n.ended, t.id)
			t.next, t.stop, t.yield = nil, nil, nil // a later task's number keeps t, and these the rest of its program
			t.host.tasks = slices.DeleteFunc(t.host.tasks, func(o *task) bool { return o == t })
		}
		n.arm(nd)
		t.host.look()
	}
	n.ready = n.ready[:0]
}

func (n *Net) wakeSleeper(id int) {
	t := n.tasks[id]
	if t.armed != n.now {
		return // an earlier event has replaced this one; serving both would add events without end
	}
	t.armed = vtime.Never
	switch {
	case !t.asleep || t.done || t.until == vtime.Never:
	case t.until > n.now:
		n.armTask(t)
	default:
		n.makeReady(t)
	}
}

// news reports whether the host has completions or agent changes for which its tasks have not
// been woken.
func (h *host) news() bool { return rankhost.News(h.nic, h.agent) != h.seen }

// armTask schedules the event that wakes a sleeping task unless one is pending by then.
func (n *Net) armTask(t *task) {
	if n.channel != nil {
		n.armHost(t.host)
		return
	}
	if at := max(t.until, n.now); at < t.armed {
		t.armed = at
		n.schedule(at, classTask, t.id)
	}
}

// armHost schedules the event at which the host's first sleeping task wakes unless one is pending by
// then. With a channel one event serves all tasks of a host, so that their order does not depend on
// the tasks of other hosts.
func (n *Net) armHost(h *host) {
	at := vtime.Never
	for _, t := range h.tasks {
		if t.asleep && !t.queued && !t.done {
			at = min(at, t.until)
		}
	}
	if at = max(at, n.now); at < h.armed {
		h.armed = at
		n.schedule(at, classTask, h.node)
	}
}

func (n *Net) wakeSleepers(h *host) {
	if h.armed != n.now {
		return // an earlier event has replaced this one
	}
	h.armed = vtime.Never
	for _, t := range h.tasks {
		if t.asleep && t.until <= n.now {
			n.makeReady(t)
		}
	}
	n.armHost(h)
}

// look wakes the host's tasks if there is news.
func (h *host) look() {
	if h.news() {
		h.seen = rankhost.News(h.nic, h.agent)
		h.Kick()
	}
}

// Now implements rankhost.Host.
func (h *host) Now() vtime.Time { return h.net.now }

// Do implements rankhost.Host.
func (h *host) Do(f func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent)) {
	f(h.net.now, h.nic, h.agent)
}

// Park implements rankhost.Host.
func (h *host) Park(until vtime.Time, why string) {
	t := h.net.running
	t.asleep, t.until, t.why = true, until, why
	if until != vtime.Never {
		h.net.armTask(t)
	}
	if !t.yield(struct{}{}) {
		panic(unwound{})
	}
}

// Kick implements rankhost.Host.
func (h *host) Kick() {
	for _, t := range h.tasks {
		if t.asleep {
			h.net.makeReady(t)
		}
	}
}

// Spawn implements rankhost.Host.
func (h *host) Spawn(name string, f func()) {
	t := h.net.running
	h.net.spawn(h, t.job, -1, t.name+"/"+name, f)
}

// job is a set of ranks that run one program.
type job struct {
	net   *Net
	name  string
	live  int
	board *outofband.Board[*task]
	hosts []int        // node of each rank
	ranks []*rank.Rank // of all parts
	errs  []error      // of all parts
	keep  bool
	// multicast lists the plain IP multicast groups that the job has installed in the switches.
	multicast []uint32
	emit      func(rank int, record []byte)
	report    func(what string)
	over      func(now vtime.Time)
}

// Job describes a program to run.
type Job struct {
	Name  string
	Hosts []int // node of each rank
	// Spare marks, by rank, the hosts whose crash the barriers of the other ranks survive. The
	// crash is an error of the job all the same. nil marks none.
	Spare   []bool
	Program func(*rank.Rank) error
	Params  rankhost.Params
	Keep    bool                          // leave the objects that the ranks have made, for inspection
	Emit    func(rank int, record []byte) // called with each record of a rank; may be nil
	Report  func(what string)             // called with each progress report of the program; may be nil
	// Over is called once the ranks have ended and their objects are destroyed, before the fabric becomes
	// idle. It may be nil.
	Over func(now vtime.Time)

	all *roster // that of all parts of a lab; nil: it is made
}

// Run runs a program on all its ranks until all have ended. It returns the error that ended the loop
// early, else the first rank's error, a crash before all others. If ranks still wait when no event is
// left, the error is a deadlock that names the reason of each wait.
func (n *Net) Run(spec Job) error {
	defer n.passLog(vtime.Never)
	return n.begin(spec).finish()
}

// begin starts the ranks of a job.
func (n *Net) begin(spec Job) *job {
	all := spec.all
	if all == nil {
		all = newRoster(n.graph, spec.Hosts)
	}
	j := &job{
		hosts: spec.Hosts,
		net:   n, name: spec.Name, board: outofband.New[*task](len(spec.Hosts), spec.Spare),
		errs: all.errs, ranks: all.ranks,
		emit: spec.Emit, report: spec.Report, keep: spec.Keep, over: spec.Over,
	}
	if n.channel != nil {
		n.channel.open(j, len(spec.Hosts), spec.Spare)
	}
	for i, node := range spec.Hosts {
		if !n.local(node) {
			continue
		}
		h := n.at(node).host
		n.spawn(h, j, i, fmt.Sprintf("rank %d (%s)", i, all.names[i]), func() { j.errs[i] = j.runRank(i, h, &spec, all) })
	}
	n.steps = 0
	n.runTasks()
	n.attend()
	n.passLog(vtime.Never) // before events that the loop handles at this instant
	return j
}

// boardOf returns a rank's end of the out-of-band channel.
func (j *job) boardOf(h *host, rank int) rankhost.Board {
	b := board{j, h, rank}
	if c := j.net.channel; c != nil {
		return delayed{b, c}
	}
	return b
}

// runRank is the task of a rank. It has nothing on its stack but that: all ranks of a large job are here.
func (j *job) runRank(i int, h *host, spec *Job, all *roster) error {
	if err := j.startRank(i, h, spec, all); err != nil {
		return err
	}
	return rankrun.Run(func() error { return spec.Program(j.ranks[i]) })
}

func (j *job) startRank(i int, h *host, spec *Job, all *roster) (err error) {
	j.ranks[i], err = rankrun.Start(rankhost.Config{
		ID: i, Size: len(spec.Hosts), HostName: all.names[i], Names: all.names, IPs: all.ips,
		Host: h, Board: j.boardOf(h, i), Params: &spec.Params,
		Random: j.net.random.Derive(fmt.Sprintf("rank/%s/%d", spec.Name, i)),
	})
	return err
}

// finish runs the loop until no event is left, and returns the job's error.
func (j *job) finish() error {
	n := j.net
	err := n.Drain()
	blocked := j.stop()
	if err != nil {
		return err
	}
	failed := Outcome(j.errs, blocked)
	n.unfinished = n.open()
	if n.check != nil && failed == nil {
		err = n.check.finished()
	}
	if err == nil && !j.keep {
		err = j.release()
	}
	if n.check != nil && err == nil {
		err = n.check.atRest(j.keep)
	}
	if failed != nil && !errors.Is(err, ErrInvariant) {
		return failed
	}
	return err
}

// stop unwinds the ranks that still wait, and returns the reason of each wait.
func (j *job) stop() (blocked []string) {
	n := j.net
	for _, t := range n.tasks {
		if t.job == j && !t.done {
			blocked = append(blocked, fmt.Sprintf("%s on %s", t.name, t.why))
			t.stop()
		}
	}
	n.forgetTasks()
	if n.channel != nil {
		slices.Sort(blocked) // the order of tasks in a part is not that in the whole
	}
	return blocked
}

// release destroys the objects that the ranks have left, whether or not they failed, and runs the
// loop until the fabric has no trace of them.
func (j *job) release() error {
	n := j.net
	j.abandon()
	if n.channel != nil {
		n.setEntries(n.channel.server.End())
	}
	n.settled()
	n.passLog(vtime.Never)
	if n.channel == nil && j.over == nil && n.pool.Live == 0 && n.quiet() { // parts of a lab do not share this state
		return nil
	}
	return n.Drain()
}

// abandon destroys the objects that the ranks have left, and their entries in switches without a
// channel. Then it calls Job.Over.
func (j *job) abandon() {
	for i, r := range j.ranks {
		if !j.net.local(j.hosts[i]) {
			continue
		}
		if r != nil { // nil if the rank could not be made
			rankrun.Of(r).Abandon()
		}
	}
	for _, ip := range j.multicast {
		j.net.endMulticast(ip)
	}
	j.net.setBranches(nil)
	if j.over != nil {
		j.over(j.net.now)
	}
}

// resume makes the tasks ready that the board has released.
func (j *job) resume(tasks []*task) {
	for _, t := range tasks {
		if t != j.net.running {
			j.net.makeReady(t)
		}
	}
}

// Waiting returns the most frequent reason for which parked tasks wait, for a progress line. It is
// empty if none is parked.
func (n *Net) Waiting() string {
	count := map[string]int{}
	n.waits(count)
	return rankhost.Commonest(count)
}

// waits counts the parked tasks by the reason of their wait.
func (n *Net) waits(count map[string]int) {
	for _, t := range n.tasks {
		if t.asleep && !t.done {
			count[t.why]++
		}
	}
}

// blocked returns the reason of each wait, one for each task that has not ended.
func (n *Net) blocked() (all []string) {
	for _, t := range n.tasks {
		if !t.done {
			all = append(all, fmt.Sprintf("%s on %s", t.name, t.why))
		}
	}
	return all
}

// forgetTasks drops all tasks of an ended job. Their numbers stay allocated and are reused, because
// events that were to wake them may still be in the queue.
func (n *Net) forgetTasks() {
	n.ended = n.ended[:0]
	for id := len(n.tasks) - 1; id >= 0; id-- { // downwards, so that the next job takes number 0 first
		*n.tasks[id] = task{id: id, armed: vtime.Never, done: true}
		n.ended = append(n.ended, id)
	}
	for i := range n.nodes {
		if h := n.nodes[i].host; h != nil {
			h.tasks = h.tasks[:0]
		}
	}
}
