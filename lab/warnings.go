// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Warnings returns a line for each choice that is valid and probably a mistake.
func (l *Lab) Warnings() (all []string) {
	all = append(l.unused(), l.headroom()...)
	custom, marked := l.Topology.Custom != nil, l.Switches.ECN.Enabled && l.Switches.PFC.Alpha == 0
	if !l.Switches.PFC.Enabled || !custom && !marked {
		return all
	}
	g, err := l.graph()
	if err != nil {
		return append(all, err.Error())
	}
	if custom { // the other topologies have been proved free of it
		if err := g.CheckDeadlock(g.Routes()); err != nil {
			all = append(all, err.Error()+". In a custom topology a multicast tree may take any port: use fat-tree, leaf-spine or three-layer, "+
				"whose trees go up and down once, remove a link of the ring, or set switches.watchdog, which breaks it")
		}
	}
	if !marked {
		return all
	}
	spec := l.fabric(g)
	for i := g.Hosts; i < len(g.Nodes); i++ {
		xoff, kmin := spec.XOFF(i), spec.Kmin(i)
		if xoff < kmin {
			return append(all, fmt.Sprintf("switches.pfc: %s asks its neighbours to pause at %d bytes from a port, and switches.ecn marks no packet below %d: "+
				"pauses come before congestion control; use a larger buffer, alpha, a larger xoff or a smaller kmin", g.Nodes[i].Name, xoff, kmin))
		}
	}
	return all
}

// headroom warns if switches.pfc.headroom is less than the lab's own links need.
func (l *Lab) headroom() (all []string) {
	own := l.Switches.PFC.Headroom
	if own == nil || !l.Switches.PFC.Enabled || l.Switches.FlowControl == "credits" {
		return nil
	}
	g, err := l.graph()
	if err != nil {
		return nil // Warnings reports it
	}
	spec := l.fabric(g)
	most, at := 0, 0
	for i := g.Hosts; i < len(g.Nodes); i++ {
		if need := spec.HeadroomNeeded(i); need > most {
			most, at = need, i
		}
	}
	if int(*own) >= most {
		return nil
	}
	return []string{fmt.Sprintf("switches.pfc.headroom of %v is less than the %d bytes that still arrive at a port of %s after it has asked for a pause: "+
		"lossless packets are dropped; use more, or leave it out", *own, most, g.Nodes[at].Name)}
}

// Cautions returns a line for each choice that is a mistake with some workloads only.
func (l *Lab) Cautions() (all []string) { return append(l.lateFeedback(), l.slowDrain()...) }

// lateFeedback warns of a processor of feedback that takes longer for a packet than senders wait for it.
func (l *Lab) lateFeedback() (all []string) {
	key, wait := "nics.timeout", l.NICs.Timeout.Duration()
	if r := l.NICs.selective(); r != nil && wait > r.RTOLow {
		key, wait = "nics.irn.rto-low", r.RTOLow
	}
	delay := vtime.Duration(l.Switches.FeedbackDelay)
	if wait == 0 || delay < wait {
		return nil
	}
	return []string{fmt.Sprintf("switches.feedback-delay of %v is not shorter than %s of %v: sources of groups repeat what was not lost, and each repeat "+
		"makes more feedback; use a longer timeout or a shorter delay", l.Switches.FeedbackDelay, key, wait)}
}

// slowDrain warns of a buffer that outlasts the timeout: the workloads of an incast fill it, and the last packets wait for as long
// as it drains.
func (l *Lab) slowDrain() (all []string) {
	timeout := l.NICs.Timeout.Duration()
	if timeout == 0 || !l.Switches.PFC.Enabled || l.Switches.FlowControl == "credits" {
		return nil
	}
	g, err := l.graph()
	if err != nil {
		return nil // Warnings reports it
	}
	var slow *topo.Link // to a host, whose port an incast fills the buffer behind
	for i := range g.Links {
		if k := &g.Links[i]; (k.A.Node < g.Hosts) != (k.B.Node < g.Hosts) && (slow == nil || k.Rate < slow.Rate) {
			slow = k
		}
	}
	if slow == nil {
		return all
	}
	drain := vtime.Duration(float64(l.Switches.Buffer) * 8 / float64(slow.Rate) * float64(vtime.Second))
	if drain > timeout {
		host := min(slow.A.Node, slow.B.Node)
		all = append(all, fmt.Sprintf("nics.timeout of %v is shorter than the %v that a full switches.buffer of %v takes to drain to %s, at %v: "+
			"an incast that fills it makes senders repeat what was not lost; use a longer timeout or a smaller buffer",
			l.NICs.Timeout, drain/vtime.Microsecond*vtime.Microsecond, l.Switches.Buffer, g.Nodes[host].Name, Rate(slow.Rate)))
	}
	return all
}

// unused warns of settings of features that are off.
func (l *Lab) unused() (all []string) {
	for _, x := range []struct {
		name    string
		enabled bool
		own     any
	}{{"ecn", l.Switches.ECN.Enabled, l.Switches.ECN}, {"watchdog", l.Switches.Watchdog.Enabled, l.Switches.Watchdog}} {
		if usual := defaultsOf(reflect.TypeOf(x.own)).Interface(); !x.enabled && !reflect.DeepEqual(x.own, usual) {
			all = append(all, fmt.Sprintf("switches.%s has settings and is off: add enabled: true, or leave them out", x.name))
		}
	}
	return all
}
