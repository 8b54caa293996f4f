// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// pipe is one end of a link: a packet socket in place of a veth.
type pipe struct {
	fd    int
	spoil func(i int, b []byte) []byte // changes frame i that it receives; nil: none
	got   int
}

func (p *pipe) FD() int { return p.fd }

func (p *pipe) Receive(take func(wall int64, b []byte)) (n int, err error) {
	b := make([]byte, 1<<14)
	for n < batch {
		k, _, err := unix.Recvfrom(p.fd, b, unix.MSG_DONTWAIT)
		if err == unix.EAGAIN || err == unix.EINTR || k == 0 {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		frame := b[:k]
		if p.spoil != nil {
			frame = p.spoil(p.got, frame)
		}
		p.got++
		if frame != nil {
			take(0, frame)
		}
		n++
	}
	return n, nil
}

func (p *pipe) Send(frames [][]byte) (sent int, err error) {
	for _, b := range frames {
		switch err := unix.Sendto(p.fd, b, unix.MSG_DONTWAIT, nil); err {
		case nil:
			sent++
		case unix.EAGAIN:
			return sent, nil
		default:
			return sent, err
		}
	}
	return sent, nil
}

// bench runs a lab whose nodes are goroutines of this process, and the coordinator beside them.
type bench struct {
	t      *testing.T
	l      *lab.Lab
	cfg    sim.Config
	c      *Coordinator
	relays []*Relay // of more than one server
	memory []*NodeMemory
	pipes  [][]*pipe
	nodes  []*Node
	orders []chan func() error
	words  []chan func() error
	heard  []uint64
	ranks  []*sim.Ranks
	errs   chan error
	now    vtime.Time
	lease  uint32
	ended  []error
	lacks  []string
	edge   func() error // nil: nothing is done by hand

	calls     *faults.Timeline // of the coordinator
	timelines []*faults.Timeline

	patience time.Duration // of nodes; 0: the default
	key      []byte        // of nodes
	hearing  time.Duration // how long a word is waited for; 0: a minute
}

const benchLab = `name: bench
topology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}
runtime: {clock: lockstep}
workloads: [{bcast: {schemes: [cepheus, chain, unicast, {uc-multicast: {subgroups: 2}}], sizes: [1B, 64KiB, 1MiB], iterations: 2}}]
`

func newBench(t *testing.T, text string) *bench {
	t.Helper()
	return newBenchOn(t, text, 1)
}

// newBenchOn makes a bench whose nodes are spread over servers, one after the other.
func newBenchOn(t *testing.T, text string, servers int) *bench {
	t.Helper()
	l, err := lab.Parse("bench", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, l: l, cfg: sim.Config{Spec: labspec.Fabric(l, g), OutOfBand: labspec.ChannelDelay(l)}, errs: make(chan error, len(g.Nodes))}
	if b.c, err = b.coordinator(servers); err != nil {
		t.Fatal(err)
	}
	b.calls = timelineOf(t, b.c.Faults(), l)
	t.Cleanup(func() {
		if err := b.c.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range g.Nodes {
		b.pipes = append(b.pipes, make([]*pipe, len(g.Nodes[i].Links)))
	}
	for _, k := range g.Links {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, fd := range p {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 8<<20); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Close(fd) })
		}
		b.pipes[k.A.Node][k.A.Port], b.pipes[k.B.Node][k.B.Port] = &pipe{fd: p[0]}, &pipe{fd: p[1]}
	}
	b.memory = make([]*NodeMemory, len(g.Nodes))
	for _, r := range b.relays {
		if err := r.HandOver(b.give); err != nil {
			t.Fatal(err)
		}
	}
	if servers > 1 {
		return b
	}
	if err := b.c.HandOver(b.give); err != nil {
		t.Fatal(err)
	}
	return b
}

// coordinator makes the coordinator, with relays if there is more than one server.
func (b *bench) coordinator(servers int) (*Coordinator, error) {
	if servers == 1 {
		return NewCoordinator(&b.cfg)
	}
	at := make([]int, len(b.cfg.Graph.Nodes))
	var all []*Server
	for i := range at {
		at[i] = i % servers
	}
	for m := range servers {
		local := make([]bool, len(at))
		for i := range at {
			local[i] = at[i] == m
		}
		r, err := NewRelay(&b.cfg, local)
		if err != nil {
			return nil, err
		}
		here, there := net.Pipe()
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = r.Serve(there) // the coordinator returns the error that it has reported
		}()
		b.t.Cleanup(func() {
			_ = here.Close()
			<-over
			if err := r.Close(); err != nil {
				b.t.Error(err)
			}
		})
		b.relays, all = append(b.relays, r), append(all, NewServer(fmt.Sprint("m", m), here))
	}
	return NewSpread(&b.cfg, all, at)
}

// timelineOf gives the lab's faults to a simulation, and to that of the coordinator or of a node.
func timelineOf(t *testing.T, n *sim.Net, l *lab.Lab) *faults.Timeline {
	t.Helper()
	specs, err := labspec.Timeline(l, n.Graph())
	if err != nil {
		t.Fatal(err)
	}
	return n.NewTimeline(vtime.Duration(l.Switches.Reconverge), specs...)
}

// give hands files over as a unix socket does: the node gets descriptors of its own.
func (b *bench) give(node int, files []*os.File) error {
	var fds []int
	for _, f := range files {
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	if m := b.memory[node]; m != nil {
		return m.Read(fds)
	}
	m, err := NewNodeMemory(fds)
	b.memory[node] = m
	return err
}

// start starts all nodes but those of which without is true, and returns when they have ended.
func (b *bench) start(without func(node int) bool) {
	count := len(b.cfg.Graph.Nodes)
	b.nodes, b.ranks, b.heard = make([]*Node, count), make([]*sim.Ranks, count), make([]uint64, count)
	b.ended = make([]error, count)
	for i := range count {
		b.orders = append(b.orders, make(chan func() error, 1024))
		b.words = append(b.words, make(chan func() error, 1<<16))
		if without != nil && without(i) {
			continue
		}
		c := NodeConfig{Sim: b.cfg, Node: i, Memory: b.memory[i], Orders: b.orders[i], Patience: b.patience, Key: b.key}
		for _, p := range b.pipes[i] {
			c.IO = append(c.IO, p)
		}
		c.Request = func(at vtime.Time, rank int, q outofband.Request) error {
			b.say(i, func() error { return b.c.Request(at, i, rank, q) })
			return nil
		}
		n, err := NewNode(c)
		if err != nil {
			b.t.Fatal(err)
		}
		b.timelines = append(b.timelines, timelineOf(b.t, n.Part(), b.l))
		b.nodes[i] = n
		done := make(chan struct{})
		go func() {
			defer close(done)
			if b.ended[i] = n.Run(); b.ended[i] != nil {
				b.errs <- fmt.Errorf("node %s: %w", b.cfg.Graph.Nodes[i].Name, b.ended[i])
			}
		}()
		b.t.Cleanup(func() { close(b.orders[i]); <-done })
	}
}

func (b *bench) say(node int, f func() error) {
	b.nodes[node].Said()
	b.words[node] <- f
}

// Alive implements Streams.
func (b *bench) Alive() error {
	select {
	case err := <-b.errs:
		return err
	default:
		return nil
	}
}

// Stopped implements Streams.
func (b *bench) Stopped(int, time.Duration) bool { return false }

func (b *bench) Stuck(int) {}

// Edge implements Streams.
func (b *bench) Edge() error {
	if b.edge == nil {
		return nil
	}
	return b.edge()
}

// Hear implements Streams.
func (b *bench) Hear(node int, count uint64) error {
	for ; b.heard[node] < count; b.heard[node]++ {
		select {
		case f := <-b.words[node]:
			if err := f(); err != nil {
				return err
			}
		case <-time.After(cmp.Or(b.hearing, time.Minute)):
			return fmt.Errorf("node %d has said %d words, and %d have come", node, count, b.heard[node])
		}
	}
	return nil
}

// Reply implements Streams.
func (b *bench) Reply(at vtime.Time, node int, r outofband.Reply) error {
	b.orders[node] <- func() error { b.nodes[node].Reply(at, r); return nil }
	return nil
}

// SetEntry implements Streams.
func (b *bench) SetEntry(at vtime.Time, e wire.MulticastEntry) error {
	b.orders[e.Switch] <- func() error { b.nodes[e.Switch].SetEntry(at, e); return nil }
	return nil
}

// tell gives an order to all nodes. Each answers with a word, so that the memory written by the order
// may be read: the race detector does not see that atomics order goroutines that have the shared memory
// mapped at different addresses.
func (b *bench) tell(f func(node int) error) error {
	for i := range b.orders {
		b.orders[i] <- func() error {
			err := f(i)
			b.say(i, func() error { return nil })
			return err
		}
		b.c.Ordered(i, vtime.Never)
	}
	return b.c.Settle()
}

func (b *bench) drain() (err error) {
	var halted bool
	if b.now, halted, err = b.c.Drain(); err != nil || halted {
		return err
	}
	return b.tell(func(i int) error { b.nodes[i].Rest(b.now); return nil })
}

// run runs the lab's workloads.
func (b *bench) run() error {
	all, err := runner.Prepare(b.l, b.cfg.Graph, apps.Env{})
	if err != nil {
		return err
	}
	for _, w := range all {
		server := outofband.NewServer(len(w.Hosts), w.Spare, b.cfg.Server(func() (uint32, error) { b.lease++; return b.lease, nil }))
		b.c.Begin(b, w.Hosts, server)
		job := sim.Job{Name: w.Label, Hosts: w.Hosts, Spare: w.Spare, Params: labspec.RankParams(b.l), Program: func(r *rank.Rank) error { return w.App.Run(r, w.Params) }}
		if err := b.tell(func(i int) error { b.ranks[i] = b.nodes[i].Part().Begin(job); return nil }); err != nil {
			return err
		}
		if err := b.drain(); err != nil {
			return err
		}
		lacks := make([][]string, len(b.nodes))
		if err := b.tell(func(i int) error { lacks[i] = b.ranks[i].Stop(); return nil }); err != nil {
			return err
		}
		b.lacks = append(b.lacks, slices.Concat(lacks...)...)
		if err := b.tell(func(i int) error { b.ranks[i].Release(); return nil }); err != nil {
			return err
		}
		for _, e := range server.End() {
			if err := b.SetEntry(-1, e); err != nil {
				return err
			}
			b.c.Ordered(e.Switch, vtime.Never)
		}
		if err := b.drain(); err != nil {
			return err
		}
	}
	return nil
}

// digest returns the digest of the frames that the nodes took off their sockets.
func (b *bench) digest() uint64 {
	g := b.cfg.Graph
	in, completions := make([][]uint64, len(g.Nodes)), make([]uint64, g.Hosts)
	if err := b.tell(func(i int) error {
		part := b.nodes[i].Part()
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			in[i] = append(in[i], part.Link(part.PortID(far.Node, far.Port)).Digest)
		}
		if i < g.Hosts {
			completions[i] = part.NIC(i).Digest()
		}
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	var links []uint64
	for i := range g.Nodes {
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			links = append(links, in[far.Node][far.Port])
		}
	}
	return sim.CombineDigests(links, completions)
}

// TestSame: nodes that share nothing but the memory of their links have the digest of the simulation.
func TestSame(t *testing.T) {
	t.Parallel()
	for _, delay := range []string{"600ns", "0s", "1ms"} {
		t.Run(delay, func(t *testing.T) {
			t.Parallel()
			same(t, benchLab+"links: {delay: "+delay+"}\nswitches: {pfc: false}\n", false)
		})
	}
}

// TestSameTiers: so do they where links are unlike. Nodes whose links are full take frames in rounds in which they may do
// nothing, and get some that come before all that they knew of.
func TestSameTiers(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"allgather": `topology: {fat-tree: {k: 4}}
links: {rate: 40Gbps, delay: 300ns, tiers: {agg-core: {delay: 2us}}}
nics: {mtu: 1024}
workloads: [{allgather: {schemes: [ring], sizes: [16KiB], iterations: 1}}]
`,
		"reduce": `topology: {three-layer: {radix: 4, pods: 2, leaves: 2, hosts: 2, aggs: 2, cores: 4}}
links: {rate: 40Gbps, delay: 300ns, tiers: {agg-core: {rate: 100Gbps, delay: 2us}}}
nics: {mtu: 1024}
workloads: [{reduce-scatter: {schemes: [ring, in-network], sizes: [16KiB], numbers: float32, iterations: 2}}]
`} {
		t.Run(name, func(t *testing.T) { t.Parallel(); same(t, "name: bench\nruntime: {clock: lockstep}\n"+text, false) })
	}
}

// TestSameFaults: so do they under a fault of each kind, which comes at its exact instant.
func TestSameFaults(t *testing.T) {
	t.Parallel()
	var kinds []faults.Kind
	for _, text := range simlab.LabFaults() {
		l := benchLab + "nics: {retries: 2, timeout: 67us}\nfaults: [" + strings.Replace(text, "{", "{in: run, ", 1) + "]\n"
		kinds = append(kinds, kindsOf(t, l)...)
		t.Run(text, func(t *testing.T) { t.Parallel(); same(t, l, true) })
	}
	for _, k := range faults.Kinds() {
		if k != faults.KindControllerCrash && k != faults.KindControlPartition && !slices.Contains(kinds, k) {
			t.Errorf("no fault here is of kind %s", k)
		}
	}
}

// TestSameAfterHalt: so do the jobs that come after one which a pause without end has halted.
func TestSameAfterHalt(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute with the race detector, which has the same to look at in TestSameFaults")
	}
	t.Parallel()
	same(t, benchLab+"nics: {retries: 2, timeout: 67us}\nfaults: [{at: 30us, pause: {node: h3}}]\n", true)
}

// kindsOf returns the kinds of a lab's faults.
func kindsOf(t *testing.T, text string) (kinds []faults.Kind) {
	t.Helper()
	l, err := lab.Parse("bench", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	specs, err := labspec.Timeline(l, g)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		kinds = append(kinds, s.Kind)
	}
	return kinds
}

// same runs a lab in lockstep and as a simulation. Its jobs may fail only if that is said.
func same(t *testing.T, text string, mayFail bool) {
	t.Helper()
	b := newBench(t, text)
	b.start(nil)
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if len(b.lacks) > 0 && !mayFail {
		t.Errorf("ranks still wait: %v", b.lacks)
	}
	b.sameAs(nil, mayFail)
}

// sameAs holds the run against a simulation in which acts are done at their instants.
func (b *bench) sameAs(acts []faults.Act, mayFail bool) {
	t := b.t
	t.Helper()
	n, err := sim.New(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	calls := timelineOf(t, n, b.l)
	for i := range acts {
		if err := acts[i].Apply(calls, b.cfg.Graph, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	all, err := runner.Prepare(b.l, b.cfg.Graph, apps.Env{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		job := sim.Job{Name: w.Label, Hosts: w.Hosts, Spare: w.Spare, Params: labspec.RankParams(b.l), Program: func(r *rank.Rank) error { return w.App.Run(r, w.Params) }}
		if err := n.Run(job); err != nil && !mayFail {
			t.Fatal(err)
		}
	}
	if got := b.digest(); got != n.Digest() || b.now != n.Now() || b.c.Hops() != n.Stats().Hops {
		t.Errorf("digest %016x at %v after %d hops, in the simulation %016x at %v after %d", got, b.now, b.c.Hops(), n.Digest(), n.Now(), n.Stats().Hops)
	}
}

// TestFramesSpoilt: a frame that is cut short, changed where its tag looks, or never comes ends the
// run with an error that names the sender and the frame.
func TestFramesSpoilt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(i int, b []byte) []byte
		want  string
	}{ // each by itself
		"cut":     {func(_ int, b []byte) []byte { return b[:len(b)-1] }, "node h1: frame 5 of leaf0:1 was announced, and "},
		"changed": {func(_ int, b []byte) []byte { b[len(b)-1] ^= 1; return b }, "node h1: frame 5 of leaf0:1 was announced, and "},
		"lost":    {func(int, []byte) []byte { return nil }, " was announced, and "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, benchLab)
			b.patience = 300 * time.Millisecond
			host := b.pipes[1][0]
			host.spoil = func(i int, f []byte) []byte {
				if i == 5 {
					return c.spoil(i, f)
				}
				return f
			}
			b.start(nil)
			if err := b.run(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestForeignFrames: frames that no node has announced arrive, too, and are counted; the run continues.
func TestForeignFrames(t *testing.T) {
	t.Parallel()
	foreignFrames(t, newBench(t, benchLab))
}

// TestStrangersFrames: where no program can have sent them they are counted and refused, and the run is the simulation.
func TestStrangersFrames(t *testing.T) {
	t.Parallel()
	b := newBench(t, benchLab)
	b.key = testKey
	foreignFrames(t, b)
	b.sameAs(nil, false)
}

// TestForeignFrameFirst: one that waits when a node gets its first frame is forwarded no earlier than the coordinator expects of the node.
func TestForeignFrameFirst(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[[]byte]
	for range 2 { // the first run has the frame, the second gets it
		b := newBench(t, benchLab)
		b.pipes[5][2].spoil = func(i int, f []byte) []byte { // frames that leaf1 gets of the spine
			if c := slices.Clone(f); i == 1500 {
				seen.Store(&c)
			}
			return f
		}
		b.start(nil)
		sent := uint64(0)
		if f := seen.Load(); f != nil {
			if _, err := b.pipes[6][1].Send([][]byte{*f}); err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if err := b.run(); err != nil {
			t.Fatal(err)
		}
		if got := b.nodes[5].Foreign(2); got != sent {
			t.Errorf("%d foreign frames have come in, %d were sent", got, sent)
		}
	}
}

// foreignFrames runs a lab whose host h1 gets three unannounced frames: a whole one of before, one whose ICRC is wrong, and none at all.
func foreignFrames(t *testing.T, b *bench) {
	t.Helper()
	var seen atomic.Pointer[[]byte]
	b.pipes[1][0].spoil = func(i int, f []byte) []byte {
		if i == 1500 {
			c := slices.Clone(f)
			seen.Store(&c)
		}
		return f
	}
	b.start(nil)
	sent := 0
	b.edge = func() error {
		if f := seen.Load(); f != nil && sent < 3 {
			sent++
			switch sent {
			case 2:
				(*f)[len(*f)-1] ^= 1
			case 3:
				*f = (*f)[:7]
			}
			_, err := b.pipes[4][1].Send([][]byte{*f}) // the leaf's end
			return err
		}
		return nil
	}
	if err := b.run(); err != nil {
		t.Fatal(err)
	}
	if got := b.nodes[1].Foreign(0); got != 3 {
		t.Errorf("%d foreign frames have come in, 3 were sent", got)
	}
}

// TestFrameMissing: the last frame of all, if it never comes, ends the run in bounded time.
func TestFrameMissing(t *testing.T) {
	t.Parallel()
	b := newBench(t, benchLab)
	b.patience = 300 * time.Millisecond
	b.pipes[1][0].spoil = func(i int, f []byte) []byte {
		if i < 5 {
			return f
		}
		return nil
	}
	b.start(nil)
	if err := b.run(); err == nil || !strings.Contains(err.Error(), "node h1: leaf0:1 announced frame 5, and it has not come within 300ms") {
		t.Error(err)
	}
}

// TestNodeLies: a node that reports an impossible value ends the run with an error that names it, and
// one that lies to a neighbour is named by the neighbour.
func TestNodeLies(t *testing.T) {
	t.Parallel()
	const liar = 0
	for name, c := range map[string]struct {
		lie  func(m *NodeMemory)
		want string
	}{ // each by itself
		"next":    {func(m *NodeMemory) { m.slot.next().Store(-1) }, "node h0 says that its next event is at"},
		"arrival": {func(m *NodeMemory) { m.slot.first(0).Store(-7) }, "node h0 says that a frame arrives at leaf0 at"},
		"words":   {func(m *NodeMemory) { m.slot.words().Store(3) }, "node 0 has said 3 words, and 0 have come"},
		"ring": {func(m *NodeMemory) {
			m.out[0].tail().Store(1 << 40)
			m.slot.first(0).Store(int64(2 * vtime.Microsecond)) // no sooner than it could
		}, "node leaf0: h0:0 announces 1099511627776 frames, and 0 have been taken"},
		"early": {func(m *NodeMemory) { // an announcement without a frame
			m.out[0].tail().Store(1)
			m.slot.first(0).Store(int64(2 * vtime.Microsecond)) // no sooner than it could
		}, "node leaf0: h0:0 announced frame 0, and it has not come within 300ms"},
		"bell": {func(m *NodeMemory) {
			m.bell.running().Store(0)
			m.slot.next().Store(-1)
		}, "node h0 says that its next event is at"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, benchLab)
			b.patience, b.hearing = 300*time.Millisecond, 2*time.Second
			b.start(func(node int) bool { return node == liar })
			over := make(chan struct{})
			ended := make(chan struct{})
			go func() { // follows the protocol, and publishes wrong values
				defer close(ended)
				m := b.memory[liar]
				for round := uint32(0); ; {
					select {
					case <-over:
						return
					default:
					}
					sleep(m.grant.round(), round, 10*time.Millisecond)
					if r := m.grant.round().Load(); r != round {
						round = r
						m.slot.next().Store(never)
						m.slot.first(0).Store(never)
						c.lie(m)
						m.slot.round().Store(round)
						m.bell.running().Add(^uint32(0))
						wake(m.bell.running())
					}
				}
			}()
			defer func() { close(over); <-ended }()
			b.orders[liar] = make(chan func() error, 1024)
			if err := b.run(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestSealed: a node can write its own memory and no other, whatever descriptor it holds, and can
// change the size of none.
func TestSealed(t *testing.T) {
	f, err := newFile("test", ringSize)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	own, err := mapFile(int(f.Fd()), ringSize, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := seal(f); err != nil {
		t.Fatal(err)
	}
	if _, err := mapFile(int(f.Fd()), ringSize, true); err == nil {
		t.Error("another process can map it to write")
	}
	if _, err := f.WriteAt([]byte{1}, 0); err == nil {
		t.Error("another process can write it")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("another process can cut it")
	}
	if again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), os.O_RDWR, 0); err == nil {
		if _, err := mapFile(int(again.Fd()), ringSize, true); err == nil {
			t.Error("a descriptor that was opened anew can map it to write")
		}
		_ = again.Close()
	}
	read, err := mapFile(int(f.Fd()), ringSize, false)
	if err != nil {
		t.Fatal(err)
	}
	ring{own}.tail().Store(7)
	if got := (ring{read}).tail().Load(); got != 7 {
		t.Errorf("the reader sees %d", got)
	}
	if _, err := mapFile(int(f.Fd()), ringSize/2, false); err == nil {
		t.Error("memory of another size is taken")
	}
	if err := own.unmap(); err != nil {
		t.Error(err)
	}
	if err := read.unmap(); err != nil {
		t.Error(err)
	}
}

// TestOrderStartsFrames: a frame that an order starts, before any event, is taken at its instant.
func TestOrderStartsFrames(t *testing.T) {
	t.Parallel()
	b := newBench(t, benchLab)
	b.start(nil)
	b.c.Begin(b, nil, outofband.NewServer(0, nil, outofband.Lab{}))
	if err := b.tell(func(i int) error {
		if part := b.nodes[i].Part(); i == 1 {
			part.NIC(i).SendPause(0, 1<<3, 100)
			part.NIC(i).Settle(1, 0) // it starts
			part.Begin(sim.Job{})
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.drain(); err != nil {
		t.Fatal(err)
	}
	if got := b.c.Hops(); got != 1 {
		t.Errorf("%d frames have arrived, of 1", got)
	}
}
