// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// protocol publishes steps and answers out of band, and probes NICs.
type protocol struct {
	*site
	members *membership
	backoff *backoff

	// acted is the number of steps that were acted on, and so the number of the next one.
	// Invariant: when the source publishes a step it has acted on all earlier ones.
	acted int

	// replies are the values that this rank waits for. Those of ranks that were given up may
	// never come.
	replies []*reply
}

// publish publishes a step and returns its number.
func (p *protocol) publish(st step) (number int) {
	st.From, st.Backoff = p.me(), *p.backoff
	b, err := json.Marshal(st)
	if err != nil {
		panic(fmt.Sprintf("fallback: write step: %v", err)) // cannot happen: a step has only plain fields
	}
	number = p.acted
	p.acted++
	p.r.Put(p.key("step/%d", number), b)
	return number
}

// guard acts on the steps of other ranks and answers them, until the end step.
func (p *protocol) guard(act func(number int, st step) answer) error {
	for number := 0; ; number++ {
		b := p.r.Get(p.key("step/%d", number))
		var st step
		if err := json.Unmarshal(b, &st); err != nil {
			return fmt.Errorf("read step %d of %s: %w", number, p.label, err)
		}
		if st.Kind == kindEnd {
			return nil
		}
		if st.From == p.me() {
			continue
		}
		*p.backoff = st.Backoff
		a := act(number, st)
		p.acted = number + 1
		said, err := json.Marshal(a)
		if err != nil {
			return fmt.Errorf("answer step %d of %s: %w", number, p.label, err)
		}
		p.r.Put(p.key("answer/%d/%d", number, p.me()), said)
		p.r.Notify()
	}
}

// reply is a value of another rank that this one waits for.
type reply struct {
	key   string
	came  bool
	value []byte
}

// await begins to wait for a value.
func (p *protocol) await(key string) *reply {
	a := &reply{key: key}
	p.replies = slices.DeleteFunc(p.replies, func(o *reply) bool { return o.came })
	p.replies = append(p.replies, a)
	p.r.Go("hear", func() error {
		a.value = p.r.Get(key)
		a.came = true
		return nil
	})
	return a
}

// endWaits ends the waits for replies that will never come.
func (p *protocol) endWaits() {
	for _, a := range p.replies {
		if !a.came {
			p.r.Put(a.key, nil)
		}
	}
}

// call is a question to some ranks, together with probes of their NICs.
type call struct {
	*protocol
	to      []int           // the ranks that are asked
	replies []*reply        // by rank; nil: it was not asked
	probes  []*rank.Request // by rank: the last probe; nil: there was none
}

func (p *protocol) newCall(to []int) *call {
	n := p.r.Size()
	return &call{protocol: p, to: to, replies: make([]*reply, n), probes: make([]*rank.Request, n)}
}

// tell publishes a step for all ranks that are alive, and waits until they have acted on it. Ranks
// whose NICs do not answer, because they are suspected or known to have failed, it awaits for at most a
// window.
func (p *protocol) tell(st step) *call {
	c := p.newCall(p.members.others())
	number := p.publish(st)
	for _, i := range c.to {
		c.replies[i] = p.await(p.key("answer/%d/%d", number, i))
		c.probe(i)
	}
	const why = "the members of a group to answer"
	views := []*rank.Rank{p.base}
	rankrun.Of(p.r).LookOver(p.r.Now().Add(p.meter.window), why, views, func() bool { return c.all(c.settled) })
	rankrun.Of(p.r).LookOver(vtime.Never, why, views, func() bool {
		return c.all(func(i int) bool { return c.settled(i) || !c.probes[i].Done() })
	})
	return c
}

// probe probes a rank's NIC.
func (c *call) probe(i int) {
	conn, err := c.base.Connect(i)
	if err == nil {
		c.probes[i], err = rankrun.OfConn(conn).Probe(c.empty)
	}
	if err != nil {
		c.members.unreachable[i] = err.Error()
	}
}

// probeSilent probes a rank's NIC again once the last probe has ended.
func (c *call) probeSilent(i int) {
	if q := c.probes[i]; q == nil || q.Done() {
		c.probe(i)
	}
}

// all reports whether something holds of all ranks that are asked.
func (c *call) all(holds func(i int) bool) bool {
	return !slices.ContainsFunc(c.to, func(i int) bool { return !holds(i) })
}

// unreachable returns why a rank's NIC cannot be reached, or "" if that is not known.
func (c *call) unreachable(i int) string {
	why := &c.members.unreachable[i]
	if q := c.probes[i]; *why == "" && q != nil && q.Done() && q.Err() != nil {
		*why = "its adapter does not answer"
	}
	return *why
}

// settled reports whether the state of a rank is known: it has answered and can be reached, or
// it cannot be reached.
func (c *call) settled(i int) bool {
	return c.unreachable(i) != "" || c.replies[i] != nil && c.replies[i].came && c.probes[i].Done()
}

// reached reports whether a rank has answered and can be reached.
func (c *call) reached(i int) bool { return c.settled(i) && c.unreachable(i) == "" }

// answer returns a rank's answer, or nil if it has not answered, or was not asked because it
// had been given up.
func (c *call) answer(i int) *answer {
	q := c.replies[i]
	if q == nil || !q.came {
		return nil
	}
	a := &answer{}
	if json.Unmarshal(q.value, a) != nil {
		return nil // the rank has been given up
	}
	return a
}

// checkWindows is the number of windows after which a source checks whether the ranks that it
// waits for are still reachable.
const checkWindows = 10

// nextCheck returns the time of the source's next check.
func (p *protocol) nextCheck() vtime.Time { return p.r.Now().Add(checkWindows * p.meter.window) }
