// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Relay passes a message along a tree of unicast connections. Package collective implements
// it.
type Relay interface {
	// Begin posts the receives of a message and connects the rank with its neighbours.
	Begin(b *rank.Buffer, n, root int) error
	// Run passes the message on and returns when the rank had received it.
	Run() (received vtime.Time, err error)
	// Received reports whether all of the message is here, as far as the rank has looked.
	Received() bool
}

// chainFrom is the size from which messages go along a chain, in slices, and not down a
// binomial tree (CEP-46).
const chainFrom = 64 << 10

// overlay is a tree of unicast connections among some ranks (BAS-16). When one of its
// connections fails the whole overlay is closed; the next overlay has connections of its own.
type overlay struct {
	*site
	newRelay func(r *rank.Rank, chain bool) Relay

	// name is part of the keys that the members use. Invariant: two overlays of different
	// members, or for different plans, have different names.
	name string

	// members are its ranks. Invariant: this rank is among them.
	members []int

	// view is the rank as a member; nil: there is no overlay.
	view *rank.Rank

	// run is the last message that went over it; nil: none did.
	run *relaying
}

// relaying is one message in an overlay. A worker passes it on.
type relaying struct {
	seq   int
	relay Relay
	ended bool
	err   error
}

// overlayOf returns the name and the members of the overlay of a message: the ranks that lack
// it according to the plan, or all ranks that are not apart. There are no members if this rank
// would not be among them, or would be alone.
func overlayOf(m *membership, seq, source int) (name string, members []int) {
	name, members = fmt.Sprintf("over/%d", m.plan.number), m.together()
	if lacking := m.lacking(seq); lacking != nil {
		name, members = name+"/rest", lacking
	}
	if !slices.Contains(members, m.me) || !slices.Contains(members, source) || len(members) < 2 {
		return "", nil
	}
	return name, members
}

// join begins to pass a message on in the overlay that the membership gives, unless the rank
// has begun already. It reports whether the rank is in the overlay.
func (o *overlay) join(m *membership, msg *message) (in bool, err error) {
	if m.halted {
		return false, nil
	}
	name, members := overlayOf(m, msg.seq, msg.source)
	if members == nil {
		return false, nil
	}
	if o.view == nil || o.name != name {
		if err := o.open(name, members, msg.interruptions); err != nil {
			return false, err
		}
	}
	if o.run == nil || o.run.seq != msg.seq {
		o.start(msg)
	}
	return true, nil
}

// open makes the overlay one of the given members.
func (o *overlay) open(name string, members []int, interruptions int) error {
	o.close()
	view, err := o.r.Sub(o.key("%s", name), members)
	if err != nil {
		return err
	}
	view.Survive()
	// Packets of the group may take long to leave the queues, and a retransmission timeout
	// that is too short adds to them.
	rankrun.Of(view).SetTimeout(o.meter.window << min(interruptions, 5))
	o.name, o.members, o.view = name, members, view
	return nil
}

// start begins to pass a message on.
func (o *overlay) start(msg *message) {
	run := &relaying{seq: msg.seq, relay: o.newRelay(o.view, msg.n >= chainFrom)}
	o.run = run
	buf, n, root, done := msg.buf, msg.n, slices.Index(o.members, msg.source), o.done(msg.seq, o.me())
	o.r.Go("overlay", func() error {
		if run.err = run.relay.Begin(buf, n, root); run.err == nil {
			_, run.err = run.relay.Run()
		}
		run.ended = true
		said := ""
		if run.err != nil {
			said = run.err.Error()
		}
		o.r.Put(done, []byte(said))
		return nil
	})
}

// done returns the key that a member publishes when its part of a message has ended.
func (o *overlay) done(seq, member int) string {
	return o.key("%s/done/%d/%d", o.name, seq, member)
}

// received reports whether all of a message is here, as far as the rank has looked.
func (r *relaying) received(seq int) bool { return r != nil && r.seq == seq && r.relay.Received() }

// close ends the overlay, if there is one. Its outstanding requests fail.
func (o *overlay) close() {
	if o.view == nil {
		return
	}
	rankrun.Of(o.view).Break()
	o.view.Close()
	o.view, o.run = nil, nil
}
