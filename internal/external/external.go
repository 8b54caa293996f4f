// SPDX-License-Identifier: Apache-2.0

// Package external joins an external device, an unmodified RoCE peer on a real interface, to a lab. An
// adapter stands between the device and its leaf switch. For the device it takes the part of a host
// that the device cannot take: it confirms registrations and obeys pauses. For the fabric it takes the
// part of a network that the device expects: it answers ARP and neighbor discovery, and addresses
// frames to the device's MAC.
//
// Groups of multicast that the device joins are those of the fabric's programs (joins.go).
//
// An Adapter is a machine.Machine with two ports, Lab toward the leaf switch and Outside
// toward the device. It passes frames on unchanged except for MAC addresses and, in a lab with
// a VLAN, the tag, which the device does not see.
package external

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Ports of an adapter.
const (
	Lab     = 0
	Outside = 1
)

// Config describes an adapter.
type Config struct {
	IP    uint32         // the device's address in the lab
	Ports []machine.Port // Lab, Outside
	Pool  *wire.Pool
	IPv6  bool
	// Groups is the network of the fabric's McstIDs.
	Groups wire.GroupRange
	VLAN   uint16 // VLAN of the lab's packets; 0: untagged
	// Window is the number of frames from the device that may wait for the lab's link. A device sends
	// at the speed of its wire; with a dilation above 1 the lab's link is slower.
	Window  int
	Classes *[64]uint8 // priorities by DSCP; nil: the upper three bits
	// Known reports whether an address belongs to the fabric; the adapter answers ARP and
	// neighbor discovery for those.
	Known func(ip uint32) bool
	Trace machine.Tracer
}

// DropReason is the reason why an adapter dropped a frame.
type DropReason uint8

// Reasons, in the order of Stats.Drops. Names appear in outputs and are not changed.
const (
	DropOverrun    DropReason = iota // the window was full
	DropSource                       // from outside, but not from the device's address
	DropForeign                      // from outside, and of an unknown kind
	DropUnresolved                   // for a device that does not answer ARP
	DropNotGiven                     // acknowledgement of packets that the device was not sent: its PSNs are not those of the lab
	DropMalformed                    // report of groups that is damaged
	DropJoinsFull                    // report of more groups than JoinsMax
	DropNotJoined                    // to the device, for a multicast group that it has not joined

	dropReasons
)

var dropNames = [dropReasons]string{"overrun", "wrong-source", "foreign", "unresolved", "not-given", "malformed", "memberships-full", "not-joined"}

// String returns the reason's name.
func (r DropReason) String() string { return dropNames[r] }

// DropReasons lists all reasons in order.
func DropReasons() []DropReason {
	return []DropReason{DropOverrun, DropSource, DropForeign, DropUnresolved, DropNotGiven, DropMalformed, DropJoinsFull, DropNotJoined}
}

// Stats counts the work of an adapter.
type Stats struct {
	In       uint64 // RoCE packets from the device
	Out      uint64 // RoCE packets to it
	Answered uint64 // ARP requests and neighbor solicitations
	Ignored  uint64 // questions that do not concern the fabric
	Asked    uint64 // questions for the device's MAC
	Told     uint64 // answers of the device
	Repeats  uint64 // request packets that the device has sent again
	Reports  uint64 // of groups that the device has joined or left
	Queries  uint64 // for them, passed on to the device
	Drops    [dropReasons]uint64
}

// Adapter is the core.
type Adapter struct {
	c     Config
	nic   *virtrnic.NIC // the lab's side: queues, priorities, pauses
	agent *mrp.Agent
	out   outside
	mac   wire.MAC // of the device; zero until it is known
	known bool
	held  []*wire.Frame // frames for the device, until its MAC is known
	askAt vtime.Time    // when the device is asked again
	asker uint32        // host in whose name it is asked
	stats Stats
	seen  Seen
	joins joins
}

// RepeatsMax is the number of times that a request for a group is repeated in a lab with external devices, every 10 ms. These are of real time there,
// in which a busy machine may stand still for longer than the 60 ms after which a registrar gives up elsewhere.
const RepeatsMax = 100

// askAgain is the time between two questions for the device's MAC.
const askAgain = 250 * vtime.Millisecond

// New returns an adapter.
func New(c Config) *Adapter {
	a := &Adapter{c: c, mac: wire.HostMAC(c.IP), askAt: vtime.Never, out: outside{port: &c.Ports[Outside]}}
	a.nic = virtrnic.New(virtrnic.Config{
		IP: c.IP, Port: &c.Ports[Lab], Pool: c.Pool, IPv6: c.IPv6, Groups: c.Groups, VLAN: c.VLAN,
		Classes: c.Classes, Raw: true, Trace: c.Trace,
	})
	a.agent = mrp.New(mrp.Config{IP: c.IP, IPv6: c.IPv6, Groups: c.Groups, Pool: c.Pool, Sender: a.nic, RetriesMax: RepeatsMax})
	a.nic.SetStack((*stack)(a))
	return a
}

// Answer sets the queue pair of the device that takes part in groups: the adapter confirms
// registrations that list it.
func (a *Adapter) Answer(qpn wire.QPN) { a.agent.Answer(qpn) }

// NIC returns the adapter's side toward the lab.
func (a *Adapter) NIC() *virtrnic.NIC { return a.nic }

// Stats returns the counters.
func (a *Adapter) Stats() *Stats { return &a.stats }

// MAC returns the device's MAC address, or zero while it is not known.
func (a *Adapter) MAC() wire.MAC { return a.mac }

// Queued returns the frames waiting in the adapter.
func (a *Adapter) Queued() int { return a.nic.Queued() + len(a.out.wait) + len(a.held) }

// HandleFrame implements machine.Machine.
func (a *Adapter) HandleFrame(now vtime.Time, port int, f *wire.Frame) {
	if port == Lab {
		a.nic.HandleFrame(now, 0, f)
		return
	}
	mac, told := f.Tells(a.c.IP)
	if told {
		a.learn(now, mac)
	}
	if q, ok := f.Asks(); ok {
		a.question(q)
		a.answer(now, q, f)
		return
	}
	switch {
	case told:
		a.stats.Told++
		a.c.Pool.Put(f)
	case f.VLANID() != 0:
		a.drop(now, f, DropForeign)
	case f.IsMembership():
		a.report(now, f)
	default:
		a.packet(now, a.regroup(f))
	}
}

// packet takes a packet of the device.
func (a *Adapter) packet(now vtime.Time, f *wire.Frame) {
	switch {
	case f.Kind() != wire.KindRoCE || f.IPv6() != a.c.IPv6:
		a.drop(now, f, DropForeign)
	case f.SrcIP() != a.c.IP:
		a.seen.Other = f.SrcIP()
		a.drop(now, f, DropSource)
	default:
		a.learn(now, f.SrcMAC())
		a.pass(now, f)
	}
}

// pass passes a packet of the device on to the lab, unless it acknowledges more than the
// device was sent: switches merge acknowledgements and would take it for a real one.
func (a *Adapter) pass(now vtime.Time, f *wire.Frame) {
	switch given := a.sent(f); {
	case !given:
		a.drop(now, f, DropNotGiven)
	case a.nic.Queued() >= a.c.Window:
		a.drop(now, f, DropOverrun)
	default:
		a.stats.In++
		a.nic.SendFrame(now, f)
	}
}

func (a *Adapter) drop(now vtime.Time, f *wire.Frame, why DropReason) {
	a.stats.Drops[why]++
	if a.c.Trace != nil {
		a.c.Trace.Trace(now, machine.Event{Kind: machine.EventDrop, Port: Outside, Text: why.String()})
	}
	a.c.Pool.Put(f)
}

// learn records the device's MAC address, and sends the frames that have waited for it.
func (a *Adapter) learn(now vtime.Time, m wire.MAC) {
	a.mac, a.known, a.askAt, a.seen.Heard = m, true, vtime.Never, true
	for _, f := range a.held {
		a.deliver(now, f)
	}
	a.held = nil
}

// ask asks the device for its MAC address, in the name of the host that wants to reach it.
func (a *Adapter) ask(now vtime.Time, sender uint32) {
	mac := wire.HostMAC(sender)
	if a.c.Groups.Has(sender) {
		mac = wire.GroupMAC(sender)
	}
	f := a.c.Pool.Get()
	f.BuildAsk(a.c.IPv6, mac, sender, a.c.IP)
	a.stats.Asked++
	a.askAt = now.Add(askAgain)
	a.out.send(now, f)
}

func (a *Adapter) deliver(now vtime.Time, f *wire.Frame) {
	f.SetDstMAC(a.mac)
	f.Untag()
	a.given(f)
	a.stats.Out++
	a.out.send(now, f)
}

// answer answers a question of the device for an address, if that belongs to one of the
// fabric's hosts or groups.
func (a *Adapter) answer(now vtime.Time, q wire.Ask, f *wire.Frame) {
	mac := wire.HostMAC(q.IP)
	if a.c.Groups.Has(q.IP) {
		mac = wire.GroupMAC(q.IP)
	}
	if q.IPv6() != a.c.IPv6 || q.IP == a.c.IP || !a.c.Groups.Has(q.IP) && !a.c.Known(q.IP) {
		a.stats.Ignored++
		a.c.Pool.Put(f)
		return
	}
	a.stats.Answered++
	a.c.Pool.Strip(f)
	q.Answer(f, mac)
	a.out.send(now, f)
}

// HandleTimeout implements machine.Machine.
func (a *Adapter) HandleTimeout(now vtime.Time) {
	a.nic.HandleTimeout(now)
	if a.askAt <= now {
		a.ask(now, a.asker)
	}
}

// NextTimeout implements machine.Machine.
func (a *Adapter) NextTimeout() (vtime.Time, bool) {
	at, armed := a.nic.NextTimeout()
	if a.askAt < at || !armed {
		return a.askAt, a.askAt != vtime.Never
	}
	return at, armed
}

// Settle implements machine.Machine.
func (a *Adapter) Settle(until vtime.Time, port int) {
	if port == Lab {
		a.nic.Settle(until, 0)
		return
	}
	a.out.settle(until)
}

// stack takes the frames that the lab's side has received.
type stack Adapter

// HandleFrame implements virtrnic.Stack: it answers registrations itself and passes the other
// frames to the device.
func (s *stack) HandleFrame(now vtime.Time, f *wire.Frame) {
	a := (*Adapter)(s)
	if f.Kind() != wire.KindRoCE {
		if !a.inquire(now, f) {
			a.agent.HandleFrame(now, f)
		}
		return
	}
	switch {
	case wire.IsMulticast(f.DstIP()):
		a.datagram(now, f)
	case a.known:
		a.deliver(now, f)
	case len(a.held) >= a.c.Window:
		a.drop(now, f, DropUnresolved)
	default:
		a.held = append(a.held, f)
		if len(a.held) == 1 {
			a.asker = f.SrcIP()
			a.ask(now, a.asker)
		}
	}
}

// HandleTimeout implements virtrnic.Stack.
func (s *stack) HandleTimeout(now vtime.Time) { s.agent.HandleTimeout(now) }

// NextTimeout implements virtrnic.Stack.
func (s *stack) NextTimeout() (vtime.Time, bool) { return s.agent.NextTimeout() }

// outside is the transmitter toward the device: one FIFO, never paused.
type outside struct {
	port *machine.Port
	elig vtime.Time // earliest start of the head of the queue
	wait []*wire.Frame
}

func (o *outside) send(now vtime.Time, f *wire.Frame) {
	if o.port.Next() < now {
		o.settle(now - 1)
	}
	if len(o.wait) == 0 {
		o.elig = now
	}
	o.wait = append(o.wait, f)
	o.port.SetNext(max(o.port.Free(), o.elig))
	o.settle(now)
}

func (o *outside) settle(until vtime.Time) {
	done := 0
	for ; done < len(o.wait); done++ {
		start := max(o.port.Free(), o.elig)
		if start > until {
			break
		}
		o.port.Commit(o.wait[done], o.wait[done].WireLen(), start)
	}
	if done == 0 {
		return
	}
	o.wait = append(o.wait[:0], o.wait[done:]...)
	next := vtime.Never
	if len(o.wait) > 0 {
		next = max(o.port.Free(), o.elig)
	}
	o.port.SetNext(next)
}
