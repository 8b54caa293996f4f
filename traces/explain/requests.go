// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"sort"

	"github.com/mcastlab/mcastlab/core/wire"
)

// requests are work requests in the order of posting, and which of them has a packet number. Requests of one sender
// take numbers that follow each other, so that a search over a stretch of them finds a number; any other line of a
// trace begins another stretch. Thousands may be under way at a time, and each packet asks.
type requests struct {
	all     []*transfer
	senders []*sender
	byNode  map[int]*sender
}

// sender are the requests of one node.
type sender struct{ stretches []stretch }

// stretch are requests whose packet numbers follow each other. A request's first number is counted on where numbers
// come around.
type stretch struct {
	all   []*transfer
	index []int    // of each in requests.all
	first []uint64 // numbers of each
	next  uint64
}

// add takes the next request.
func (r *requests) add(x *transfer) {
	if r.byNode == nil {
		r.byNode = map[int]*sender{}
	}
	s := r.byNode[x.node]
	if s == nil {
		s = &sender{}
		r.byNode[x.node] = s
		r.senders = append(r.senders, s)
	}
	k := len(s.stretches) - 1
	if k < 0 || uint32(s.stretches[k].next)&psnMask != x.psn&psnMask {
		s.stretches = append(s.stretches, stretch{next: uint64(x.psn & psnMask)})
		k++
	}
	t := &s.stretches[k]
	t.all, t.index, t.first = append(t.all, x), append(t.index, len(r.all)), append(t.first, t.next)
	t.next += uint64(max(0, x.packets))
	r.all = append(r.all, x)
}

// by returns the last request that had been posted at an instant and has a packet number; node -1: of any node.
func (r *requests) by(steps *uint64, node int, psn uint32, at int64) *transfer {
	if r == nil {
		return nil
	}
	best := -1
	look := func(s *sender) {
		if i, ok := s.last(steps, psn, at); ok {
			best = max(best, i)
		}
	}
	if node < 0 {
		for _, s := range r.senders {
			look(s)
		}
	} else if s := r.byNode[node]; s != nil {
		look(s)
	}
	if best < 0 {
		return nil
	}
	return r.all[best]
}

// last returns the index of the last request of a sender that had been posted at an instant and has a packet number.
func (s *sender) last(steps *uint64, psn uint32, at int64) (index int, ok bool) {
	for k := len(s.stretches) - 1; k >= 0; k-- {
		*steps++
		t := &s.stretches[k]
		n := after(t.all, at)
		if n == 0 {
			continue
		}
		const turn = uint64(wire.PSNMask) + 1
		end := t.first[n-1] + uint64(max(0, t.all[n-1].packets))
		if end == t.first[0] {
			continue
		}
		// The largest number below the end that is psn when it has come around.
		number := end - 1 - (end-1-uint64(psn&psnMask))%turn
		if psn64 := uint64(psn & psnMask); psn64 > end-1 || number < t.first[0] {
			continue
		}
		i := sort.Search(n, func(i int) bool { return t.first[i] > number }) - 1
		for ; i >= 0 && !t.all[i].has(psn); i-- { // requests without packets
			*steps++
		}
		if i >= 0 {
			return t.index[i], true
		}
	}
	return 0, false
}

// after returns the number of requests posted before an instant.
func after(all []*transfer, at int64) int {
	return sort.Search(len(all), func(i int) bool { return all[i].posted > at })
}

// transferOf returns the request that a packet of a lane belonged to at an instant, or nil.
func (t *Trace) transferOf(lane int, psn uint32, at int64) *transfer {
	return t.transferBy(-1, lane, psn, at)
}

// transferBy is transferOf for the requests of one node; -1: of all. Several hosts may send to a group
// at a time, whose switches add up their numbers.
func (t *Trace) transferBy(node, lane int, psn uint32, at int64) *transfer {
	return t.byLane[lane].by(&t.steps, node, psn, at)
}

// streamKey identifies the packets of one stream at a port: on a host by the message of their data, else by kind
// and lane.
type streamKey struct {
	message *Message
	kind    string
	lane    int
}

// stream returns which stream packet k of a port is of. One without a message is of none: ok is false.
func (t *Trace) stream(p *port, k int) (key streamKey, ok bool) {
	f := &t.flows[p.sent[k].flow]
	if t.nodes[p.node].ip == "" || !isData(f) {
		return streamKey{kind: f.kind, lane: f.lane}, true
	}
	x := t.transferBy(p.node, f.lane, p.sent[k].psn, p.sent[k].start+slack)
	if x == nil || x.message == nil {
		return key, false
	}
	return streamKey{message: x.message}, true
}

// streams returns a port's packets by stream, in the order of time.
func (t *Trace) streams(p *port) map[streamKey][]int32 {
	if p.streams == nil {
		p.streams = map[streamKey][]int32{}
		for k := range p.sent {
			t.steps++
			if key, ok := t.stream(p, k); ok {
				p.streams[key] = append(p.streams[key], int32(k))
			}
		}
	}
	return p.streams
}
