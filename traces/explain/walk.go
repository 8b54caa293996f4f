// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/traces"
)

// Part is one of the kinds of time that a message's time is made of.
type Part int

// The parts. docs/traces.md defines them; they add up to a message's time.
const (
	Serialisation Part = iota
	Queueing
	Propagation
	Pause
	Retransmission
	RNR // the wait for which a receiver asked that had no receive posted
	Host
	Straggler
	Unknown // time that the recorded lines do not explain
	partCount
)

// String returns the part's name in outputs.
func (p Part) String() string {
	return [...]string{"serialisation", "queueing", "propagation", "pause", "retransmission", "rnr", "host", "straggler", "unknown"}[p]
}

// Parts are picoseconds by part.
type Parts [partCount]int64

// Sum returns all of them together.
func (p *Parts) Sum() (sum int64) {
	for _, v := range p {
		sum += v
	}
	return sum
}

// Nanoseconds returns the parts in whole nanoseconds whose sum is that of the parts, rounded:
// the rest of each goes to the next.
func (p *Parts) Nanoseconds() (ns [partCount]int64) {
	var sum, told int64
	for i, v := range p {
		sum += v
		ns[i] = nanoseconds(sum) - told
		told = nanoseconds(sum)
	}
	return ns
}

// nanoseconds rounds picoseconds.
func nanoseconds(ps int64) int64 { return (ps + 500) / 1000 }

// Step is a stretch of a critical path.
type Step struct {
	From int64  `json:"from_ps"`
	To   int64  `json:"to_ps"`
	Part string `json:"part"`
	At   string `json:"at"`           // node, or node:port
	By   string `json:"by,omitempty"` // of a pause, the neighbour that paused the port
}

// label returns the part and, of a pause, who caused it.
func (s *Step) label() string {
	if s.By != "" {
		return s.Part + " by " + s.By
	}
	return s.Part
}

// Explanation is a message's time, split into parts along its critical path.
type Explanation struct {
	Parts Parts
	Path  []Step // in the order of time
}

// Explain splits a message's time. Its parts sum to its JCT, to the picosecond.
func (t *Trace) Explain(m *Message) (e Explanation, ok bool) {
	r, ok := m.worst()
	if !ok {
		return e, false
	}
	w := walk{t: t, m: m, now: r.At, used: map[completion]bool{}}
	w.host(r.node)
	w.to(Unknown, m.Start, "")
	slices.Reverse(w.path)
	return Explanation{w.parts, w.path}, true
}

// slack is the difference, in picoseconds, by which the records of two nodes of a running lab may
// disagree: clocks count nanoseconds.
const slack = 10_000

// walk goes back in time along a message's critical path.
type walk struct {
	t     *Trace
	m     *Message
	now   int64
	parts Parts
	path  []Step
	used  map[completion]bool // events that were waited for already
}

// to goes back to an instant, the time up to which is a part's.
func (w *walk) to(p Part, at int64, where string) {
	at = max(at, w.m.Start)
	if at >= w.now {
		return
	}
	w.parts[p] += w.now - at
	if k := len(w.path) - 1; k >= 0 && w.path[k].Part == p.String() && w.path[k].At == where {
		w.path[k].From = at
	} else {
		w.path = append(w.path, Step{From: at, To: w.now, Part: p.String(), At: where})
	}
	w.now = at
}

// place names a port.
func (w *walk) place(p *port) string {
	return w.t.nodes[p.node].name + ":" + strconv.Itoa(p.num)
}

// host goes back from an action of a host to the event for which it had waited, and so on.
func (w *walk) host(id int) {
	for w.now > w.m.Start {
		n := w.t.nodes[id]
		c, ok := w.waited(n)
		if !ok {
			w.to(Host, w.m.Start, n.name)
			return
		}
		w.used[c] = true
		w.to(Host, c.at, n.name)
		if id, ok = w.transfer(id, c); !ok {
			return
		}
	}
}

// waited returns the message's last completion on a host, up to now; at one instant a
// message that came before a request that ended.
func (w *walk) waited(n *node) (c completion, ok bool) {
	mine := n.mine[w.m]
	i := sort.Search(len(mine), func(i int) bool { return mine[i].at > w.now })
	for i--; i >= 0; i-- {
		w.t.steps++
		x := mine[i]
		if x.at <= w.m.Start || ok && x.at < c.at {
			break
		}
		if !w.used[x] && (!ok || x.received && !c.received) {
			c, ok = x, true
		}
	}
	return c, ok
}

// transfer goes back along the packet that completed a request, and returns the host it
// leads to.
func (w *walk) transfer(id int, c completion) (host int, ok bool) {
	x := c.x
	if c.received || x.op == "READ" || x.op == "ATOMIC" {
		f := filter{kind: traces.PacketData, lane: x.lane, x: x}
		if !c.received {
			f.kind, f.lane = traces.PacketResponse, w.back(x)
		}
		a, found := w.arrival(id, f)
		if !found {
			return 0, false
		}
		w.to(Straggler, a.p.sent[a.i].landed(), w.t.nodes[id].name)
		return w.network(a, true)
	}
	if a, found := w.arrival(id, filter{kind: traces.PacketAck, lane: w.back(x), from: x.last()}); found {
		w.to(Straggler, a.p.sent[a.i].landed(), w.t.nodes[id].name)
		return w.network(a, true)
	}
	// Without an acknowledgement it was done when its last packet began.
	if a, found := w.departure(id, x); found {
		w.to(Host, a.p.sent[a.i].start, w.t.nodes[id].name)
		return w.network(a, false)
	}
	return 0, false
}

// back returns the lane of the packets that come back for a request.
func (w *walk) back(x *transfer) int {
	if w.t.groups[x.lane] {
		return x.lane
	}
	return w.t.lane(x.to, w.t.nodes[x.node].ip, x.qp)
}

// hop is a packet on a link.
type hop struct {
	p *port
	i int
}

// filter selects packets: of a kind and lane; any, those of a request, the one with a number, or those
// from a number on.
type filter struct {
	kind string
	lane int
	x    *transfer
	psn  uint32
	one  bool
	from uint32
	any  bool
}

func (f *filter) takes(psn uint32) bool {
	switch {
	case f.any:
		return true
	case f.x != nil:
		return f.x.has(psn)
	case f.one:
		return psn == f.psn
	}
	return int32((psn-f.from)<<8) >= 0 // in serial order
}

// arrival returns the last of the packets meant that reached a node up to now.
func (w *walk) arrival(id int, f filter) (best hop, ok bool) {
	at := int64(0)
	for _, p := range w.t.nodes[id].into {
		if p == nil {
			continue
		}
		if i, found := w.last(p, f, func(x *packet) int64 { return x.landed() }); found {
			if l := p.sent[i].landed(); !ok || l > at {
				best, at, ok = hop{p, i}, l, true
			}
		}
	}
	return best, ok
}

// departure returns the last packet of a request that left its host up to now.
func (w *walk) departure(id int, x *transfer) (h hop, ok bool) {
	for _, p := range w.t.nodes[id].ports {
		f := filter{kind: traces.PacketData, lane: x.lane, x: x}
		if i, found := w.last(p, f, func(x *packet) int64 { return x.start }); found && (!ok || p.sent[i].start > h.p.sent[h.i].start) {
			h, ok = hop{p, i}, true
		}
	}
	return h, ok
}

// last returns the last of the packets meant that a port sent and whose time is not after
// now.
func (w *walk) last(p *port, f filter, at func(*packet) int64) (best int, ok bool) {
	for id, all := range p.byFlow { // the latest of all is found in any order
		if g := &w.t.flows[id]; g.kind != f.kind || g.lane != f.lane {
			continue
		}
		i := sort.Search(len(all), func(i int) bool { return at(&p.sent[all[i]]) > w.now+slack })
		for i--; i >= 0; i-- {
			w.t.steps++
			if k := int(all[i]); f.takes(p.sent[k].psn) {
				if !ok || at(&p.sent[k]) > at(&p.sent[best]) {
					best, ok = k, true
				}
				break
			}
		}
	}
	return best, ok
}

// ready is the event that let a packet be sent: it was posted on a host, or it arrived.
type ready struct {
	at   int64
	host bool
	hop  hop
}

// network goes back from the arrival of a packet (or, without wire, its departure) to the
// host that posted it.
func (w *walk) network(h hop, wire bool) (host int, ok bool) {
	for {
		p, x := h.p, &h.p.sent[h.i]
		if wire {
			w.to(Propagation, x.landed()-p.delay, w.place(p))
			w.to(Serialisation, x.start, w.place(p))
		}
		before := w.now
		r, found := w.queue(h)
		switch {
		case !found:
			return 0, false
		case r.host:
			return p.node, true
		case wire && w.now == before && r.hop == h:
			return 0, false
		}
		h, wire = r.hop, true
		if w.now <= w.m.Start {
			return 0, false
		}
	}
}

// queue goes back from when a packet began to leave a port to when it was ready to: it waited for the
// port's other packets of that time. Behind packets of its own message the walk continues with those.
func (w *walk) queue(h hop) (r ready, ok bool) {
	p, cur := h.p, h.i
	if r, ok = w.ready(p, cur); !ok {
		return r, false
	}
	place := w.place(p)
	for k := h.i - 1; w.now > r.at && w.now > w.m.Start; k-- {
		if k < 0 || p.sent[k].end() <= r.at {
			w.idle(p, cur, r.at)
			break
		}
		w.t.steps++
		x := &p.sent[k]
		w.idle(p, cur, x.end())
		if !w.own(p, cur, k) {
			w.to(Queueing, max(x.start, r.at), place)
			if j := w.others(p, cur, k, r.at); j < k { // as each of them would
				w.to(Queueing, p.sent[j].start, place)
				k = j
			}
			continue
		}
		if again := w.repeat(p, k).again; again > 0 && int(again) <= h.i {
			w.to(Retransmission, x.start, place)
		} else {
			w.to(Serialisation, x.start, place)
		}
		next, found := w.ready(p, k)
		if !found {
			return r, false
		}
		cur, r = k, next
	}
	return r, true
}

// own reports whether packet k of a port is of the same stream as packet cur: on a host of the
// same message, in a switch of the same flow.
func (w *walk) own(p *port, cur, k int) bool {
	own := w.stream(p, cur)
	i, found := slices.BinarySearch(own, int32(k))
	return found && int(own[i]) == k
}

// stream returns the packets of a port that are of the same stream as packet cur.
func (w *walk) stream(p *port, cur int) []int32 {
	f := &w.t.flows[p.sent[cur].flow]
	key := streamKey{kind: f.kind, lane: f.lane}
	if w.t.nodes[p.node].ip != "" && isData(f) {
		key = streamKey{message: w.m}
	}
	return w.t.streams(p)[key]
}

func isData(f *flow) bool { return f.kind == traces.PacketData }

// others returns the first of the packets up to k that a port sent after an instant and that are all of other streams
// than packet cur, if the port was not paused meanwhile and its idle time counts as theirs. Behind thousands of
// requests each of them waits for all before it.
func (w *walk) others(p *port, cur, k int, from int64) int {
	from = max(from, w.m.Start)
	if w.t.nodes[p.node].ip != "" && w.repeat(p, cur).before {
		return k
	}
	if i := sort.Search(len(p.paused), func(i int) bool { return p.paused[i].from >= w.now }) - 1; i >= 0 {
		from = max(from, p.paused[i].to)
	}
	own := w.stream(p, cur)
	first := 0
	if i, _ := slices.BinarySearch(own, int32(k)); i > 0 {
		first = int(own[i-1]) + 1
	}
	return min(k, max(first, sort.Search(len(p.sent), func(i int) bool { return p.sent[i].start >= from })))
}

// ready returns the event that let packet i of a port be sent.
func (w *walk) ready(p *port, i int) (r ready, ok bool) {
	x := &p.sent[i]
	f := &w.t.flows[x.flow]
	if w.t.nodes[p.node].ip != "" { // a host
		return w.made(p, x, f)
	}
	h, ok := w.cause(p.node, x, filter{kind: f.kind, lane: f.lane, psn: x.psn, one: true})
	if !ok && w.t.groups[f.lane] {
		h, ok = w.merged(p, x, f)
	}
	if !ok {
		return r, false
	}
	return ready{at: h.p.sent[h.i].landed(), hop: h}, true
}

// merged returns the input from which a switch made a packet of a group: for feedback the feedback of
// its paths, for a sum the parts of members; the last of them.
func (w *walk) merged(p *port, x *packet, f *flow) (h hop, ok bool) {
	if f.kind != traces.PacketAck && f.kind != traces.PacketNak {
		return w.cause(p.node, x, filter{kind: f.kind, lane: f.lane, any: true})
	}
	for _, kind := range []string{f.kind, traces.PacketAck, traces.PacketNak, traces.PacketData} {
		if h, ok = w.cause(p.node, x, filter{kind: kind, lane: f.lane, from: (x.psn - 1) & psnMask}); ok {
			return h, true
		}
	}
	return w.cause(p.node, x, filter{kind: traces.PacketData, lane: f.lane, any: true})
}

// made returns the event that let a host send a packet: a post or, for an acknowledgement or an answer,
// the packet that it answers.
func (w *walk) made(p *port, x *packet, f *flow) (r ready, ok bool) {
	switch f.kind {
	case traces.PacketData, traces.PacketRead:
		if t := w.t.transferBy(p.node, f.lane, x.psn, x.start+slack); t != nil {
			return ready{at: t.posted, host: true}, true
		}
		return r, false
	}
	// It answers a request of the host it goes to.
	var asked *transfer
	lane := f.lane
	if !w.t.groups[lane] {
		far, found := w.t.byIP[f.dst]
		if found {
			asked = w.t.byQP[qpKey{far, f.qp}].by(&w.t.steps, -1, x.psn, x.start)
		}
		if asked == nil {
			return r, false
		}
		lane = asked.lane
	}
	want := filter{kind: traces.PacketData, lane: lane, psn: x.psn, one: true}
	if f.kind == traces.PacketResponse {
		want = filter{kind: traces.PacketRead, lane: lane, x: asked}
	}
	h, ok := w.cause(p.node, x, want)
	if !ok && f.kind == traces.PacketAck { // of an older packet: repeated
		h, ok = w.cause(p.node, x, filter{kind: traces.PacketData, lane: lane, from: 0})
	}
	if !ok {
		return r, false
	}
	return ready{at: h.p.sent[h.i].landed(), hop: h}, true
}

// cause returns the last of the selected packets that had reached a node when a packet began.
func (w *walk) cause(id int, x *packet, f filter) (hop, bool) {
	then := *w
	then.now = x.start
	return then.arrival(id, f)
}

// idle accounts for a stretch in which a port sent nothing although packet cur would have
// been there, or not yet again.
func (w *walk) idle(p *port, cur int, from int64) {
	from = max(from, w.m.Start)
	for w.now > from {
		i := sort.Search(len(p.paused), func(i int) bool { return p.paused[i].from >= w.now }) - 1
		if i < 0 || p.paused[i].to <= from {
			w.still(p, cur, from)
			return
		}
		w.still(p, cur, max(from, p.paused[i].to))
		w.to(Pause, max(from, p.paused[i].from), w.place(p))
		if k := len(w.path) - 1; k >= 0 && w.path[k].Part == Pause.String() {
			w.path[k].By = w.t.nodes[p.to].name
		}
	}
}

// still accounts for a stretch in which a port was idle and not paused.
func (w *walk) still(p *port, cur int, from int64) {
	if w.t.nodes[p.node].ip == "" || !w.repeat(p, cur).before {
		w.to(Queueing, from, w.place(p))
		return
	}
	if at, ok := w.rnr(p, cur); ok {
		w.to(RNR, max(from, at), w.place(p))
	}
	w.to(Retransmission, from, w.place(p))
}

// rnr returns when a receiver sent the RNR NAK after which a host repeated packet cur. There is none if a timeout of the host,
// or another NAK, came later.
func (w *walk) rnr(p *port, cur int) (at int64, ok bool) {
	f := &w.t.flows[p.sent[cur].flow]
	to, found := w.t.byIP[f.dst]
	i := sort.Search(len(w.t.events), func(i int) bool { return w.t.events[i].At > w.now })
	for i--; i >= 0 && w.t.events[i].At >= w.m.Start; i-- {
		w.t.steps++
		switch e := &w.t.events[i]; {
		case e.Op == "nak-sent" && (!found || e.Node == w.t.nodes[to].name):
			return e.At, strings.HasPrefix(e.Text, "RNR")
		case e.Op == "timeout" && e.Node == w.t.nodes[p.node].name:
			return 0, false
		}
	}
	return 0, false
}

// repeat returns the repeats of packet i of a port: an earlier or a later transmission. Numbers wrap
// around: only packets of one request are the same.
func (w *walk) repeat(p *port, i int) repeat {
	if p.repeats == nil {
		p.repeats = make([]repeat, len(p.sent))
		type key struct {
			flow int32
			psn  uint32
		}
		seen := map[key]int{}
		for k := range p.sent {
			x := &p.sent[k]
			key := key{x.flow, x.psn}
			if before, ok := seen[key]; ok {
				lane := w.t.flows[x.flow].lane
				if w.t.transferOf(lane, x.psn, x.start) == w.t.transferOf(lane, x.psn, p.sent[before].start) {
					p.repeats[k].before, p.repeats[before].again = true, int32(k)
				}
			}
			seen[key] = k
		}
	}
	return p.repeats[i]
}
