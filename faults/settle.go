// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// settle applies the present faults to the links and nodes of a fault that has begun or ended.
// Where several faults affect the same setting, the strictest one counts.
func (t *Timeline) settle(now vtime.Time, e *entry) {
	switch e.Kind {
	case KindLinkDown:
		t.setLinks(now, e.Links)
	case KindCrash, KindAgentCrash:
		var links []int
		for _, n := range e.Nodes {
			links = append(links, t.c.Graph.Nodes[n].Links...)
		}
		t.setLinks(now, links)
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

// each visits the faults of a kind that affect a node now.
func (t *Timeline) each(k Kind, node int, visit func(*entry)) {
	for _, e := range t.all {
		if e.Kind == k && e.on > 0 && slices.Contains(e.Nodes, node) {
			visit(e)
		}
	}
}

// setControl applies the present faults to the control plane.
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

// setRate gives a link the lowest rate of the present faults, or its own rate.
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

// setLinks takes links down or up. The nodes at the two ends react at once, all switches once the
// routing has converged.
func (t *Timeline) setLinks(now vtime.Time, links []int) {
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

// routesMax is the largest number of changes of routes that may be pending. If links flap faster,
// the last pending change takes the newest state and its later instant.
const routesMax = 1024

// routes is a change of routes: from the instant at, switches avoid the links that are down.
type routes struct {
	at   vtime.Time
	down []int
}

// reroute arranges for switches to receive new routes when they are due.
func (t *Timeline) reroute(r *routes) {
	if k := len(t.coming); k > 0 && (t.coming[k-1].at == r.at || k == routesMax) {
		*t.coming[k-1] = *r // due at the same instant, or above the limit
		return
	}
	t.coming = append(t.coming, r)
	t.awaitRoutes(r)
}

func (t *Timeline) awaitRoutes(r *routes) {
	t.await(&pending{act: actRoutes, r: r, at: r.at, keep: KeepAlways})
}

// install gives switches new routes. It waits again if reroute has put the routes off meanwhile.
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

// carrierOf returns the physical layer of a direction of a link. It is made on first use.
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
