// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/traces"
)

// Event is one line of a message's story.
type Event struct {
	At   int64  `json:"at_ps"` // of lab time
	Node string `json:"node"`
	What string `json:"what"`
	Text string `json:"text"`
}

// Story is the history of one message.
type Story struct {
	Schema  string     `json:"schema"`
	Message *Message   `json:"message"`
	Got     []Receiver `json:"receivers"`
	Totals  Totals     `json:"totals"`
	Events  []Event    `json:"events"`
	Gaps    []string   `json:"gaps,omitempty"` // missing parts of the trace
}

// Totals counts the packets and events of a story.
type Totals struct {
	Sent   int `json:"packets_sent"` // by sources, repeats too
	Resent int `json:"packets_resent"`
	Lost   int `json:"packets_lost"`
	Naks   int `json:"naks_sent"`
	Pauses int `json:"pauses_received"`
	CNPs   int `json:"cnps_sent"`
}

// StorySchema names the format of a story as JSON.
const StorySchema = "mcastlab/story/v1"

// teller collects the events of a message.
type teller struct {
	t     *Trace
	m     *Message
	s     *Story
	lanes map[int]*transfer // of data, with the first request on each
	back  map[int]bool      // packets on the way back
	group map[string]bool
	ports map[*port]bool // that the message passed
}

// Story returns the history of a message.
func (t *Trace) Story(m *Message) *Story {
	c := teller{
		t: t, m: m, s: &Story{Schema: StorySchema, Message: m, Got: m.Receivers}, lanes: map[int]*transfer{}, back: map[int]bool{},
		group: map[string]bool{}, ports: map[*port]bool{},
	}
	c.requests()
	c.packets()
	c.events()
	for _, r := range m.Receivers {
		c.say(r.At, r.Host, "received", "all of it")
	}
	if m.Sourced >= 0 {
		c.say(m.Start+m.Sourced, m.Source, "done", "the source's work is done")
	}
	slices.SortStableFunc(c.s.Events, func(a, b Event) int { return compare(a.At, b.At) })
	c.s.Gaps = t.gaps()
	return c.s
}

func (c *teller) say(at int64, node, what, format string, args ...any) {
	c.s.Events = append(c.s.Events, Event{at, node, what, fmt.Sprintf(format, args...)})
}

// requests describes the work requests, those on one connection or group in one line.
func (c *teller) requests() {
	count, bytes, packets := map[int]int{}, map[int]int64{}, map[int]int{}
	var order []int
	for _, x := range c.m.transfers {
		if c.lanes[x.lane] == nil {
			c.lanes[x.lane] = x
			order = append(order, x.lane)
		}
		count[x.lane]++
		bytes[x.lane] += x.bytes
		packets[x.lane] += x.packets
		w := walk{t: c.t}
		c.back[w.back(x)] = true
		if c.t.groups[x.lane] {
			c.group[x.to] = true
		}
		if x.status != "" {
			c.say(x.done, c.t.nodes[x.node].name, "failed", "%s to %s: %s", x.op, c.t.address(x.to), x.status)
		}
	}
	for _, l := range order {
		x := c.lanes[l]
		more := ""
		if count[l] > 1 {
			more = fmt.Sprintf(", the first of %d requests", count[l])
		}
		c.say(x.posted, c.t.nodes[x.node].name, "posted", "%s of %d bytes in %s to %s, QP %d, from PSN %d%s",
			x.op, bytes[l], many(packets[l], "packet"), c.t.address(x.to), x.qp, x.psn, more)
	}
}

// address returns the name of the host with an address, or marks it as a group's.
func (t *Trace) address(ip string) string {
	if id, ok := t.byIP[ip]; ok {
		return t.nodes[id].name
	}
	if isGroup(ip) {
		return "group " + ip
	}
	return ip
}

// mine reports whether a packet is one of the message's.
func (c *teller) mine(f *flow, x *packet) bool {
	switch f.kind {
	case traces.PacketData, traces.PacketRead:
		if c.lanes[f.lane] == nil {
			return false
		}
		t := c.t.transferOf(f.lane, x.psn, x.start+slack)
		return t != nil && t.message == c.m
	}
	return (c.back[f.lane] || c.lanes[f.lane] != nil) && x.start >= c.m.Start && x.start <= c.m.ended
}

// passing lists the packets that one node forwarded.
type passing struct {
	first, last int64
	count       int
}

// packets describes first and last hops, repeats and congestion notifications.
func (c *teller) packets() {
	for _, n := range c.t.nodes {
		var pass passing
		for _, p := range n.ports {
			for id := range c.t.flows {
				all := p.byFlow[id]
				if f := &c.t.flows[id]; len(all) > 0 && (c.lanes[f.lane] != nil || c.back[f.lane]) {
					c.flow(n, p, f, all, &pass)
				}
			}
		}
		if pass.count > 0 && n.ip == "" {
			c.say(pass.first, n.name, "first hop", "the first packet begins to leave")
			c.say(pass.last, n.name, "last hop", "the last of %d packets has left", pass.count)
		}
	}
}

// flow describes the packets of one flow at one port.
func (c *teller) flow(n *node, p *port, f *flow, all []int32, pass *passing) {
	w := walk{t: c.t}
	var burst []uint32
	var began int64
	flush := func() {
		if len(burst) > 0 {
			c.say(began, n.name, "resends", "%s to %s, PSN %s", many(len(burst), "packet"), c.t.address(f.dst), psns(burst))
		}
		burst = nil
	}
	for _, i := range all {
		x := &p.sent[i]
		if !c.mine(f, x) {
			continue
		}
		c.ports[p] = true
		switch {
		case f.kind == traces.PacketCNP && n.ip != "":
			c.s.Totals.CNPs++
			c.say(x.start, n.name, "CNP", "sends a congestion notification to %s", c.t.address(f.dst))
		case f.kind == traces.PacketCNP && p.to >= 0 && c.t.nodes[p.to].ip != "":
			c.say(x.landed(), c.t.nodes[p.to].name, "CNP", "gets a congestion notification")
		}
		if f.kind != traces.PacketData && f.kind != traces.PacketResponse {
			continue
		}
		if pass.count == 0 || x.start < pass.first {
			pass.first = x.start
		}
		pass.last = max(pass.last, x.end())
		pass.count++
		if n.ip == "" {
			continue
		}
		c.s.Totals.Sent++
		if !w.repeat(p, int(i)).before {
			flush()
			continue
		}
		c.s.Totals.Resent++
		if len(burst) == 0 {
			began = x.start
		}
		burst = append(burst, x.psn)
	}
	flush()
}

// psns writes packet numbers, runs of them as a..b.
func psns(all []uint32) string {
	var words []string
	for i := 0; i < len(all); {
		k := i
		for k+1 < len(all) && all[k+1] == (all[k]+1)&0xffffff {
			k++
		}
		if k > i {
			words = append(words, fmt.Sprintf("%d..%d", all[i], all[k]))
		} else {
			words = append(words, fmt.Sprint(all[i]))
		}
		if i = k + 1; len(words) == 8 && i < len(all) {
			return strings.Join(words, ", ") + " and others"
		}
	}
	return strings.Join(words, ", ")
}

// events describes losses and the events that nodes reported meanwhile.
func (c *teller) events() {
	for i := range c.t.events {
		e := &c.t.events[i]
		if e.At < c.m.Start || e.At > c.m.ended {
			continue
		}
		if e.Kind == traces.LineLost {
			c.lost(e)
			continue
		}
		c.event(e)
	}
}

func (c *teller) lost(e *traces.Line) {
	lane := c.t.lane(e.Src, e.Dst, e.DestQP)
	if c.lanes[lane] == nil && !c.back[lane] {
		return
	}
	id := c.t.node(e.Node)
	from := "?"
	if in := c.t.nodes[id].into; e.Port < len(in) && in[e.Port] != nil {
		from = c.t.nodes[in[e.Port].node].name
	}
	c.s.Totals.Lost++
	c.say(e.At, e.Node, "lost", "%s packet with PSN %d, by a fault on the link from %s", e.Packet, e.PSN, from)
}

// event describes one event, if it has to do with the message.
func (c *teller) event(e *traces.Line) {
	id := c.t.node(e.Node)
	host := c.t.nodes[id].ip != ""
	about := c.group[e.Group] || host && c.part(id)
	switch e.Op {
	case "pause-received":
		if e.Port >= len(c.t.nodes[id].ports) || !c.ports[c.t.nodes[id].ports[e.Port]] {
			return
		}
		if e.Value == 0 {
			c.say(e.At, e.Node, "resumed", "port %d may send %s again", e.Port, priorities(e.Priority))
			return
		}
		c.s.Totals.Pauses++
		c.say(e.At, e.Node, "paused", "port %d, %s, by %s", e.Port, priorities(e.Priority), c.neighbour(id, e.Port))
	case "nak-sent":
		if about {
			c.s.Totals.Naks++
			c.say(e.At, e.Node, "NAK", "asks for PSN %d: %s", e.PSN, e.Text)
		}
	case "nak-received":
		if about {
			c.say(e.At, e.Node, "NAK received", "goes back to PSN %d", e.PSN)
		}
	case "nak-aggregated":
		if about {
			c.say(e.At, e.Node, "NAK merged", "passes %s on to the source: PSN %d", e.Text, e.PSN)
		}
	case "timeout":
		if about {
			c.say(e.At, e.Node, "timeout", "no acknowledgement of PSN %d", e.PSN)
		}
	case "retransmit":
		if about {
			c.say(e.At, e.Node, "goes back", "sends from PSN %d again", e.PSN)
		}
	case "ack-repeated":
		if about {
			c.say(e.At, e.Node, "ACK repeated", "up to PSN %d", e.PSN)
		}
	case "drop":
		if host && !about {
			return
		}
		c.say(e.At, e.Node, "drop", "%s, PSN %d", e.Text, e.PSN)
	case "qp-error", "group-failed", "group-deleted", "source-switch":
		if about {
			c.say(e.At, e.Node, e.Op, "%s", e.Text)
		}
	case "pause-storm", "pause-storm-over":
		c.say(e.At, e.Node, e.Op, "port %d, %s", e.Port, priorities(e.Priority))
	}
}

// part reports whether a host takes part in the message.
func (c *teller) part(id int) bool {
	for _, x := range c.m.transfers {
		if x.node == id {
			return true
		}
		for _, g := range x.got {
			if g.node == id {
				return true
			}
		}
	}
	return slices.ContainsFunc(c.m.Receivers, func(r Receiver) bool { return r.node == id })
}

func (c *teller) neighbour(id, port int) string {
	if p := c.t.nodes[id].ports[port]; p.to >= 0 {
		return c.t.nodes[p.to].name
	}
	return "its neighbour"
}

// priorities names the priorities of a mask: priority 3, priorities 3,4.
func priorities(mask uint8) string {
	var all []string
	for i := range 8 {
		if mask>>i&1 != 0 {
			all = append(all, fmt.Sprint(i))
		}
	}
	if len(all) == 1 {
		return "priority " + all[0]
	}
	return "priorities " + strings.Join(all, ",")
}

// us writes picoseconds as microseconds, to the nanosecond.
func us(ps int64) string { return fmt.Sprintf("%.3f", float64(ps)/1e6) }
