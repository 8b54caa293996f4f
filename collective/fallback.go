package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// What a broadcast by in-network multicast does when that does not work (Options.Fallback).
const (
	FallbackOff     = "off"     // it ends with an error
	FallbackFull    = "full"    // all ranks leave multicast (Cepheus §V-D)
	FallbackPartial = "partial" // those that hold the others up are served by unicast
)

// ErrLost is what a rank gets that the source has given up.
var ErrLost = errors.New("the source has given this rank up")

// smallBelow is where the overlay changes from the binomial tree to the sliced chain
// (CEP-46).
const smallBelow = 64 << 10

// safeguard is in-network multicast with a way round it (CEP-46). While the group works it
// is the scheme cepheus. When the group cannot be registered, or moves less than half of
// what is normal over a window, the source has all ranks leave it and sends what they lack,
// the message under way from its beginning, by a binomial tree or a sliced chain of unicast
// connections. Meanwhile the group is registered anew, with a new McstID and new queue
// pairs; once a test of it goes well, between two messages, all ranks are back on it.
//
// All ranks do the same because the source of a message, and nobody else, tells them what
// to do: steps, which have numbers, and which a worker on each rank, the guard, acts on and
// answers (steps.go). The next source begins when the one before is done, and knows all of
// them. Steps travel beside the fabric, as what connections and groups are made of does, so
// a fabric that is broken cannot keep them from being heard; what a rank's adapter can still
// be reached at, probes in the fabric find out.
//
// No rank gets a message twice, nor a part of one: Run returns when all of it is there, what
// is broken off is received again from its beginning, and the queue pairs that could still
// write into the buffer are gone before the others know that they may send.
type safeguard struct {
	r       *rank.Rank
	label   string
	partial bool
	base    *rank.Rank   // its connections are for probes
	none    *rank.Buffer // for messages of nothing
	scratch *rank.Buffer // where tests of a group land
	meter   *meter

	step   int   // steps that were acted on
	alive  []int // ranks, ascending
	apart  []int // those of them that the source serves one by one
	on     *tree // the group in use; nil: none
	next   *tree // the one that is to be used next
	epochs int   // groups that were begun
	back   comeback
	plan   plan
	halted bool // between a stop and the plan that follows
	lost   bool // this rank was given up

	seq     int // messages begun
	hand    hand
	came    arrival
	roots   []int   // sources so far, each where it was last
	linked  []int   // sources that the rank is connected to
	net     *net    // the overlay in use
	lines   []*line // connections of and with ranks apart
	since   []int   // by rank apart: the plan that made it so
	renewed []int   // by rank apart: times that its connection was made anew
	feeds   []*feed
	well    []bool   // by rank apart: its connection is as fast as any
	meters  []*meter // by rank apart
	open    []*hearing
	failed  []string // by rank: why its adapter could not be reached; the connection is gone
	guard   *rank.Worker
	did     Safety
}

// tree is a group in one epoch.
type tree struct {
	epoch   int
	members []int // the first registers it
	sub     *rank.Rank
	g       *rank.Group
	since   vtime.Time
	over    bool // the registration has ended,
	err     error
	dropped bool // or is of no use any more
}

// plan is what a step said about the message under way.
type plan struct {
	number  int   // of the step
	seq     int   // message
	lacking []int // who takes part in its overlay, the source included; nil: all that are not apart
}

// hand is the message that the rank has in hand.
type hand struct {
	seq, n, root int
	b            *rank.Buffer
	tree         *tree // where recv is posted
	recv         *rank.Request
	slices       []*rank.Request // of a rank apart, posted on line
	line         *line
	breaks       int        // times it was broken off
	have         bool       // all of it is here
	at           vtime.Time // since when
	apart        bool       // the source sent it to this rank alone
}

// arrival is when a message came.
type arrival struct {
	seq int
	at  vtime.Time
}

// Safety is what the sources of a group did beside multicast.
type Safety struct {
	Fallbacks int      `json:"fallbacks"`           // times that the group left multicast
	Returns   int      `json:"returns"`             // and came back to it
	Probes    int      `json:"probes,omitempty"`    // tests of a group that was registered anew
	Overlay   int      `json:"overlay,omitempty"`   // messages that went by the overlay, at least to some
	Apart     int      `json:"apart,omitempty"`     // messages to single ranks
	Restarted int      `json:"restarted,omitempty"` // messages that were broken off and begun again
	Causes    []string `json:"causes,omitempty"`    // of the fallbacks
	Lost      []Lost   `json:"lost,omitempty"`
}

// Lost is a rank that was given up.
type Lost struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Why  string `json:"why"`
}

// Add adds what another rank did.
func (s *Safety) Add(o Safety) {
	s.Fallbacks += o.Fallbacks
	s.Returns += o.Returns
	s.Probes += o.Probes
	s.Overlay += o.Overlay
	s.Apart += o.Apart
	s.Restarted += o.Restarted
	s.Causes = append(s.Causes, o.Causes...)
	s.Lost = append(s.Lost, o.Lost...)
}

// SafetyOf returns what an algorithm has done on this rank since the last call, or nil if it
// has no fallback. Ranks that were lost before are told again.
func SafetyOf(a Algorithm) *Safety {
	s, ok := a.(*safeguard)
	if !ok {
		return nil
	}
	did := s.did
	s.did = Safety{Lost: did.Lost}
	return &did
}

// ServedApart says whether the source sent the last message to this rank alone.
func ServedApart(a Algorithm) bool {
	s, ok := a.(*safeguard)
	return ok && s.hand.apart
}

// patience is how many windows the timeout of a probe is, at the least. Data that a slow
// adapter has taken in, and has to get through first, must not make it look dead.
const patience = 4

// probeClass is DSCP 48, as of registration.
const probeClass = 48 << 2

// newSafeguard registers the group. That it cannot be registered is no error.
func newSafeguard(r *rank.Rank, o Options) (Algorithm, error) {
	s := &safeguard{r: r, label: "bcast/" + o.Label, partial: o.Fallback == FallbackPartial, meter: newMeter(r)}
	s.back = comeback{Hold: holdWindows * s.meter.window, Who: -1}
	for i := range r.Size() {
		s.alive = append(s.alive, i)
	}
	s.hand.seq, s.hand.have = -1, true
	s.plan.number = -1
	s.well, s.meters, s.since, s.failed = make([]bool, r.Size()), make([]*meter, r.Size()), make([]int, r.Size()), make([]string, r.Size())
	s.renewed = make([]int, r.Size())
	var err error
	if s.base, err = r.Sub(s.label+"/base", s.alive); err != nil {
		return nil, err
	}
	s.base.Survive() // here and in its other views the rank looks at failures itself
	// Probes do not wait behind data, and are patient with what waits in adapters.
	s.base.SetTrafficClass(probeClass)
	s.base.SetTimeout(patience * s.meter.window)
	if s.none, err = r.Alloc(1, rank.MemoryBytes); err != nil {
		return nil, err
	}
	if s.scratch, err = r.Alloc(s.probeBytes(), rank.MemoryPhantom); err != nil {
		return nil, err
	}
	if err := s.register(0, s.alive); err != nil {
		return nil, err
	}
	t := s.next
	r.Until("group "+s.label+" to be registered", func() bool { return t.over })
	if t.err == nil {
		s.on, s.next = t, nil
	} else {
		s.back.failed(r.Now(), s.meter.window)
		if r.ID() == r.First() {
			s.fell(t, t.err.Error())
		}
		s.dropNext()
	}
	s.guard = r.Go("guard", s.watch)
	return s, nil
}

func (s *safeguard) me() int { return s.r.ID() }

// key names what ranks tell each other.
func (s *safeguard) key(format string, args ...any) string {
	return s.label + "/" + fmt.Sprintf(format, args...)
}

// Begin implements Algorithm. A new source takes the group over, as in cepheus.
func (s *safeguard) Begin(b *rank.Buffer, n, root int) error {
	s.hand = hand{seq: s.seq, b: b, n: n, root: root}
	s.seq++
	s.roots = append(others(s.roots, root), root)
	if s.lost {
		return nil
	}
	if err := s.link(root); err != nil {
		return err
	}
	if t := s.on; t != nil {
		if at := slices.Index(t.members, root); at >= 0 {
			if err := t.g.SetSource(at); err != nil {
				return err
			}
		}
	}
	return s.post(false)
}

// link connects a source with everybody, for probes, while they are all there.
func (s *safeguard) link(root int) error {
	if slices.Contains(s.linked, root) {
		return nil
	}
	s.linked = append(s.linked, root)
	peers := []int{root}
	if root == s.me() {
		peers = others(s.alive, root)
	}
	return connectAny(s.base, peers)
}

// others returns the ranks of a list that are not in another.
func others(all []int, but ...int) (rest []int) {
	for _, i := range all {
		if !slices.Contains(but, i) {
			rest = append(rest, i)
		}
	}
	return rest
}

// Run implements Algorithm.
func (s *safeguard) Run() (t Times, err error) {
	if s.hand.root == s.me() {
		t.Received = s.r.Now()
		err = s.send()
		t.Done = s.r.Now()
		return t, err
	}
	err = s.receive()
	return Times{s.hand.at, s.r.Now()}, err
}

// Close implements Algorithm.
func (s *safeguard) Close() error {
	s.r.Sync() // the last source has no more steps
	if s.me() == s.alive[0] {
		s.put(step{Kind: stepEnd})
	}
	if err := s.guard.Join(); err != nil {
		return err
	}
	for _, h := range s.open { // of ranks that will never answer
		if !h.heard {
			s.r.Put(h.key, nil)
		}
	}
	s.dropNext()
	s.breakNet()
	if s.on != nil {
		end := s.on.g.Delete
		if len(s.alive) < s.r.Size() {
			end = s.on.g.Drop
		}
		if err := end(); err != nil {
			return err
		}
		s.on.sub.Close()
	}
	s.cutLines(func(*line) bool { return false })
	s.base.Close()
	if err := s.none.Free(); err != nil {
		return err
	}
	return s.scratch.Free()
}
