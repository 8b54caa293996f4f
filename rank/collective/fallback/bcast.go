// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Config has the parameters of New.
type Config struct {
	// Label distinguishes several broadcasts of a job.
	Label string
	// Partial serves members that hold up the others one by one.
	Partial bool
	// NewRelay returns a Relay among all ranks of a view: along a chain, in as many slices as
	// there are ranks, or else down a binomial tree, in one piece.
	NewRelay func(r *rank.Rank, chain bool) Relay
}

// Bcast is one rank's side of a broadcast with a fallback. Its methods are those of the
// algorithms of package collective.
type Bcast struct {
	*site
	scratch *rank.Buffer // where the messages of tests land

	members    membership
	epochs     epochs
	overlay    overlay
	stragglers stragglers

	protocol protocol
	guard    *rank.Worker // acts on the steps of others

	// begun is the number of messages begun. Invariant: it is msg.seq + 1.
	begun   int
	msg     message
	arrived arrival

	linked []int // sources whose connections for probes were made
	did    Safety
}

// message is the current message, which is the one begun last.
type message struct {
	seq, n, source int
	buf            *rank.Buffer

	// epoch is the group that recv is posted to. A receive that a step has cut off is nil.
	epoch *epoch
	recv  *rank.Request

	// slices are the receives of a rank that is served apart, posted to line; nil: none are
	// posted.
	slices []*rank.Request
	line   *line

	interruptions int // how often the message was interrupted

	have  bool       // all of the message is here
	at    vtime.Time // when it was complete
	apart bool       // the source sent it to this rank alone
}

// arrival is the time at which a message was complete.
type arrival struct {
	seq int
	at  vtime.Time
}

// probeWindows is the least timeout of a probe in windows. A slow NIC must not look dead
// because of data that it has accepted and must process first.
const probeWindows = 4

// probeClass is the traffic class of probes: DSCP 48, as of registration.
const probeClass = 48 << 2

// New makes a broadcast and registers its group. A group that cannot be registered is no
// error: the broadcast starts without it. All ranks must call New.
func New(r *rank.Rank, c Config) (*Bcast, error) {
	s := &site{r: r, label: "bcast/" + c.Label, partial: c.Partial, meter: newMeter(r)}
	b := &Bcast{
		site: s, members: newMembership(r.ID(), r.Size()), msg: message{seq: -1, have: true},
		overlay:    overlay{site: s, newRelay: c.NewRelay},
		stragglers: stragglers{site: s, of: make([]straggler, r.Size())},
	}
	b.epochs = epochs{site: s, backoff: backoff{Hold: holdWindows * s.meter.window, Left: -1}}
	b.protocol = protocol{site: s, members: &b.members, backoff: &b.epochs.backoff}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	if err := b.epochs.register(0, b.members.alive); err != nil {
		return nil, err
	}
	first := b.epochs.candidate
	r.Until("group "+s.label+" to be registered", func() bool { return first.ended })
	if first.err == nil {
		b.epochs.promote(first.number)
	} else {
		b.epochs.backoff.failed(r.Now(), s.meter.window)
		if r.ID() == r.First() {
			b.noteFallback(first, first.err.Error())
		}
		b.epochs.drop()
	}
	b.guard = r.Go("guard", func() error { return b.protocol.guard(b.act) })
	return b, nil
}

// prepare makes the connections and memory that probes and tests need.
func (b *Bcast) prepare() (err error) {
	if b.base, err = b.r.Sub(b.label+"/base", b.members.alive); err != nil {
		return err
	}
	b.base.Survive() // the program handles the failures of this view and of the others
	// Probes must not wait behind data, and must outlast the queues in NICs.
	rankrun.Of(b.base).SetTrafficClass(probeClass)
	rankrun.Of(b.base).SetTimeout(probeWindows * b.meter.window)
	if b.empty, err = b.r.Alloc(1, rank.MemoryBytes); err != nil {
		return err
	}
	b.scratch, err = b.r.Alloc(b.testBytes(), rank.MemoryPhantom)
	return err
}

// Begin posts the receives of a message, as package collective requires of an algorithm. A new
// source takes the group over.
func (b *Bcast) Begin(buf *rank.Buffer, n, source int) error {
	b.msg = message{seq: b.begun, buf: buf, n: n, source: source}
	b.begun++
	b.members.sends(source)
	if b.members.lost() {
		return nil
	}
	if err := b.link(source); err != nil {
		return err
	}
	if err := b.setSource(source); err != nil {
		return err
	}
	return b.post(false)
}

// link connects a source to all ranks for probes, while all of them are still alive.
func (b *Bcast) link(source int) error {
	if slices.Contains(b.linked, source) {
		return nil
	}
	b.linked = append(b.linked, source)
	peers := []int{source}
	if source == b.me() {
		peers = b.members.others() // ascending, so that no cycle of ranks waits for each other
	}
	for _, p := range peers {
		if _, err := b.base.Connect(p); err != nil {
			return err
		}
	}
	return nil
}

// setSource sets the source of the group in use, if the source is a member.
func (b *Bcast) setSource(source int) error {
	if e := b.epochs.current; e.has(source) {
		return e.group.SetSource(slices.Index(e.members, source))
	}
	return nil
}

// Run moves the message. It returns when the rank had received all of it, and when everything
// that the rank sent was acknowledged.
func (b *Bcast) Run() (received, done vtime.Time, err error) {
	if b.msg.source == b.me() {
		received = b.r.Now()
		err = b.send()
		return received, b.r.Now(), err
	}
	err = b.receive()
	return b.msg.at, b.r.Now(), err
}

// TakeSafety returns the rank's counts since the last call. Each call lists all lost ranks,
// also those that an earlier call listed.
func (b *Bcast) TakeSafety() *Safety {
	did := b.did
	b.did = Safety{Lost: did.Lost}
	return &did
}

// ServedApart reports whether the source sent the last message to this rank alone.
func (b *Bcast) ServedApart() bool { return b.msg.apart }

// Close releases the broadcast's objects in the fabric. All ranks must call it.
func (b *Bcast) Close() error {
	b.r.Sync() // after this the last source publishes no more steps
	if b.me() == b.members.alive[0] {
		b.protocol.publish(step{Kind: kindEnd})
	}
	if err := b.guard.Join(); err != nil {
		return err
	}
	b.protocol.endWaits()
	b.epochs.drop()
	b.overlay.close()
	if e := b.epochs.current; e != nil {
		end := e.group.Delete
		if len(b.members.alive) < b.r.Size() {
			end = e.group.Drop
		}
		if err := end(); err != nil {
			return err
		}
		e.view.Close()
	}
	b.stragglers.cut(func(*line) bool { return false })
	b.base.Close()
	if err := b.empty.Free(); err != nil {
		return err
	}
	return b.scratch.Free()
}
