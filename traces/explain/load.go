// SPDX-License-Identifier: Apache-2.0

// Package explain reads the trace of a run (trace.jsonl). For each message it shows its history and how
// its time divides into parts.
//
// A message is an iteration of a scheme, if the workload marks them, or else a work request. Its time
// is split along its critical path: from the instant at which its last receiver had it back to its
// start, at each step to the event that was waited for last.
package explain

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/traces"
)

// Trace is a run's trace, indexed. Times are picoseconds of lab time.
type Trace struct {
	Messages []*Message
	Gaps     []traces.Line // nodes from which no further lines came
	Cut      int           // lines beyond the size limit
	// Incomplete describes what the file lacks. It is empty if the file has its end line and all lines
	// before it.
	Incomplete string

	nodes     []*node
	byName    map[string]int
	byIP      map[string]int
	flows     []flow
	lanes     map[laneKey]int
	groups    map[int]bool // lanes that are groups
	transfers []*transfer
	byLane    map[int]*requests // by the lane of their packets
	byQP      map[qpKey]*requests
	events    []traces.Line // events and losses, in the order of time
	marks     []traces.Line
	works     []traces.Line
	steps     uint64 // that explanations have taken: their cost
	stepsMax  uint64 // of a table
}

// node is a host or switch.
type node struct {
	name  string
	ip    string // of a host
	ports []*port
	into  []*port // of the neighbours, by own port
	ended []completion
	mine  map[*Message][]completion // those of a message
}

// port is a transmitter and the packets it sent, in the order of time.
type port struct {
	node, num  int
	to, toPort int
	delay      int64 // of the link and the far end's pipeline
	quantum    int64 // of a pause
	sent       []packet
	byFlow     map[int][]int32
	paused     []span
	repeats    []repeat // by packet; nil: not worked out
	streams    map[streamKey][]int32
}

// packet is one packet on one link.
type packet struct {
	start, takes, lands int64
	psn                 uint32
	flow                int32
}

func (p *packet) end() int64    { return p.start + p.takes }
func (p *packet) landed() int64 { return p.start + p.lands }

// repeat marks a packet that the same port has sent before, and the packet that repeats it; 0: none
// does.
type repeat struct {
	before bool
	again  int32
}

type span struct{ from, to int64 }

// flow is packets of a kind with the same addresses.
type flow struct {
	kind     string
	src, dst string
	qp       uint32
	lane     int
}

// laneKey identifies the destination of packets: a queue pair, or a group, whose leaves rewrite
// addresses.
type laneKey struct {
	src, dst string
	qp       uint32
}

type qpKey struct {
	node int
	qp   uint32
}

// transfer is a work request.
type transfer struct {
	node    int
	op      string
	qp      uint32
	lane    int
	to      string
	posted  int64
	done    int64 // -1: never
	status  string
	psn     uint32
	packets int
	bytes   int64
	got     []receipt
	message *Message
}

func (x *transfer) last() uint32 { return (x.psn + uint32(x.packets) - 1) & psnMask }

// has reports whether the packet is one of the request's.
func (x *transfer) has(psn uint32) bool { return (psn-x.psn)&psnMask < uint32(x.packets) }

type receipt struct {
	node int
	at   int64
}

// completion is an event that a host may have waited for: the arrival of a message, or the end of a
// request of its own.
type completion struct {
	at       int64
	x        *transfer
	received bool
}

// Message is one message: an iteration of a scheme, or a work request.
type Message struct {
	ID        int    `json:"id"`
	Workload  string `json:"workload,omitempty"`
	Scheme    string `json:"scheme"`
	Bytes     int64  `json:"bytes"`
	Iteration int    `json:"iteration,omitempty"`
	Source    string `json:"source"` // host, or "all"
	Start     int64  `json:"start_ps"`
	JCT       int64  `json:"jct_ps"`    // until the last receiver had it; -1: none ever did
	Worst     string `json:"worst"`     // that receiver
	Sourced   int64  `json:"source_ps"` // from the start to the source's completion; -1: never
	Packets   int    `json:"packets"`   // of all its work requests
	Requests  int    `json:"requests"`

	Receivers []Receiver `json:"-"`
	ended     int64
	transfers []*transfer
}

// Receiver is a host that received the message, and when.
type Receiver struct {
	Host string `json:"host"`
	At   int64  `json:"at_ps"`
	node int
}

// Bounds of the values of a line: ports of a node, packets of a run.
const (
	portsMax = 1 << 12
	countMax = 1 << 24
)

// Read reads a trace.
func Read(r io.Reader) (*Trace, error) {
	t := &Trace{
		stepsMax: stepsMax,
		byName:   map[string]int{}, byIP: map[string]int{}, lanes: map[laneKey]int{}, groups: map[int]bool{},
		byLane: map[int]*requests{}, byQP: map[qpKey]*requests{},
	}
	flows := map[flow]int{}
	var ends []traces.Line
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	n, end := 1, 0
	var sum checksum.Lines
	for ; s.Scan(); n++ {
		b := s.Bytes()
		if n == 1 {
			var head struct{ Schema string }
			if err := json.Unmarshal(b, &head); err != nil || head.Schema != traces.TraceSchema {
				return nil, fmt.Errorf("its first line is not of the schema %s", traces.TraceSchema)
			}
			sum.Add(b)
			continue
		}
		var l traces.Line
		if err := json.Unmarshal(b, &l); err != nil {
			if !s.Scan() {
				end = 0 // whatever was before: the last line is not whole
				break
			}
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if l.Port < 0 || l.Port >= portsMax || l.ToPort < 0 || l.ToPort >= portsMax || l.Kind == traces.LineSent && (l.Count < 0 || l.Count > countMax) {
			return nil, fmt.Errorf("line %d: port %d, to port %d, count %d: out of range", n, l.Port, l.ToPort, l.Count)
		}
		switch l.Kind {
		case traces.LineDone, traces.LineReceived:
			ends = append(ends, l)
		case traces.LineEnd:
			end = n
			if err := sum.End(uint64(l.Count), l.Sum); err != nil && !errors.Is(err, checksum.ErrNone) {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		case traces.LineMessage:
			if len(l.Hosts) != len(l.Received) {
				return nil, fmt.Errorf("line %d: a message of %d hosts has %d times of receipt", n, len(l.Hosts), len(l.Received))
			}
			t.take(l, flows)
		default:
			t.take(l, flows)
		}
		sum.Add(b)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if n == 1 {
		return nil, fmt.Errorf("it is empty")
	}
	if end != n-1 {
		t.Incomplete = fmt.Sprintf("the trace has no end after its %d lines: the run was killed or has not ended, or the file has been cut", n-1)
	}
	t.index(ends)
	return t, nil
}

// take adds one line.
func (t *Trace) take(l traces.Line, flows map[flow]int) {
	switch l.Kind {
	case traces.LineHost:
		t.nodes[t.node(l.Node)].ip = l.Src
		t.byIP[l.Src] = t.node(l.Node)
	case traces.LineLink:
		p := t.port(l.Node, l.Port)
		p.to, p.toPort, p.delay, p.quantum = t.node(l.To), l.ToPort, l.Lands, l.Gap
	case traces.LineSent:
		f := flow{kind: l.Packet, src: l.Src, dst: l.Dst, qp: l.DestQP}
		id, ok := flows[f]
		if !ok {
			id = len(t.flows)
			flows[f] = id
			t.flows = append(t.flows, f)
			t.flows[id].lane = t.lane(f.src, f.dst, f.qp)
		}
		p := t.port(l.Node, l.Port)
		for i := range max(1, l.Count) {
			p.sent = append(p.sent, packet{
				start: l.At + int64(i)*l.Gap, takes: l.Takes, lands: l.Lands, psn: (l.PSN + uint32(i)*l.Step) & psnMask, flow: int32(id),
			})
		}
	case traces.LinePosted:
		x := &transfer{
			node: t.node(l.Node), op: l.Op, qp: l.QP, to: l.Dst, posted: l.At, done: -1, psn: l.PSN, packets: l.Count, bytes: l.Bytes,
		}
		x.lane = t.lane(t.nodes[x.node].ip, l.Dst, l.DestQP)
		t.transfers = append(t.transfers, x)
	case traces.LineEvent, traces.LineLost:
		t.events = append(t.events, l)
	case traces.LineMessage:
		t.marks = append(t.marks, l)
	case traces.LineWorkload:
		t.works = append(t.works, l)
	case traces.LineGap:
		t.Gaps = append(t.Gaps, l)
	case traces.LineCut:
		t.Cut += l.Count
	}
}

func (t *Trace) node(name string) int {
	id, ok := t.byName[name]
	if !ok {
		id = len(t.nodes)
		t.byName[name] = id
		t.nodes = append(t.nodes, &node{name: name})
	}
	return id
}

func (t *Trace) port(name string, num int) *port {
	id := t.node(name)
	n := t.nodes[id]
	for len(n.ports) <= num {
		n.ports = append(n.ports, &port{node: id, num: len(n.ports), to: -1})
	}
	return n.ports[num]
}

// isGroup reports whether an address is a group's whose packets switches rewrite. A trace does not
// record the network of McstIDs. But hosts and switches are 10.0.0.0 to 10.253.255.255, and the other
// unicast addresses of a lab are groups'.
func isGroup(addr string) bool {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return false
	}
	ip, ok := wire.IPOf(a)
	return ok && !wire.IsMulticast(ip) && (ip>>24 != 10 || ip>>16&0xff > 253)
}

// lane returns where packets with these addresses go.
func (t *Trace) lane(src, dst string, qp uint32) int {
	k := laneKey{src, dst, qp}
	group := ""
	if isGroup(dst) {
		group = dst
	} else if isGroup(src) {
		group = src
	}
	if group != "" {
		k = laneKey{dst: group}
	}
	id, ok := t.lanes[k]
	if !ok {
		id = len(t.lanes)
		t.lanes[k] = id
		t.groups[id] = group != ""
	}
	return id
}

// index sorts everything and links related lines.
func (t *Trace) index(ends []traces.Line) {
	for _, n := range t.nodes {
		n.into = make([]*port, len(n.ports))
	}
	for _, n := range t.nodes {
		for _, p := range n.ports {
			slices.SortStableFunc(p.sent, func(a, b packet) int { return compare(a.start, b.start) })
			p.byFlow = map[int][]int32{}
			for i := range p.sent {
				f := int(p.sent[i].flow)
				p.byFlow[f] = append(p.byFlow[f], int32(i))
			}
			if p.to >= 0 {
				far := t.nodes[p.to]
				for len(far.into) <= p.toPort {
					far.into = append(far.into, nil)
				}
				far.into[p.toPort] = p
			}
		}
	}
	byTime := func(a, b traces.Line) int { return compare(a.At, b.At) }
	slices.SortStableFunc(t.events, byTime)
	slices.SortStableFunc(t.marks, byTime)
	slices.SortStableFunc(t.works, byTime)
	slices.SortStableFunc(ends, byTime)
	slices.SortStableFunc(t.transfers, func(a, b *transfer) int { return compare(a.posted, b.posted) })
	open := map[doneKey][]*transfer{}
	for _, x := range t.transfers {
		k := qpKey{x.node, x.qp}
		if t.byLane[x.lane] == nil {
			t.byLane[x.lane] = &requests{}
		}
		if t.byQP[k] == nil {
			t.byQP[k] = &requests{}
		}
		t.byLane[x.lane].add(x)
		t.byQP[k].add(x)
		d := doneKey{k, x.psn}
		open[d] = append(open[d], x)
	}
	for _, l := range ends {
		t.end(l, open)
	}
	t.pauses()
	t.name()
	for _, n := range t.nodes {
		n.mine = map[*Message][]completion{}
		for _, c := range n.ended {
			if m := c.x.message; m != nil {
				n.mine[m] = append(n.mine[m], c)
			}
		}
	}
}

// doneKey names the requests that a line of the kind done may mean.
type doneKey struct {
	qpKey
	psn uint32
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// end notes that a work request has ended or a message has come.
func (t *Trace) end(l traces.Line, open map[doneKey][]*transfer) {
	id := t.node(l.Node)
	n := t.nodes[id]
	if l.Kind == traces.LineDone {
		all := open[doneKey{qpKey{id, l.QP}, l.PSN}]
		for i := after(all, l.At) - 1; i >= 0; i-- {
			if x := all[i]; x.done < 0 {
				x.done, x.status = l.At, l.Text
				if l.Text == "" {
					n.ended = append(n.ended, completion{l.At, x, false})
				}
				return
			}
		}
		return
	}
	if x := t.transferOf(t.lane(l.Src, l.Dst, l.DestQP), l.PSN, l.At); x != nil {
		x.got = append(x.got, receipt{id, l.At})
		n.ended = append(n.ended, completion{l.At, x, true})
	}
}

// pauses works out when which port stood still.
func (t *Trace) pauses() {
	type key struct {
		p    *port
		prio uint8
	}
	open := map[key]span{}
	var order []key
	for i := range t.events {
		e := &t.events[i]
		if e.Kind != traces.LineEvent || e.Op != "pause-received" {
			continue
		}
		p := t.port(e.Node, e.Port)
		for prio := range uint8(8) {
			if e.Priority>>prio&1 == 0 {
				continue
			}
			k := key{p, prio}
			s, ok := open[k]
			if !ok {
				order = append(order, k)
			}
			if s.to > s.from && e.At >= s.to { // it had run out
				p.paused = append(p.paused, s)
				s = span{}
			}
			switch {
			case e.Value == 0 && s.to > s.from:
				p.paused = append(p.paused, span{s.from, e.At})
				s = span{}
			case e.Value > 0 && s.to > s.from:
				s.to = e.At + e.Value*p.quantum
			case e.Value > 0:
				s = span{e.At, e.At + e.Value*p.quantum}
			}
			open[k] = s
		}
	}
	for _, k := range order {
		if s := open[k]; s.to > s.from {
			k.p.paused = append(k.p.paused, s)
		}
	}
	for _, n := range t.nodes {
		for _, p := range n.ports {
			p.paused = union(p.paused)
		}
	}
}

// union joins spans that overlap.
func union(all []span) (out []span) {
	slices.SortFunc(all, func(a, b span) int { return compare(a.from, b.from) })
	for _, s := range all {
		if k := len(out) - 1; k >= 0 && s.from <= out[k].to {
			out[k].to = max(out[k].to, s.to)
		} else if s.to > s.from {
			out = append(out, s)
		}
	}
	return out
}

// psnMask bounds packet numbers; they wrap beyond it.
const psnMask = uint32(wire.PSNMask)
