// SPDX-License-Identifier: Apache-2.0

// Package flows is a mix of flows that begin and end while others are under way, as in experiments on
// fairness (APP-7). A flow to one host is a reliable connection, one to several hosts a multicast. While it
// lasts, a flow sends one message after the other. Its row has the bytes received in each interval.
package flows

import (
	"bytes"
	"fmt"
	"math/bits"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Name is the workload's name in lab files and reports.
const Name = "flows"

// Flow is one flow between ranks.
type Flow struct {
	Name  string         `json:"name"`
	From  int            `json:"from"` // rank
	To    []int          `json:"to"`   // ranks; several: by multicast
	Begin vtime.Duration `json:"begin"`
	End   vtime.Duration `json:"end"` // no message is begun from then on
}

// Params holds the workload's parameters.
type Params struct {
	Workload    string          `json:"workload"` // label in reports
	Flows       []Flow          `json:"flows"`
	Message     int             `json:"message"`     // bytes
	Outstanding int             `json:"outstanding"` // messages of a flow that are under way at most
	Interval    vtime.Duration  `json:"interval"`
	Memory      rank.MemoryKind `json:"memory"`
	Seed        uint64          `json:"seed"`
}

// record holds one rank's measurements of one flow. Times are picoseconds of lab time.
type record struct {
	Flow     int        `json:"flow"`  // index into Params.Flows
	Start    vtime.Time `json:"start"` // instant from which the times of all flows count
	Messages int        `json:"messages"`
	Last     vtime.Time `json:"last"`            // source: when all was acknowledged; receiver: when the last message had come
	Bytes    []int64    `json:"bytes,omitempty"` // receiver: by interval
	Wrong    bool       `json:"wrong,omitempty"` // receiver: a byte was wrong
}

// App is the workload. It implements apps.App.
type App struct {
	// Delivered, if set, is called on each receiver before a message is checked. Tests use it to damage
	// the bytes and see that the check fails.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// port sends and receives the messages of a flow: a connection or a group.
type port interface {
	Send(b *rank.Buffer, off, n int) (*rank.Request, error)
	Recv(b *rank.Buffer, off, n int) (*rank.Request, error)
}

// side is one rank's part of a flow.
type side struct {
	app   App
	p     *Params
	index int
	r     *rank.Rank // the view of the flow's ranks; its rank 0 is the source
	port  port
	group *rank.Group // nil: the port is a connection
	buf   *rank.Buffer
	slots int // messages that the buffer holds
	posts []*rank.Request
	start vtime.Time
	rec   record
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return err
	}
	var sides []*side
	for i := range p.Flows { // in one order on all ranks, since making a connection waits for the peer
		s, err := a.prepare(r, &p, i)
		if err != nil {
			return fmt.Errorf("%s, flow %s: %w", p.Workload, p.Flows[i].Name, err)
		}
		if s != nil {
			sides = append(sides, s)
		}
	}
	r.Sync()
	start := r.Now()
	var workers []*rank.Worker
	for _, s := range sides {
		s.start = start
		workers = append(workers, r.Go("flow "+p.Flows[s.index].Name, s.run))
	}
	for i, w := range workers {
		if err := w.Join(); err != nil {
			return fmt.Errorf("%s, flow %s: %w", p.Workload, p.Flows[sides[i].index].Name, err)
		}
	}
	for _, s := range sides {
		if err := apps.Emit(r, s.rec); err != nil {
			return err
		}
	}
	r.Sync()
	for _, s := range sides {
		if err := s.close(); err != nil {
			return fmt.Errorf("%s, flow %s: %w", p.Workload, p.Flows[s.index].Name, err)
		}
	}
	return nil
}

// prepare makes this rank's part of a flow, or returns nil if it has none.
func (a App) prepare(r *rank.Rank, p *Params, i int) (s *side, err error) {
	f := &p.Flows[i]
	members := append([]int{f.From}, f.To...)
	mine := false
	for _, m := range members {
		mine = mine || m == r.ID()
	}
	if !mine {
		return nil, nil
	}
	s = &side{app: a, p: p, index: i, slots: p.Outstanding, rec: record{Flow: i}}
	if s.r, err = r.Sub(fmt.Sprintf("flow/%d", i), members); err != nil {
		return nil, err
	}
	if len(f.To) > 1 {
		s.group, err = s.r.NewGroup("flow", 0)
		s.port = s.group
	} else {
		s.port, err = s.r.Connect(1 - s.r.ID())
	}
	if err != nil {
		return nil, err
	}
	if s.r.ID() != 0 {
		s.slots = 2*p.Outstanding + 1 // one for the message without bytes that ends the flow
	}
	room := p.Message
	if p.Memory == rank.MemoryBytes {
		room *= s.slots
	}
	if s.buf, err = s.r.Alloc(room, p.Memory); err != nil {
		return nil, err
	}
	for k := 0; s.r.ID() != 0 && k < s.slots; k++ {
		if err := s.post(k); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// offset returns where message k is in the buffer.
func (s *side) offset(k int) int {
	if s.p.Memory != rank.MemoryBytes {
		return 0
	}
	return k % s.slots * s.p.Message
}

// seed returns the seed of the contents of message k.
func (s *side) seed(k int) uint64 { return prng.Mix(s.p.Seed ^ uint64(s.index)<<48 ^ uint64(k)) }

// post posts the receive of message k.
func (s *side) post(k int) error {
	q, err := s.port.Recv(s.buf, s.offset(k), s.p.Message)
	s.posts = append(s.posts, q)
	return err
}

// run is the rank's part from the common start on.
func (s *side) run() error {
	s.rec.Start = s.start
	if s.r.ID() == 0 {
		return s.send()
	}
	return s.receive()
}

// send sends messages from the flow's begin until its end, and then one without bytes.
func (s *side) send() error {
	f := &s.p.Flows[s.index]
	s.r.Sleep(s.start.Add(f.Begin).Sub(s.r.Now()))
	s.r.Report(fmt.Sprintf("%s, flow %s begins", s.p.Workload, f.Name))
	until := s.start.Add(f.End)
	for k := 0; s.r.Now() < until; k++ {
		if mem := s.buf.Bytes(); mem != nil {
			prng.Fill(mem[s.offset(k):s.offset(k)+s.p.Message], s.seed(k), 0)
		}
		q, err := s.port.Send(s.buf, s.offset(k), s.p.Message)
		if err != nil {
			return err
		}
		s.rec.Messages++
		if s.posts = append(s.posts, q); len(s.posts) >= s.slots {
			if err := s.r.Wait(s.posts[0]); err != nil {
				return err
			}
			s.posts = s.posts[1:]
		}
	}
	if err := s.r.Wait(s.posts...); err != nil {
		return err
	}
	s.rec.Last = s.r.Now()
	q, err := s.port.Send(s.buf, 0, 0)
	if err != nil {
		return err
	}
	return s.r.Wait(q)
}

// receive receives messages until the one without bytes.
func (s *side) receive() error {
	s.rec.Last = s.start.Add(s.p.Flows[s.index].Begin)
	for k := 0; ; k++ {
		q := s.posts[0]
		s.posts = s.posts[1:]
		if err := s.r.Wait(q); err != nil {
			return err
		}
		if q.Len() == 0 {
			return nil
		}
		now := s.r.Now()
		s.rec.Messages++
		s.count(s.rec.Last, now, int64(q.Len()))
		s.rec.Last = now
		if err := s.check(k, q.Len()); err != nil {
			return err
		}
		if err := s.post(k + s.slots); err != nil {
			return err
		}
	}
}

// check compares the bytes of message k.
func (s *side) check(k, n int) error {
	if s.app.Delivered != nil {
		s.app.Delivered(s.r, s.buf)
	}
	mem := s.buf.Bytes()
	if mem == nil {
		return nil
	}
	got := mem[s.offset(k) : s.offset(k)+n]
	want := make([]byte, s.p.Message)
	prng.Fill(want, s.seed(k), 0)
	s.rec.Wrong = s.rec.Wrong || !bytes.Equal(got, want)
	clear(got) // so that a message which does not come is not taken for the one before
	return nil
}

// intervalsMax bounds the intervals of a flow. What comes later counts in the last one.
const intervalsMax = 20_000

// count adds the bytes of a message to the intervals in which it came, as if it had come evenly from the
// instant at which the message before had.
func (s *side) count(from, to vtime.Time, n int64) {
	whole, done := uint64(max(1, to.Sub(from))), int64(0)
	for done < n {
		k := min(int(from.Sub(s.start)/s.p.Interval), intervalsMax-1)
		for len(s.rec.Bytes) <= k {
			s.rec.Bytes = append(s.rec.Bytes, 0)
		}
		border := s.start.Add(vtime.Duration(k+1) * s.p.Interval)
		upTo := n
		if border < to && k < intervalsMax-1 {
			hi, lo := bits.Mul64(uint64(n), whole-uint64(to.Sub(border)))
			q, _ := bits.Div64(hi, lo, whole)
			upTo = int64(q)
		}
		s.rec.Bytes[k] += upTo - done
		done, from = upTo, border
	}
}

// close releases the rank's objects of the flow. What was posted and never used goes with the queue pair.
func (s *side) close() error {
	if s.group != nil {
		if err := s.group.Delete(); err != nil {
			return err
		}
		return s.buf.Free()
	}
	return nil
}
