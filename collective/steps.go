package collective

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// stepKind says what a step asks for.
type stepKind string

// Kinds of steps.
const (
	stepStop   stepKind = "stop"   // leave the group and the overlay; say whether the message is there
	stepPlan   stepKind = "plan"   // who is alive and who apart, and what group to use from now on
	stepTry    stepKind = "try"    // register a group
	stepProbe  stepKind = "probe"  // be ready for a test of it
	stepTest   stepKind = "test"   // its source sends
	stepDrop   stepKind = "drop"   // forget it
	stepSample stepKind = "sample" // say how far the message has come, again and again
	stepEnd    stepKind = "end"    // there are no more steps
)

// step is what the source of a message has all ranks do.
type step struct {
	Kind    stepKind   `json:"kind"`
	From    int        `json:"from"`              // the source
	Seq     int        `json:"seq"`               // its message
	Epoch   int        `json:"epoch"`             // the group; of a plan: -1, no other one
	Members []int      `json:"members,omitempty"` // of a group that is tried
	Alive   []int      `json:"alive,omitempty"`
	Apart   []int      `json:"apart,omitempty"`
	Renew   []int      `json:"renew,omitempty"`   // ranks apart whose connection is made anew
	Lacking []int      `json:"lacking,omitempty"` // who takes part in the overlay of the message
	At      vtime.Time `json:"at,omitempty"`      // of the first sample
	Source  int        `json:"source,omitempty"`  // of a test
	Bytes   int        `json:"bytes,omitempty"`   // of each message of a test
	Count   int        `json:"count,omitempty"`   // of them
	Back    comeback   `json:"back"`
}

// answer is what a rank says to a step.
type answer struct {
	Have bool       `json:"have,omitempty"`
	At   []uint32   `json:"at,omitempty"`   // PSNs that were expected at the samples; missed: none
	Came vtime.Time `json:"came,omitempty"` // when the message was here; 0: it is not
	Err  string     `json:"err,omitempty"`
}

// missed stands for a sample that came too late to be one.
const missed = 1 << 31

// samples is how many a rank takes, a round trip apart.
const samples = 16

// put publishes a step.
func (s *safeguard) put(st step) (number int) {
	st.From, st.Back = s.me(), s.back
	b, err := json.Marshal(st)
	if err != nil {
		panic(fmt.Sprintf("collective: write step: %v", err)) // it has plain fields only
	}
	number = s.step
	s.step++
	s.r.Put(s.key("step/%d", number), b)
	return number
}

// watch is the guard of a rank: it acts on the steps of others.
func (s *safeguard) watch() error {
	for number := 0; ; number++ {
		b := s.r.Get(s.key("step/%d", number))
		var st step
		if err := json.Unmarshal(b, &st); err != nil {
			return fmt.Errorf("read step %d of %s: %w", number, s.label, err)
		}
		if st.Kind == stepEnd {
			return nil
		}
		if st.From == s.me() {
			continue
		}
		a := s.act(number, st)
		s.step = number + 1
		said, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("answer step %d of %s: %w", number, s.label, err)
		}
		s.r.Put(s.key("answer/%d/%d", number, s.me()), said)
		s.r.Notify()
	}
}

// act does what a step asks for.
func (s *safeguard) act(number int, st step) (a answer) {
	s.back = st.Back
	var err error
	switch st.Kind {
	case stepStop:
		a.Have = s.stop(st.Seq)
	case stepPlan:
		err = s.adopt(number, st)
		a.Have = s.has(st.Seq)
	case stepTry:
		err = s.register(st.Epoch, st.Members)
	case stepProbe:
		err = s.expectProbe(st)
	case stepTest:
		if t := s.next; st.Source == s.me() && t != nil && t.epoch == st.Epoch {
			a.Err = s.sendTest(t, st.Bytes, st.Count)
		}
	case stepDrop:
		s.dropNext()
	case stepSample:
		a.At = s.sample(st.At)
		if s.came.seq == st.Seq {
			a.Came = s.came.at
		}
	}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// hearing is a value of another rank that this one waits for.
type hearing struct {
	key   string
	heard bool
	value []byte
}

// hear begins to wait for a value.
func (s *safeguard) hear(key string) *hearing {
	h := &hearing{key: key}
	s.open = slices.DeleteFunc(s.open, func(o *hearing) bool { return o.heard })
	s.open = append(s.open, h)
	s.r.Go("hear", func() error {
		h.value = s.r.Get(key)
		h.heard = true
		return nil
	})
	return h
}

// call is a step that ranks answer, and the probes of their adapters beside it.
type call struct {
	to     []int
	heard  []*hearing      // by rank
	probes []*rank.Request // by rank
	failed []string        // by rank: why its adapter does not answer; of all calls together
}

func (s *safeguard) newCall() *call {
	n := s.r.Size()
	return &call{heard: make([]*hearing, n), probes: make([]*rank.Request, n), failed: s.failed}
}

// tell has all ranks that are alive act on a step, and waits until they have. It does not
// wait long for those whose adapters do not answer: they are suspects, or known to have
// failed.
func (s *safeguard) tell(st step) *call {
	c := s.newCall()
	c.to = others(s.alive, s.me())
	number := s.put(st)
	for _, i := range c.to {
		c.heard[i] = s.hear(s.key("answer/%d/%d", number, i))
		c.probe(s, i)
	}
	const why = "the members of a group to answer"
	views := []*rank.Rank{s.base}
	s.r.LookOver(s.r.Now().Add(s.meter.window), why, views, func() bool { return c.all(func(i int) bool { return c.settled(i) }) })
	s.r.LookOver(vtime.Never, why, views, func() bool {
		return c.all(func(i int) bool { return c.settled(i) || !c.probes[i].Done() })
	})
	return c
}

// probe asks a rank's adapter whether it is there.
func (c *call) probe(s *safeguard, i int) {
	conn, err := s.base.Connect(i)
	if err == nil {
		c.probes[i], err = conn.Probe(s.none)
	}
	if err != nil {
		c.failed[i] = err.Error()
	}
}

// all says whether something holds of all ranks that were called.
func (c *call) all(holds func(i int) bool) bool {
	return !slices.ContainsFunc(c.to, func(i int) bool { return !holds(i) })
}

// dead returns why a rank cannot be reached, as far as that is known.
func (c *call) dead(i int) string {
	if q := c.probes[i]; c.failed[i] == "" && q != nil && q.Done() && q.Err() != nil {
		c.failed[i] = "its adapter does not answer"
	}
	return c.failed[i]
}

// settled says whether all is known about a rank: it has answered and can be reached, or it
// cannot.
func (c *call) settled(i int) bool {
	return c.dead(i) != "" || c.heard[i] != nil && c.heard[i].heard && c.probes[i].Done()
}

// answer returns what a rank said, or nil: also of one that was not asked, because it was
// given up before.
func (c *call) answer(i int) *answer {
	h := c.heard[i]
	if h == nil || !h.heard {
		return nil
	}
	a := &answer{}
	if json.Unmarshal(h.value, a) != nil {
		return nil // of a rank that is given up
	}
	return a
}

// sample notes how far the message has come, at instants that are the same at all ranks.
func (s *safeguard) sample(from vtime.Time) (at []uint32) {
	for k := range samples {
		due := from.Add(vtime.Duration(k) * s.meter.rtt)
		s.r.Sleep(due.Sub(s.r.Now()))
		v := uint32(missed)
		if t := s.on; t != nil && s.r.Now() <= due.Add(s.meter.rtt/2) {
			v = t.g.Expects()
		}
		at = append(at, v)
	}
	return at
}
