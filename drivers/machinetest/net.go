// SPDX-License-Identifier: Apache-2.0

// Package machinetest runs machines against each other the plain way: a driver that
// wakes every port at every instant it could start a frame, looks for the next event
// by scanning, and so needs none of the settling rules. It is the reference the
// event-driven simulator is compared with, and the bench for tests of single cores.
package machinetest

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// Link is one cable: port PA of machine A and port PB of machine B.
type Link struct {
	A, PA, B, PB int
	BitsPerSec   int64
	Delay        vtime.Duration
}

// Net is a set of machines, their ports and the time.
type Net struct {
	Pool  *wire.Pool
	Links machine.Links
	Now   vtime.Time

	// Fate, if set, decides on every arriving frame; port is the sending port's number.
	Fate func(now vtime.Time, port int, f *wire.Frame) faults.Verdict
	// Order, if set, ranks events of one class at one instant; lower goes first.
	Order func(now vtime.Time, id int) uint64
	// Log, if set, receives a line per arriving frame; with Headers, one more with its bytes
	// up to the payload.
	Log     *strings.Builder
	Headers bool
	// After, if set, is called after every event.
	After func()

	machines []machine.Machine
	first    []int // first port of each machine
	source   []int // by port: the machine that sends
	late     []lateFrame
	calls    []call
	names    []string
}

type lateFrame struct {
	at   vtime.Time
	port int
	f    *wire.Frame
}

type call struct {
	at vtime.Time
	f  func(now vtime.Time)
}

// New makes the ports of a net whose machine i has ports[i] ports. Machines are
// added with Set, since they need their ports to be made.
func New(ports []int, links []Link) *Net {
	n := &Net{Pool: &wire.Pool{Poison: true}, machines: make([]machine.Machine, len(ports))}
	total := 0
	for i, k := range ports {
		n.first = append(n.first, total)
		for range k {
			n.source = append(n.source, i)
		}
		total += k
		n.names = append(n.names, string(rune('A'+i)))
	}
	configs := make([]machine.PortConfig, total)
	for i := range configs {
		configs[i].BitsPerSec = 1e9 // of ports without a link
	}
	for _, l := range links {
		c := machine.PortConfig{BitsPerSec: l.BitsPerSec, Delay: l.Delay}
		configs[n.first[l.A]+l.PA], configs[n.first[l.B]+l.PB] = c, c
	}
	n.Links = machine.NewLinks(configs)
	for _, l := range links {
		a, b := n.Links.At(n.first[l.A]+l.PA), n.Links.At(n.first[l.B]+l.PB)
		a.Node, a.NodePort = int32(l.B), int32(l.PB)
		b.Node, b.NodePort = int32(l.A), int32(l.PA)
	}
	return n
}

// PortsOf returns the ports of machine i.
func (n *Net) PortsOf(i int) []machine.Port {
	end := n.Links.Len()
	if i+1 < len(n.first) {
		end = n.first[i+1]
	}
	return n.Links.Ports(n.first[i], end)
}

// Set installs machine i under a name for the log.
func (n *Net) Set(i int, name string, m machine.Machine) {
	n.machines[i], n.names[i] = m, name
}

// At arranges for f to be called at the given instant, after everything else then.
func (n *Net) At(at vtime.Time, f func(now vtime.Time)) { n.calls = append(n.calls, call{at, f}) }

// classes of events at one instant, in order.
const (
	classArrival = iota
	classLate
	classStart
	classTimer
	classCall
	classNone
)

// Step runs the next event and reports whether there was one.
func (n *Net) Step() bool {
	best := candidate{at: vtime.Never, class: classNone}
	consider := func(at vtime.Time, class, id int) {
		c := candidate{at, class, uint64(id), id}
		if n.Order != nil && class != classCall {
			c.rank = n.Order(max(at, n.Now), id)
		}
		if c.before(best) {
			best = c
		}
	}
	for id := range n.Links.Len() {
		l := n.Links.At(id)
		if l.InFlight() > 0 {
			consider(l.Flying(0).At, classArrival, id)
		}
		if l.Next() != vtime.Never {
			consider(l.Next(), classStart, id)
		}
	}
	for i, l := range n.late {
		consider(l.at, classLate, i)
	}
	for i, m := range n.machines {
		if at, armed := m.NextTimeout(); armed {
			consider(max(at, n.Now), classTimer, i)
		}
	}
	for i, c := range n.calls {
		consider(c.at, classCall, i)
	}
	if best.class == classNone {
		return false
	}
	if best.at < n.Now {
		panic(fmt.Sprintf("machinetest: event at %v after %v", best.at, n.Now))
	}
	n.Now = best.at
	n.run(best)
	n.Links.Listed()
	if n.After != nil {
		n.After()
	}
	return true
}

type candidate struct {
	at    vtime.Time
	class int
	rank  uint64
	id    int
}

func (a candidate) before(b candidate) bool {
	if a.at != b.at {
		return a.at < b.at
	}
	if a.class != b.class {
		return a.class < b.class
	}
	return a.rank < b.rank
}

func (n *Net) run(c candidate) {
	switch c.class {
	case classArrival:
		n.arrive(c.id, n.Links.At(c.id).Land().Frame)
	case classLate:
		l := n.late[c.id]
		n.late = append(n.late[:c.id], n.late[c.id+1:]...)
		n.deliver(l.port, l.f)
	case classStart:
		m := n.source[c.id]
		n.machines[m].Settle(n.Now, c.id-n.first[m])
		if l := n.Links.At(c.id); l.Next() <= n.Now {
			panic(fmt.Sprintf("machinetest: port %d says it starts at %v but does not", c.id, l.Next()))
		}
	case classTimer:
		n.machines[c.id].HandleTimeout(n.Now)
	case classCall:
		f := n.calls[c.id].f
		n.calls = append(n.calls[:c.id], n.calls[c.id+1:]...)
		f(n.Now)
	}
}

func (n *Net) arrive(id int, f *wire.Frame) {
	var v faults.Verdict
	if n.Fate != nil {
		v = n.Fate(n.Now, id, f)
	}
	faults.Apply(v, faults.Arrival{Port: id, Frame: f, Pool: n.Pool}, linkEnd{n})
}

// linkEnd is the end of all links (faults.Sink).
type linkEnd struct{ n *Net }

// Decided implements faults.Sink.
func (e linkEnd) Decided(id int, f *wire.Frame, v faults.Verdict) {
	e.n.Links.At(id).Account(e.n.Now, f, v.Drop)
	e.n.logf(id, f, v)
}

// Deliver implements faults.Sink.
func (e linkEnd) Deliver(id int, f *wire.Frame) { e.n.deliver(id, f) }

// Hold implements faults.Sink.
func (e linkEnd) Hold(id int, f *wire.Frame, d vtime.Duration) {
	e.n.late = append(e.n.late, lateFrame{e.n.Now.Add(d), id, f})
}

func (n *Net) deliver(id int, f *wire.Frame) {
	l := n.Links.At(id)
	n.machines[l.Node].HandleFrame(n.Now, int(l.NodePort), f)
}

func (n *Net) logf(id int, f *wire.Frame, v faults.Verdict) {
	if n.Log == nil {
		return
	}
	l := n.Links.At(id)
	note := ""
	switch {
	case v.Drop:
		note = "  LOST"
	case v.Twice:
		note = "  TWICE"
	case v.Delay > 0:
		note = "  LATE " + v.Delay.String()
	}
	fmt.Fprintf(n.Log, "%-12v %s>%s  %v%s\n", n.Now, n.names[n.source[id]], n.names[l.Node], f, note)
	if n.Headers {
		n.Logf("%x", f.Header())
	}
}

// Logf adds a line to the log.
func (n *Net) Logf(format string, args ...any) {
	if n.Log != nil {
		fmt.Fprintf(n.Log, format+"\n", args...)
	}
}

// Run steps until nothing is left to do, but takes no more steps than maxSteps. It returns an
// error if that is not enough. To run until an instant, give At an empty function for it.
func (n *Net) Run(maxSteps int) error {
	for range maxSteps {
		if !n.Step() {
			return nil
		}
	}
	return fmt.Errorf("machinetest: not at rest after %d events, at %v", maxSteps, n.Now)
}

// Digest combines the digests of all links.
func (n *Net) Digest() uint64 {
	var d uint64
	for i := range n.Links.Len() {
		d = wire.MixWord(d, n.Links.At(i).Digest)
	}
	return d
}
