// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	"github.com/mcastlab/mcastlab/traces"
)

// name makes the list of messages: those that workloads name, and, of workloads that name
// none, each work request.
func (t *Trace) name() {
	named := map[string]bool{}
	for i := range t.marks {
		l := &t.marks[i]
		named[l.Workload] = true
		m := &Message{
			Workload: l.Workload, Scheme: l.Scheme, Bytes: l.Bytes, Iteration: l.Iteration, Source: "all", Start: l.At, ended: l.Ended, JCT: -1, Sourced: -1,
		}
		for k, at := range l.Received {
			if at < 0 {
				m.Source = l.Hosts[k]
				continue
			}
			m.Receivers = append(m.Receivers, Receiver{l.Hosts[k], at, t.node(l.Hosts[k])})
		}
		if l.Source > 0 {
			m.Sourced = l.Source - l.At
		}
		t.Messages = append(t.Messages, m)
	}
	// Iterations of a workload follow each other: a request is of the last that had begun.
	next := 0
	for _, x := range t.transfers {
		for next < len(t.marks) && t.marks[next].At <= x.posted {
			next++
		}
		if next > 0 && x.posted <= t.Messages[next-1].ended {
			x.message = t.Messages[next-1]
			x.message.transfers = append(x.message.transfers, x)
			continue
		}
		if w := t.workAt(x.posted); w == nil || !named[w.Workload] {
			t.Messages = append(t.Messages, t.single(x, w))
		}
	}
	slices.SortStableFunc(t.Messages, func(a, b *Message) int { return compare(a.Start, b.Start) })
	for i, m := range t.Messages {
		m.ID = i + 1
		t.sum(m)
	}
}

// single makes a message of a work request.
func (t *Trace) single(x *transfer, w *traces.Line) *Message {
	m := &Message{Scheme: x.op, Bytes: x.bytes, Source: t.nodes[x.node].name, Start: x.posted, JCT: -1, Sourced: -1, transfers: []*transfer{x}}
	if w != nil {
		m.Workload = w.Workload
	}
	x.message = m
	for _, g := range x.got {
		m.Receivers = append(m.Receivers, Receiver{t.nodes[g.node].name, g.at, g.node})
	}
	if x.done >= 0 {
		m.Sourced = x.done - x.posted
	}
	if x.op == "READ" && x.done >= 0 {
		m.Receivers = append(m.Receivers, Receiver{m.Source, x.done, x.node})
	}
	m.ended = max(x.done, x.posted)
	for _, r := range m.Receivers {
		m.ended = max(m.ended, r.At)
	}
	return m
}

// workAt returns the workload that ran at an instant.
func (t *Trace) workAt(at int64) (w *traces.Line) {
	for i := range t.works {
		if t.works[i].At <= at {
			w = &t.works[i]
		}
	}
	return w
}

// sum works out the message's time, its worst receiver and its size in packets.
func (t *Trace) sum(m *Message) {
	for _, r := range m.Receivers {
		if jct := r.At - m.Start; jct > m.JCT {
			m.JCT, m.Worst = jct, r.Host
		}
	}
	for _, x := range m.transfers {
		m.Packets += x.packets
	}
	m.Requests = len(m.transfers)
}

// worst returns the last receiver.
func (m *Message) worst() (r Receiver, ok bool) {
	for _, x := range m.Receivers {
		if !ok || x.At > r.At {
			r, ok = x, true
		}
	}
	return r, ok
}

// Message returns the message with a number, or nil.
func (t *Trace) Message(id int) *Message {
	if id < 1 || id > len(t.Messages) {
		return nil
	}
	return t.Messages[id-1]
}
