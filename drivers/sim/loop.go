// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// Classes of events at one instant, in their order (machine: arrivals, starts, timers). The ids of ports and nodes are their numbers (layout).
const (
	classArrival = iota // id: port
	classLate           // id: port; a frame that a fault delayed
	classStart          // id: port; an idle transmitter with a frame to send
	classTimer          // id: node
	classCall           // id: index in Net.timed
	classTask           // id: sleeping task, or the node of a host with sleeping tasks (channel)
	classRequest        // id: node that has sent the server of the out-of-band channel a request
	classReply          // id: node to which that server has sent a message
	classBits    = 3
)

// timed is a call that is due at an instant. The fault timeline makes such calls.
type timed struct {
	at    vtime.Time
	f     func(now vtime.Time)
	fault bool        // of the fault timeline, which may put it off
	keep  faults.Keep // of a call of the fault timeline
}

// observeEvery is the number of events between two calls of Net.Observe.
const observeEvery = 1 << 15

// step runs the next event and reports whether there was one.
func (n *Net) step() bool {
	k, ok := n.queue.pop()
	if !ok {
		if !n.skip() {
			return false
		}
		k, _ = n.queue.pop()
	}
	at, class, id := n.unpack(k)
	if at < n.now {
		panic(fmt.Sprintf("sim: event at %v after %v", at, n.now))
	}
	before := n.now
	n.now = at
	n.stats.Events++
	n.pastStarts = class > classStart
	if class == classArrival {
		n.arrive(id)
	} else {
		n.rarer(class, id, before)
	}
	if len(n.ready) > 0 {
		n.runTasks()
	}
	if n.links.Lists() {
		n.attend()
	}
	if n.check != nil {
		n.check.afterEvent()
	}
	return true
}

// rarer handles every class of event except arrivals, kept out of step so that its common path is short. before is the
// time of the previous event.
func (n *Net) rarer(class, id int, before vtime.Time) {
	switch class {
	case classLate:
		n.arriveLate(id)
	case classStart:
		n.startPort(id)
	case classTimer:
		n.fireTimer(id)
	case classTask:
		if n.channel != nil {
			n.wakeSleepers(n.at(id).host)
		} else {
			n.wakeSleeper(id)
		}
	case classCall:
		n.callTimed(id, before)
	case classRequest:
		n.happens()
		n.channel.arrived(id)
	case classReply:
		n.happens()
		n.channel.delivered(id)
	}
}

// arrive delivers the oldest frame of a link to the machine at its far end. It settles the
// source port first (machine: settle the sender).
func (n *Net) arrive(id int) {
	at := n.endOf(id)
	l := n.links.At(at)
	var f *wire.Frame
	if at >= n.own {
		f = n.take(at)
	} else {
		f = l.Land().Frame
		if l.Next() < n.now {
			p := &n.ports[at]
			src := &n.nodes[p.node]
			src.m.Settle(n.now-1, int(p.port))
			n.arm(src)
		}
		n.requeue(at, l)
	}
	n.happens()
	n.stats.Hops++
	switch f.Kind() {
	case wire.KindPFC:
	case wire.KindRoCE:
		if f.OpCode() == wire.OpAcknowledge {
			n.stats.AckHops++
		}
		fallthrough
	default:
		n.moves++
	}
	if n.observed {
		n.show(at, l, f)
	}
	if n.fault != nil && n.fault[at] != nil {
		n.arriveFaulty(at, f)
		return
	}
	if !n.cfg.NoDigest {
		n.account(l, f, false)
	}
	n.deliver(l, f)
}

// show passes a frame that has reached the end of a link to taps and watchers.
func (n *Net) show(at int, l *machine.Link, f *wire.Frame) {
	if n.watch != nil && at < n.own { // that of a node outside the part has seen it there, when the frame left (depart)
		n.watchSent(at, l, n.now, f)
	}
	if n.out != nil {
		n.showTaps(at, l, f)
	}
}

// watchSent shows a frame that lands at an instant to the watcher of the node of the part that has sent it.
func (n *Net) watchSent(at int, l *machine.Link, landed vtime.Time, f *wire.Frame) {
	p := &n.ports[at]
	if w := n.watch[p.node]; w != nil {
		start, d := l.Began(landed, f)
		w.Sent(int(p.port), start, d, landed, f)
	}
}

func (n *Net) showTaps(at int, l *machine.Link, f *wire.Frame) {
	landed := n.now.Add(-n.cfg.Latency(int(l.Node)))
	if t := n.in[at]; t != nil {
		t(landed, f)
	}
	if t := n.out[at]; t != nil {
		t(n.now.Add(-l.Delay), f)
	}
}

func (n *Net) arriveFaulty(at int, f *wire.Frame) {
	a := faults.Arrival{Port: at, Frame: f, Pool: n.pool}
	if n.linkStats != nil {
		a.Count = &n.linkStats[at]
	}
	if !faults.Apply(n.fault[at].Arrive(n.now, f), a, linkEnd{n}) {
		n.stats.Lost++
	}
}

// linkEnd takes the frames on which faults have decided (faults.Sink). A port is identified by
// the place of its link.
type linkEnd struct{ n *Net }

// Decided implements faults.Sink.
func (e linkEnd) Decided(at int, f *wire.Frame, v faults.Verdict) {
	n, l := e.n, e.n.links.At(at)
	n.account(l, f, v.Drop)
	if n.check != nil {
		n.check.decided(l, f, v)
	}
	if v.Drop && n.watch != nil {
		if w := n.watch[n.placeOf(int(l.Node))]; w != nil {
			w.Lost(n.now, int(l.NodePort), f)
		}
	}
}

// Deliver implements faults.Sink.
func (e linkEnd) Deliver(at int, f *wire.Frame) { e.n.deliver(e.n.links.At(at), f) }

// Hold implements faults.Sink.
func (e linkEnd) Hold(at int, f *wire.Frame, d vtime.Duration) { e.n.delay(at, f, d) }

// delay keeps a frame that a fault delivers later by d.
func (n *Net) delay(place int, f *wire.Frame, d vtime.Duration) {
	at := n.now.Add(max(d, vtime.Picosecond))
	if f.Kind() == wire.KindPFC {
		n.pauseLate = max(n.pauseLate, d)
		n.latePauses++
	}
	if n.check != nil && n.outlasts(f, d) {
		n.orphans++
	}
	if n.late == nil {
		n.late = make([]agenda[*wire.Frame], n.links.Len())
	}
	n.late[place].push(at, f)
	n.lates++
	n.schedule(at, classLate, int(n.ports[place].id))
}

func (n *Net) arriveLate(id int) {
	n.lates--
	n.happens()
	at := n.endOf(id)
	f := n.late[at].pop()
	if f.Kind() == wire.KindPFC {
		n.latePauses--
	} else {
		n.moves++
	}
	n.deliver(n.links.At(at), f)
}

// deliver passes a frame to the machine at the end of a link.
func (n *Net) deliver(l *machine.Link, f *wire.Frame) {
	dst := n.at(int(l.Node))
	if n.check != nil {
		n.check.beforeFrame(l, f)
	}
	if sw := dst.sw; sw != nil { // most are for switches, and to call one by its type is faster
		sw.HandleFrame(n.now, int(l.NodePort), f)
		if at, ok := sw.NextTimeout(); ok {
			n.armAt(dst, at)
		}
		return
	}
	if n.cfg.Front == nil && f.Kind() == wire.KindRoCE {
		// It changes nothing in the registration agent, whose deadline is armed already.
		dst.nic.HandleFrame(n.now, int(l.NodePort), f)
		if at, ok := dst.nic.NextOwnTimeout(); ok {
			n.armAt(dst, at)
		}
	} else {
		dst.m.HandleFrame(n.now, int(l.NodePort), f)
		n.arm(dst)
	}
	dst.host.look()
}

// requeue schedules the event that a port needs next, if any: the arrival of the oldest frame on
// its link, or the start of its next frame.
func (n *Net) requeue(place int, l *machine.Link) {
	if n.inbound != nil && n.ports[place].leaves {
		n.depart(place, l)
	}
	if at, wake, needed := l.Attend(); needed {
		class := classArrival
		if wake {
			class = classStart
		}
		n.schedule(at, class, int(n.ports[place].id))
	}
}

// attend schedules the events of the ports that the last call into a machine has listed.
func (n *Net) attend() {
	for _, place := range n.links.Listed() {
		n.requeue(int(place), n.links.At(int(place)))
	}
}

// startPort settles a transmitter whose link is empty and whose next frame may start.
func (n *Net) startPort(id int) {
	at := n.startOf(id)
	l := n.links.At(at)
	n.stats.Wakes++
	if !l.Woken(n.now) {
		return
	}
	if l.Next() <= n.now {
		n.settle(&n.nodes[n.ports[at].node], int(n.ports[at].port))
	}
	n.requeue(at, l)
}

// settle lets a port start the frames that may have started by now.
func (n *Net) settle(nd *node, port int) {
	nd.m.Settle(n.now, port)
	n.arm(nd)
	if nd.host != nil && nd.host.news() && nd.armed != n.now {
		nd.armed = n.now // unreliable requests complete when they start
		n.schedule(n.now, classTimer, int(nd.id))
	}
}

// arm schedules a timer event at the node's next deadline unless one is pending by then.
func (n *Net) arm(nd *node) {
	if at, ok := nd.m.NextTimeout(); ok {
		n.armAt(nd, at)
	}
}

func (n *Net) armAt(nd *node, at vtime.Time) {
	if at < nd.armed {
		nd.armed = max(at, n.now)
		n.schedule(nd.armed, classTimer, int(nd.id))
	}
}

func (n *Net) fireTimer(id int) {
	nd := n.at(id)
	if nd.armed != n.now {
		return // an earlier timer event has replaced this one
	}
	n.stats.Timers++
	nd.armed = vtime.Never
	if at, ok := nd.m.NextTimeout(); ok && at <= n.now {
		n.happens()
		nd.m.HandleTimeout(n.now)
	}
	if nd.host != nil {
		nd.host.look()
	}
	n.arm(nd)
}

// At arranges for f to be called at an instant of lab time, or now if that instant has passed.
// Calls for which there is no free id share the last one.
func (n *Net) At(at vtime.Time, f func(now vtime.Time)) { n.callAt(timed{at: at, f: f}) }

func (n *Net) callAt(call timed) {
	call.at = max(call.at, n.now)
	id, shared := len(n.timed), 1<<n.idBits-1
	if k := len(n.freeTimed); k > 0 {
		id = n.freeTimed[k-1]
		n.freeTimed = n.freeTimed[:k-1]
		n.timed[id] = call
	} else if id < shared {
		n.timed = append(n.timed, call)
	} else {
		id = shared
		n.overflow.push(call.at, call)
	}
	n.schedule(call.at, classCall, id)
}

// callTimed makes a call that is due. before is the instant of the event before it.
func (n *Net) callTimed(id int, before vtime.Time) {
	var call timed
	if id == len(n.timed) {
		call = n.overflow.pop()
	} else {
		call = n.timed[id]
		n.timed[id] = timed{}
		n.freeTimed = append(n.freeTimed, id)
	}
	if call.fault {
		n.makeCall(call, before)
		return
	}
	call.f(n.now)
	n.settled()
}

// settled schedules the events of every node and port after a call that may have reached any of
// them.
func (n *Net) settled() {
	for i := range n.nodes {
		n.arm(&n.nodes[i])
	}
	n.attend()
}

// Pause makes a host send a PFC frame, as a NIC with a full receive buffer does. classes is the
// bit mask of the paused priorities; quanta is the time to pause in units of 512 bit times, or 0
// to resume.
func (n *Net) Pause(node int, classes uint8, quanta uint16) {
	nd := n.at(node)
	nd.nic.Settle(n.now, 0)
	nd.nic.SendPause(n.now, classes, quanta)
	n.arm(nd)
	n.attend()
}

// Drain runs the loop until no event is left, or only events of faults are left, which could recur for
// ever (package window). It returns the error that ended the run early: of an invariant, of Observe, or
// rankhost.ErrEnd.
func (n *Net) Drain() error {
	n.resume()
	plain := n.reference == nil
	for n.err == nil && !n.stuck && (plain && n.step() || !plain && n.reference()) {
		if n.stats.Events%observeEvery == 0 {
			n.observe()
		}
		if n.skips != nil && n.stats.Events >= n.skips.after {
			n.skips.try()
		}
	}
	n.passLog(vtime.Never)
	if !n.stuck && n.queue.n == 0 && n.far.len() == 0 {
		if n.channel == nil && len(n.postponed) == 0 {
			n.last = n.now
		}
		n.rest()
	}
	return n.err
}

// observe calls Observe, whose error ends the run.
func (n *Net) observe() {
	if n.Observe != nil && n.err == nil {
		n.err = n.Observe()
	}
}

// stalled reports whether a fault has stalled a NIC and has not ended.
func (n *Net) stalled() bool {
	return slices.ContainsFunc(n.nodes, func(nd node) bool { return nd.nic != nil && nd.nic.Stalled() })
}

// Leftover returns an error if frames or payloads are still in use after the run, and nil if all
// are back in the pool. It returns nil too while a NIC is stalled or a port is paused without
// end, because frames then wait legitimately.
func (n *Net) Leftover() error {
	if n.stalled() || n.stuck {
		return nil
	}
	if n.pool.Live != 0 || n.pool.LiveBlocks != 0 {
		return fmt.Errorf("%d frames and %d payloads were neither delivered nor dropped", n.pool.Live, n.pool.LiveBlocks)
	}
	return nil
}
