package sim

import (
	"container/heap"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/topo"
)

// oneBuffer is the cyclic multicast paper's network taken literally (CYC-18, CYC-19), in a
// simulation that has nothing in common with the lab's: a message is one packet, and each
// port has room for one packet at its input and for one at its output. A packet is ready
// 100 ns after its first bit has come, waits in its input until outputs are free, and goes
// on as it comes; it leaves the input when the last copy has been taken. An output sends
// when the input at the far end is free. Nothing else takes time: the word that a place is
// free is there at once, and there are no headers. Times are nanoseconds.
type oneBuffer struct {
	g        *topo.Graph
	perByte  int
	size     int
	together bool // copies of a packet start together
	events   eventHeap
	seq      int
	now      int
	in       map[topo.End]*packetIn  // inputs of switches
	out      map[topo.End]*packetOut // outputs of switches and hosts
	queue    map[int][]*packet       // by host
	last     int                     // when the last message had come
	came     int
	sum      int // of when messages came
}

type packet struct {
	ports map[int][]int // by switch
}

type packetIn struct {
	p       *packet
	wants   []int // ports that have not taken their copy
	free    int   // when the last copy that has been taken has left
	arrived int   // when the last bit has come
}

type packetOut struct {
	p       *packet
	sending bool
	free    int        // of the link
	asks    []topo.End // inputs that wait for it, in order
}

type simEvent struct {
	at, seq int
	do      func()
}

type eventHeap []simEvent

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(simEvent)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}

func (o *oneBuffer) at(t int, do func()) {
	o.seq++
	heap.Push(&o.events, simEvent{t, o.seq, do})
}

func (o *oneBuffer) input(e topo.End) *packetIn {
	if o.in[e] == nil {
		o.in[e] = &packetIn{}
	}
	return o.in[e]
}

func (o *oneBuffer) output(e topo.End) *packetOut {
	if o.out[e] == nil {
		o.out[e] = &packetOut{}
	}
	return o.out[e]
}

// run lets all that is queued move and returns when the last message has come.
func (o *oneBuffer) run() int {
	for h := range o.g.Hosts {
		o.inject(h)
	}
	for len(o.events) > 0 {
		e := heap.Pop(&o.events).(simEvent)
		o.now = e.at
		e.do()
	}
	return o.last
}

// inject puts a host's next message into its output.
func (o *oneBuffer) inject(h int) {
	e := topo.End{Node: h}
	if out := o.output(e); out.p == nil && len(o.queue[h]) > 0 {
		out.p, o.queue[h] = o.queue[h][0], o.queue[h][1:]
		o.send(e)
	}
}

// send starts what is in an output if the far end has room.
func (o *oneBuffer) send(e topo.End) {
	out := o.output(e)
	far := o.g.Peer(e.Node, e.Port)
	if out.p == nil || out.sending {
		return
	}
	p, took := out.p, o.perByte*o.size
	if far.Node < o.g.Hosts {
		o.at(o.now+took+20, func() { o.last, o.came, o.sum = max(o.last, o.now), o.came+1, o.sum+o.now })
	} else {
		in := o.input(far)
		if in.p != nil {
			return
		}
		*in = packetIn{p: p, arrived: o.now + 20 + took}
		o.at(o.now+20+100, func() { o.ready(far) })
	}
	out.sending = true
	o.at(o.now+took, func() {
		out.p, out.sending = nil, false
		if e.Node < o.g.Hosts {
			o.inject(e.Node)
		}
		o.serve(e)
	})
}

// ready lets a packet ask for its outputs.
func (o *oneBuffer) ready(e topo.End) {
	in := o.input(e)
	for _, p := range in.p.ports[e.Node] {
		if p != e.Port {
			in.wants = append(in.wants, p)
			out := o.output(topo.End{Node: e.Node, Port: p})
			out.asks = append(out.asks, e)
		}
	}
	for _, p := range slices.Clone(in.wants) {
		o.serve(topo.End{Node: e.Node, Port: p})
	}
}

// serve gives a free output to the input that has asked first, or with copies that start
// together to the first whose outputs are all free.
func (o *oneBuffer) serve(e topo.End) {
	out := o.output(e)
	for i := 0; out.p == nil && i < len(out.asks); i++ {
		from := out.asks[i]
		ports := []int{e.Port}
		if o.together {
			ports = slices.Clone(o.input(from).wants)
			if slices.ContainsFunc(ports, func(p int) bool { return o.output(topo.End{Node: e.Node, Port: p}).p != nil }) {
				continue
			}
		}
		for _, p := range ports {
			o.take(from, topo.End{Node: e.Node, Port: p})
		}
		return
	}
}

// take moves a copy from an input to an output.
func (o *oneBuffer) take(from, to topo.End) {
	in, out := o.input(from), o.output(to)
	out.p = in.p
	out.asks = slices.DeleteFunc(out.asks, func(e topo.End) bool { return e == from })
	in.wants = slices.DeleteFunc(in.wants, func(p int) bool { return p == to.Port })
	in.free = max(in.free, o.now+o.perByte*o.size, in.arrived)
	if len(in.wants) == 0 {
		o.at(in.free, func() {
			*in = packetIn{}
			o.send(o.g.Peer(from.Node, from.Port))
		})
	}
	o.send(to)
}

// oneBufferTime is the mean over draws of when the last message of a scheme has come, and of
// when a message has come on average, in nanoseconds.
func oneBufferTime(t *testing.T, g *topo.Graph, scheme string, p manycast.Params, size int, together bool) (last, mean float64) {
	t.Helper()
	for i := range p.Iterations {
		sources, members := p.Draw(i, g.Hosts)
		o := &oneBuffer{
			g: g, perByte: 4, size: size, together: together,
			in: map[topo.End]*packetIn{}, out: map[topo.End]*packetOut{}, queue: map[int][]*packet{},
		}
		want := 0
		var shared *packet
		if scheme == manycast.OpenSM {
			shared = &packet{portsOf(t)(g.SpanningTree(members, sources))}
		}
		for _, s := range sources {
			others := slices.DeleteFunc(slices.Clone(members), func(m int) bool { return m == s })
			want += len(others)
			switch scheme {
			case manycast.Unicast:
				for _, m := range others {
					o.queue[s] = append(o.queue[s], &packet{portsOf(t)(g.CyclicTree(s, []int{m}))})
				}
			case manycast.Cyclic:
				o.queue[s] = append(o.queue[s], &packet{portsOf(t)(g.CyclicTree(s, others))})
			default:
				o.queue[s] = append(o.queue[s], shared)
			}
		}
		last += float64(o.run()) / float64(p.Iterations)
		mean += float64(o.sum) / float64(o.came) / float64(p.Iterations)
		if o.came != want {
			t.Fatalf("%s: %d messages came, want %d", scheme, o.came, want)
		}
	}
	return last, mean
}

// portsOf makes a table of ports by switch.
func portsOf(t *testing.T) func(tree []topo.Branches, err error) map[int][]int {
	return func(tree []topo.Branches, err error) map[int][]int {
		if err != nil {
			t.Fatal(err)
		}
		ports := map[int][]int{}
		for _, b := range tree {
			for _, p := range b.Ports {
				ports[b.Switch] = append(ports[b.Switch], int(p))
			}
		}
		return ports
	}
}

// TestOneBuffer: what the lab does not reproduce of the paper (R-Y5, R-Y4), the paper's own
// network does not have either, as its text and the decisions on what it leaves out read:
// cyclic trees take what a member's link takes, whatever the group, so the speed-up over
// OpenSM's tree, above 1, does not fall toward 1 for large groups; nor does that over
// unicast grow with the message where there are many sources.
func TestOneBuffer(t *testing.T) {
	g, err := topo.MPortNTree(8, 3, topo.LinkParams{Rate: 2e9, Delay: 20})
	if err != nil {
		t.Fatal(err)
	}
	const sources = 51
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-8s %5s %6s %10s %8s %8s %8s\n", "together", "group", "bytes", "cyclic us", "opensm", "(mean)", "unicast")
	speedup := map[string]float64{}
	for _, together := range []bool{false, true} {
		for _, size := range []int{32, 4096} {
			for _, members := range []int{13, 51, 128} {
				p := manycast.Params{M: 8, N: 3, Sources: sources, Members: members, Iterations: 2, Seed: 1}
				c, cMean := oneBufferTime(t, g, manycast.Cyclic, p, size, together)
				o, oMean := oneBufferTime(t, g, manycast.OpenSM, p, size, together)
				fmt.Fprintf(&table, "%-8v %5d %6d %10.2f %8.3f %8.3f", together, members, size, c/1e3, o/c, oMean/cMean)
				speedup[fmt.Sprint(together, members, size)] = o / c
				if !together { // of one copy it makes no difference
					u, _ := oneBufferTime(t, g, manycast.Unicast, p, size, together)
					fmt.Fprintf(&table, " %8.2f", u/c)
					speedup[fmt.Sprint("unicast", members, size)] = u / c
				}
				table.WriteByte('\n')
				if bound := 4.0 * float64(size) * sources; size == 4096 && (c < bound*0.97 || c > bound*1.01) {
					t.Errorf("to %d at %d bytes, together %v: %.2f us, a member's link takes %.2f", members, size, together, c/1e3, bound/1e3)
				}
			}
			if few, all := speedup[fmt.Sprint(together, 13, size)], speedup[fmt.Sprint(together, 128, size)]; few < 1 || all < few-0.005 {
				t.Errorf("%d bytes, together %v: a speed-up over OpenSM of %.3f for 13 members and %.3f for all", size, together, few, all)
			}
		}
	}
	for _, members := range []int{13, 51, 128} {
		if small, large := speedup[fmt.Sprint("unicast", members, 32)], speedup[fmt.Sprint("unicast", members, 4096)]; large >= small {
			t.Errorf("to %d: a speed-up over unicast of %.2f at 32 bytes and %.2f at 4096", members, small, large)
		}
	}
	t.Log(table.String())
}
