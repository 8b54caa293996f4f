package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// settle makes links and nodes what the faults that are on now say, after one of them came
// or went. Where several concern the same thing the strictest counts.
func (t *Timeline) settle(now vtime.Time, e *entry) {
	switch e.Kind {
	case KindLinkDown:
		t.carry(now, e.Links)
	case KindCrash, KindAgentCrash:
		var links []int
		for _, n := range e.Nodes {
			links = append(links, t.c.Graph.Nodes[n].Links...)
		}
		t.carry(now, links)
	case KindRateCut:
		for _, l := range e.Links {
			t.setRate(now, l)
		}
	case KindControlPartition, KindControllerCrash:
		t.setControl(now)
	}
	for _, n := range e.Nodes {
		switch {
		case e.Kind == KindRoom && t.ownsSwitch(n):
			room := -1
			t.each(KindRoom, n, func(o *entry) {
				if room < 0 || o.Room < room {
					room = o.Room
				}
			})
			t.t.Switches.LimitGroups(now, n, room)
		case e.Kind == KindStall && t.ownsHost(n):
			on := false
			t.each(KindStall, n, func(*entry) { on = true })
			t.t.Hosts.Stall(now, n, on)
		case e.Kind == KindSlowReceiver && t.ownsHost(n):
			rate := int64(0)
			t.each(KindSlowReceiver, n, func(o *entry) {
				if rate == 0 || o.Rate < rate {
					rate = o.Rate
				}
			})
			t.t.Hosts.SetIntake(now, n, rate)
		}
	}
}

// each visits the faults of a kind that a node has now.
func (t *Timeline) each(k Kind, node int, visit func(*entry)) {
	for _, e := range t.all {
		if e.Kind == k && e.on > 0 && slices.Contains(e.Nodes, node) {
			visit(e)
		}
	}
}

// setControl makes the control plane what the faults that are on now say.
func (t *Timeline) setControl(now vtime.Time) {
	if t.t.Control == nil {
		return
	}
	var crashed []string
	var cut []Way
	for _, e := range t.all {
		switch {
		case e.on == 0:
		case e.Kind == KindControllerCrash:
			crashed = append(crashed, e.Controllers...)
		case e.Kind == KindControlPartition:
			cut = append(cut, e.Cut...)
		}
	}
	t.t.Control.SetControl(now, crashed, cut)
}

// setRate gives a link the lowest rate that a fault says, or its own.
func (t *Timeline) setRate(now vtime.Time, link int) {
	l := &t.c.Graph.Links[link]
	rate := l.Rate
	for _, e := range t.all {
		if e.Kind == KindRateCut && e.on > 0 && slices.Contains(e.Links, link) {
			rate = min(rate, e.Rate)
		}
	}
	for _, at := range [2]topo.End{l.A, l.B} {
		if t.owns(at.Node) {
			t.t.Links.SetRate(now, at, rate)
		}
	}
}

// carry takes links down or up. The nodes at a link know at once, all switches once the
// routing has converged.
func (t *Timeline) carry(now vtime.Time, links []int) {
	g, changed := t.c.Graph, false
	for _, link := range links {
		l := &g.Links[link]
		blame := t.blame(link)
		i, was := slices.BinarySearch(t.down, link)
		switch {
		case len(blame) > 0 && !was:
			t.down = slices.Insert(t.down, i, link)
		case len(blame) == 0 && was:
			t.down = slices.Delete(t.down, i, i+1)
		}
		for _, from := range [2]topo.End{l.A, l.B} {
			t.carrierOf(from).set(now, blame)
		}
		if was == (len(blame) > 0) {
			continue
		}
		changed = true
		for _, at := range [2]topo.End{l.A, l.B} {
			if t.owns(at.Node) {
				t.t.Links.SetCarrier(now, at, was)
			}
		}
	}
	if !changed {
		return
	}
	t.reroute(&routes{at: now.Add(t.c.Reconverge), down: slices.Clone(t.down)})
}

// routesMax is how many changes of routes may be on their way at a time. Links that flap
// faster than that make the last of them take their newest state along, and later.
const routesMax = 1024

// routes are those without the links that are down, which switches have from an instant on.
type routes struct {
	at   vtime.Time
	down []int
}

// reroute has switches get new routes at their time.
func (t *Timeline) reroute(r *routes) {
	if k := len(t.coming); k > 0 && (t.coming[k-1].at == r.at || k == routesMax) {
		*t.coming[k-1] = *r // a link that changed at this instant, too, or one too many
		return
	}
	t.coming = append(t.coming, r)
	t.awaitRoutes(r)
}

func (t *Timeline) awaitRoutes(r *routes) {
	t.await(&pending{act: actRoutes, r: r, at: r.at, keep: KeepAlways})
}

// install gives switches the routes that are due, or were before they were put off.
func (t *Timeline) install(now vtime.Time, r *routes) {
	if now < r.at {
		t.awaitRoutes(r)
		return
	}
	t.coming = slices.DeleteFunc(t.coming, func(o *routes) bool { return o == r })
	if t.t.Switches != nil {
		t.t.Switches.SetRoutes(now, r.down)
	}
}

// blame returns the faults that keep a link down.
func (t *Timeline) blame(link int) (all []*entry) {
	l := &t.c.Graph.Links[link]
	for _, e := range t.all {
		if e.on > 0 && (e.Kind == KindLinkDown && slices.Contains(e.Links, link) ||
			e.Kind.Kills() && (slices.Contains(e.Nodes, l.A.Node) || slices.Contains(e.Nodes, l.B.Node))) {
			all = append(all, e)
		}
	}
	return all
}

// carrierOf returns what the physical layer of a direction is, made when it is first
// needed.
func (t *Timeline) carrierOf(from topo.End) *carrier {
	c := t.carriers[from]
	if c == nil {
		g := t.c.Graph
		to := g.Peer(from.Node, from.Port)
		c = &carrier{delay: g.Links[g.Nodes[from.Node].Links[from.Port]].Delay}
		if t.c.Latency != nil {
			c.pipe = t.c.Latency(to.Node)
		}
		t.carriers[from] = c
		t.rewire(from)
	}
	return c
}
