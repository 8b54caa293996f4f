// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/sim"
)

// bare moves the frames of a run over the same links with nothing around them: no headers, no queues,
// no machines; a link is a FIFO, an event is a key. It is an upper bound for the loop's speed, run
// beside it on the same machine.
type bare struct {
	heap  sim.BareHeap
	links []bareLink
	hops  uint64
}

type bareLink struct {
	free  int64
	ring  [][2]int64 // arrival, what
	head  int
	keyed bool
}

const (
	bareDelay = 1_000_000
	bareIDs   = 18
)

// send puts a frame of size bytes on a link at now.
func (b *bare) send(now int64, link, size int, what int64) {
	l := &b.links[link]
	l.free = max(l.free, now) + int64(size)*80
	l.ring = append(l.ring, [2]int64{l.free + bareDelay, what})
	if !l.keyed {
		l.keyed = true
		b.heap.Push(uint64(l.free+bareDelay)<<bareIDs | uint64(link))
	}
}

// run delivers until nothing is left; arrive handles a frame at a link's end.
func (b *bare) run(arrive func(now int64, link int, what int64)) {
	for {
		k, ok := b.heap.Pop()
		if !ok {
			return
		}
		link := int(k & (1<<bareIDs - 1))
		l := &b.links[link]
		e := l.ring[l.head]
		l.head++
		if l.head == len(l.ring) {
			l.ring, l.head = l.ring[:0], 0
		} else if l.head >= 4096 {
			l.ring = l.ring[:copy(l.ring, l.ring[l.head:])]
			l.head = 0
		}
		l.keyed = false
		b.hops++
		arrive(int64(k>>bareIDs), link, e[1])
		if !l.keyed && len(l.ring) > l.head {
			l.keyed = true
			b.heap.Push(uint64(l.ring[l.head][0])<<bareIDs | uint64(link))
		}
	}
}

// bareBcast moves packets down the tree of a run and merged acknowledgements up.
func bareBcast(n *sim.Net, packets, ackEvery int) *bare {
	g := n.Graph()
	b := &bare{links: make([]bareLink, n.Ports())}
	type fork struct {
		out      []int // links away from the source
		back     int   // link toward it, -1 at the source
		children int
		acks     []int32
	}
	forks := make([]fork, n.Ports()) // by arriving link
	var grow func(link int)
	grow = func(link int) {
		at := int(n.Link(link).Node)
		in := int(n.Link(link).NodePort)
		f := &forks[link]
		f.back = n.PortID(at, in)
		if g.Nodes[at].Kind == topo.Host {
			return
		}
		grp := n.Switch(at).Groups()[0]
		for _, p := range grp.Paths {
			if p.Port != in {
				out := n.PortID(at, p.Port)
				f.out = append(f.out, out)
				grow(out)
			}
		}
		f.children = len(f.out)
		f.acks = make([]int32, packets)
	}
	first := n.PortID(0, 0)
	grow(first)
	toward := make([]int, n.Ports()) // acknowledgement link -> fork it ends at
	for l := range forks {
		for _, o := range forks[l].out {
			toward[forks[o].back] = l
		}
	}
	source := forks[first].back
	arrive := func(now int64, link int, what int64) {
		if what >= 0 { // data
			f := &forks[link]
			for _, o := range f.out {
				b.send(now, o, 4096+82, what)
			}
			if len(f.out) == 0 && ((what+1)%int64(ackEvery) == 0 || int(what) == packets-1) {
				b.send(now, f.back, 86, -1-what)
			}
			return
		}
		if link == source {
			return
		}
		f := &forks[toward[link]]
		if f.acks[-1-what]++; int(f.acks[-1-what]) == f.children {
			b.send(now, f.back, 86, what)
		}
	}
	for p := range packets {
		b.send(0, first, 4096+82, int64(p))
	}
	b.run(arrive)
	return b
}

// barePermutation moves packets over the paths the fabric's hash chooses, a window in
// flight per host, and acknowledgements back over the mirror paths.
func barePermutation(g *topo.Graph, packets int) *bare {
	links := 0
	first := make([]int, len(g.Nodes))
	for i := range g.Nodes {
		first[i] = links
		links += len(g.Nodes[i].Links)
	}
	b := &bare{links: make([]bareLink, links)}
	tables := g.Routes()
	half := g.Hosts / 2
	// path[h] are the links from host h to the host half the hosts away.
	path := make([][]int, g.Hosts)
	for h := range path {
		dst := (h + half) % g.Hosts
		at, port := h, 0
		for at != dst {
			path[h] = append(path[h], first[at]+port)
			at = g.Peer(at, port).Node
			if at == dst {
				break
			}
			t := &tables[at-g.Hosts]
			port = -1
			for _, a := range t.Attached {
				if a.IP == g.Nodes[dst].IP {
					port = a.Port
				}
			}
			if port < 0 {
				set := t.Sets[t.Set[g.Nodes[dst].IP>>8&0xffff]]
				port = int(set[(h*2654435761+at*40503)>>3%len(set)])
			}
		}
	}
	const window = 64
	sent := make([]int, g.Hosts)
	// what: flow, position on its path, acknowledgement
	code := func(flow, pos, ack int) int64 { return int64(flow)<<8 | int64(pos)<<1 | int64(ack) }
	arrive := func(now int64, _ int, what int64) {
		flow, pos, ack := int(what>>8), int(what>>1&0x7f), int(what&1)
		p := path[flow]
		if ack == 1 {
			p = path[(flow+half)%g.Hosts]
		}
		switch {
		case pos+1 < len(p):
			size := 1024 + 82
			if ack == 1 {
				size = 86
			}
			b.send(now, p[pos+1], size, code(flow, pos+1, ack))
		case ack == 0:
			b.send(now, path[(flow+half)%g.Hosts][0], 86, code(flow, 0, 1))
		case sent[flow] < packets:
			sent[flow]++
			b.send(now, path[flow][0], 1024+82, code(flow, 0, 0))
		}
	}
	for h := range path {
		for range min(window, packets) {
			sent[h]++
			b.send(0, path[h][0], 1024+82, code(h, 0, 0))
		}
	}
	b.run(arrive)
	return b
}

func reportBare(b *testing.B, hops uint64, before time.Duration) {
	b.ReportMetric(float64(hops)/(cpuTime()-before).Seconds()/1e6, "Mhops/cpu-s")
	b.ReportMetric(float64(hops)/b.Elapsed().Seconds()/1e6, "Mhops/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkBareBcastFT1024 is the yardstick of BenchmarkBcastFT1024.
func BenchmarkBareBcastFT1024(b *testing.B) {
	for _, ack := range []int{1, 16} {
		b.Run(map[int]string{1: "ack=1", 16: "ack=16"}[ack], func(b *testing.B) {
			n, err := bcastNet(ack)
			if err != nil {
				b.Fatal(err)
			}
			bareBcast(n, 4096, ack) // warm
			var hops uint64
			before := cpuTime()
			for b.Loop() {
				hops += bareBcast(n, 4096, ack).hops
			}
			reportBare(b, hops, before)
		})
	}
}

// BenchmarkBarePermutation is the yardstick of BenchmarkPermutation.
func BenchmarkBarePermutation(b *testing.B) {
	for _, k := range []int{8, 16} {
		b.Run(map[int]string{8: "k=8", 16: "k=16"}[k], func(b *testing.B) {
			g, err := topo.FatTree(k, benchLink)
			if err != nil {
				b.Fatal(err)
			}
			var hops uint64
			before := cpuTime()
			for b.Loop() {
				hops += barePermutation(g, 1024).hops
			}
			reportBare(b, hops, before)
		})
	}
}

// bcastNet registers the benchmark's group and leaves it installed.
func bcastNet(ackEvery int) (*sim.Net, error) {
	g, err := topo.ThreeLayer(topo.FT1024(), benchLink)
	if err != nil {
		return nil, err
	}
	n, err := newBenchNet(g, ackEvery, true)
	if err != nil {
		return nil, err
	}
	return n, n.Run(sim.Job{Name: "b", Hosts: hostsOf(1024, 2), Params: benchParams, Keep: true, Program: bcastProgram(4096, 0, phantom, func() {})})
}
