// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"

	"github.com/mcastlab/mcastlab/traces"
)

// slice is an event of the Trace Event Format (Google, "Trace Event Format"), which
// Perfetto and chrome://tracing open. Times are microseconds.
type slice struct {
	Name  string         `json:"name"`
	Cat   string         `json:"cat,omitempty"`
	Phase string         `json:"ph"`
	At    *float64       `json:"ts,omitempty"`
	Dur   *float64       `json:"dur,omitempty"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid"`
	ID    int            `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Scope string         `json:"s,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// Threads of a process, which is a node: the rank's messages, its queue pairs, its ports,
// and when each port was paused.
const (
	threadMessages = 1
	threadEvents   = 2
	threadPorts    = 1000
	threadPauses   = 2000
	threadQPs      = 10000
)

// exporter writes a trace for Perfetto.
type exporter struct {
	t     *Trace
	w     *bufio.Writer
	first bool
	err   error
	flows int
	named map[[2]int]bool
}

// WritePerfetto writes the trace as JSON for ui.perfetto.dev: a process per node, tracks for messages,
// queue pairs, ports and pauses, slices for transmissions, and an arrow from each slice of a message's
// packets to that at the next node.
func (t *Trace) WritePerfetto(w io.Writer) error {
	x := &exporter{t: t, w: bufio.NewWriter(w), first: true, named: map[[2]int]bool{}}
	x.text(`{"displayTimeUnit":"ns","otherData":{"format":"Trace Event Format","made-by":"mcastlab trace"},"traceEvents":[` + "\n")
	for i, n := range t.nodes {
		x.put(slice{Name: "process_name", Phase: "M", PID: i + 1, Args: map[string]any{"name": n.name}})
		x.put(slice{Name: "process_sort_index", Phase: "M", PID: i + 1, Args: map[string]any{"sort_index": i}})
	}
	for _, n := range t.nodes {
		for _, p := range n.ports {
			if len(p.sent) > 0 {
				x.track(p.node+1, threadPorts+p.num, "port %d to %s", p.num, x.far(p))
			}
		}
	}
	x.messages()
	x.requests()
	for _, n := range t.nodes {
		for _, p := range n.ports {
			x.port(p)
		}
	}
	x.events()
	x.text("\n]}\n")
	if x.err == nil {
		x.err = x.w.Flush()
	}
	return x.err
}

func (x *exporter) text(s string) {
	if x.err == nil {
		_, x.err = x.w.WriteString(s)
	}
}

func (x *exporter) put(s slice) {
	b, err := json.Marshal(s)
	if err != nil && x.err == nil {
		x.err = err
	}
	if !x.first {
		x.text(",\n")
	}
	x.first = false
	x.text(string(b))
}

// track names a thread the first time it is used.
func (x *exporter) track(pid, tid int, format string, args ...any) {
	if k := [2]int{pid, tid}; !x.named[k] {
		x.named[k] = true
		x.put(slice{Name: "thread_name", Phase: "M", PID: pid, TID: tid, Args: map[string]any{"name": fmt.Sprintf(format, args...)}})
	}
}

// span writes a complete slice.
func (x *exporter) span(pid, tid int, cat, name string, from, to int64, args map[string]any) {
	at, dur := float64(from)/1e6, float64(to-from)/1e6
	x.put(slice{Name: name, Cat: cat, Phase: "X", At: &at, Dur: &dur, PID: pid, TID: tid, Args: args})
}

// arrow writes one end of an arrow between slices: s where it begins, f where it ends.
func (x *exporter) arrow(phase string, id, pid, tid int, at int64) {
	ts := float64(at) / 1e6
	s := slice{Name: "hop", Cat: "hop", Phase: phase, At: &ts, PID: pid, TID: tid, ID: id}
	if phase == "f" {
		s.Bind = "e"
	}
	x.put(s)
}

// messages writes a slice per message at its source and at each receiver.
func (x *exporter) messages() {
	busy := map[int]int64{} // slices of a track may not overlap
	put := func(id int, m *Message, to int64) {
		from := max(m.Start, busy[id])
		if to < from {
			return
		}
		busy[id] = to
		x.track(id+1, threadMessages, "messages")
		x.span(id+1, threadMessages, "message", fmt.Sprintf("#%d %s %d bytes", m.ID, m.Scheme, m.Bytes), from, to, map[string]any{
			"message": m.ID, "workload": m.Workload, "source": m.Source, "jct_ns": m.JCT / 1000, "worst": m.Worst,
		})
	}
	for _, m := range x.t.Messages {
		if id, ok := x.t.byName[m.Source]; ok {
			to := m.ended
			if m.Sourced >= 0 {
				to = m.Start + m.Sourced
			}
			put(id, m, to)
		}
		for _, r := range m.Receivers {
			if r.Host != m.Source {
				put(r.node, m, r.At)
			}
		}
	}
}

// requests writes a slice per work request on its queue pair's track. Requests of a queue
// pair overlap, which slices of one track may not: each begins when the one before has ended.
func (x *exporter) requests() {
	busy := map[qpKey]int64{}
	for _, r := range x.t.transfers {
		k := qpKey{r.node, r.qp}
		from := max(r.posted, busy[k])
		if r.done < from {
			continue
		}
		busy[k] = r.done
		x.track(r.node+1, threadQPs+int(r.qp), "QP %d", r.qp)
		x.span(r.node+1, threadQPs+int(r.qp), "request", fmt.Sprintf("%s to %s", r.op, x.t.address(r.to)), from, r.done, map[string]any{
			"posted_us": float64(r.posted) / 1e6, "bytes": r.bytes, "psn": r.psn, "packets": r.packets,
		})
	}
}

// far names the node at the other end of a port's link.
func (x *exporter) far(p *port) string {
	if p.to < 0 {
		return "?"
	}
	return x.t.nodes[p.to].name
}

// train is packets of one flow that a port sent one after the other.
type train struct {
	flow     int
	from, to int64
	first    hop
	psn      []uint32
	lands    int64
	again    bool
}

// port writes a slice per train of packets, and the pauses.
func (x *exporter) port(p *port) {
	pid := p.node + 1
	w := walk{t: x.t}
	var cur *train
	flush := func() {
		if cur != nil {
			x.train(p, cur)
		}
		cur = nil
	}
	for i := range p.sent {
		s := &p.sent[i]
		again := w.repeat(p, i).before
		if cur != nil && cur.flow == int(s.flow) && cur.to == s.start && cur.again == again {
			cur.to = s.end()
			cur.psn = append(cur.psn, s.psn)
			continue
		}
		flush()
		cur = &train{flow: int(s.flow), from: s.start, to: s.end(), first: hop{p, i}, psn: []uint32{s.psn}, lands: s.lands, again: again}
	}
	flush()
	for _, s := range p.paused {
		x.track(pid, threadPauses+p.num, "port %d paused", p.num)
		x.span(pid, threadPauses+p.num, "pause", "paused by "+x.far(p), s.from, s.to, nil)
	}
}

// train writes a train, with an arrow to it from the packet that let its first one go.
func (x *exporter) train(p *port, c *train) {
	f := &x.t.flows[c.flow]
	name := fmt.Sprintf("%s %s > %s", f.kind, x.t.address(f.src), x.t.address(f.dst))
	if c.again {
		name += " (again)"
	}
	args := map[string]any{"psn": psns(c.psn), "packets": len(c.psn), "lands_after_ns": c.lands / 1000}
	if f.kind == traces.PacketData {
		if r := x.t.transferOf(f.lane, c.psn[0], c.from+slack); r != nil && r.message != nil {
			args["message"] = r.message.ID
		}
	}
	x.span(p.node+1, threadPorts+p.num, f.kind, name, c.from, c.to, args)
	if f.kind != traces.PacketData || x.t.nodes[p.node].ip != "" {
		return
	}
	w := walk{t: x.t}
	if h, ok := w.cause(p.node, &p.sent[c.first.i], filter{kind: f.kind, lane: f.lane, psn: c.psn[0], one: true}); ok {
		x.flows++
		x.arrow("s", x.flows, h.p.node+1, threadPorts+h.p.num, h.p.sent[h.i].start)
		x.arrow("f", x.flows, p.node+1, threadPorts+p.num, c.from)
	}
}

// events writes the events that nodes reported, and losses, as instants.
func (x *exporter) events() {
	for i := range x.t.events {
		e := &x.t.events[i]
		pid := x.t.node(e.Node) + 1
		name := e.Op
		if e.Kind == traces.LineLost {
			name = "lost " + e.Packet
		}
		x.track(pid, threadEvents, "events")
		at := float64(e.At) / 1e6
		x.put(slice{Name: name, Cat: "event", Phase: "i", At: &at, PID: pid, TID: threadEvents, Scope: "t", Args: map[string]any{
			"psn": e.PSN, "port": e.Port, "qp": e.QP, "value": e.Value, "text": e.Text,
		}})
	}
}
