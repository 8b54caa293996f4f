// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/test/golden"
)

// start is the clock of the tests, and until is the deadline of their clients.
const (
	start = int64(1_800_000_000_000_000_000)
	until = start + int64(Retry)
)

// story returns the commands of a lab's life, one of each kind.
func story() []Command {
	c := func(seq uint64, k Kind, f func(*Command)) Command {
		x := Command{Version: commandVersion, Client: "c1", Seq: seq, Low: seq, At: start + int64(seq), Until: until, Kind: k, Lab: "lab1"}
		if f != nil {
			f(&x)
		}
		return x
	}
	return []Command{
		{Version: commandVersion, At: start, Kind: KindLead, Replica: "controller0"},
		c(1, KindDeploy, func(x *Command) { x.Message, x.Engine, x.Lowers = []byte(`{"schema":"mcastlab/lab/v1"}`), "netns", 4 }),
		c(2, KindPhase, func(x *Command) { x.Phase = PhaseConfiguring }),
		c(3, KindPhase, func(x *Command) { x.Phase = PhaseUp }),
		c(4, KindBegin, func(x *Command) { x.Run = "run-1" }),
		c(5, KindLease, func(x *Command) { x.Run, x.Holder = "run-1", "rank 0" }),
		c(6, KindLease, func(x *Command) {
			x.Run, x.Holder, x.Hosts = "run-1", "rank 1", []uint32{0x0a000001, 0x0a000002}
		}),
		{Version: commandVersion, At: start + 6, Kind: KindDone, Lab: "lab1", Epoch: 2, Done: []Done{{Lower: 2, Stage: StageAdding}}},
		c(7, KindFaults, func(x *Command) {
			x.Faults = []Fault{{ID: "lab-0", Kind: "loss", Text: "{loss: {rate: 0.1}}", Message: []byte(`{"schema":"mcastlab/fault/v1"}`), Origin: 7}, {ID: "lab-1", Kind: "crash", Text: "{crash: {nodes: [h1]}}", Message: []byte(`{"schema":"mcastlab/fault/v1"}`), Origin: 7}}
		}),
		{Version: commandVersion, At: start + 7, Kind: KindDone, Lab: "lab1", Epoch: 2, Done: []Done{{Fault: "lab-0", Stage: StageAdding}, {Fault: "lab-1", Stage: StageAdding, Error: "node h1 is gone"}}},
		c(8, KindReset, func(x *Command) { x.Prefix = "lab-1" }),
		c(9, KindFree, func(x *Command) { x.Run, x.Lower = "run-1", 1 }),
		c(10, KindEnd, func(x *Command) { x.Run, x.Error = "run-1", "transport retry counter exceeded" }),
		c(11, KindBegin, func(x *Command) { x.Run, x.Virtual = "run-2", true }),
		c(12, KindLease, func(x *Command) { x.Run, x.Instant = "run-2", 2_000_000 }),
		c(13, KindLease, func(x *Command) { x.Run, x.Instant = "run-2", 2_000_000 }),
		c(14, KindEnd, func(x *Command) { x.Run = "run-2" }),
	}
}

// TestGolden: commands and snapshots encode to the golden bytes, and decode to the encoded values.
func TestGolden(t *testing.T) {
	var lines []byte
	s := New()
	for i, c := range story() {
		b, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		back, err := DecodeCommand(b)
		if err != nil || fmt.Sprint(back) != fmt.Sprint(c) {
			t.Errorf("command %d: %v came back as %v, %v", i, c, back, err)
		}
		r, err := s.Apply(2, back).Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatalf("after command %d: %v", i, err)
		}
		if x, err := DecodeResult(r); err != nil || x.Error != "" {
			t.Errorf("command %d: %s, %v", i, r, err)
		}
		lines = append(append(append(append(lines, b...), "\n  "...), r...), '\n')
	}
	golden.Compare(t, "testdata/story.golden", string(lines))
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/snapshot.golden", string(b)+"\n")
	back, err := DecodeState(b)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := back.Encode(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("the snapshot came back as %s, %v", again, err)
	}
	if _, err := DecodeCommand([]byte(`{"v":4,"client":"c","seq":1,"at":1,"until":1,"kind":"dance","lab":"l"}`)); err == nil || !strings.Contains(err.Error(), "dance") {
		t.Errorf("a kind that is not known: %v", err)
	}
	for _, bad := range []string{`{"v":5,"at":1,"kind":"lead"}`, `{"v":4,"at":1,"kind":"lead","more":1}`, `{"v":4,"at":1,"kind":"lead"} x`, `{"v":4,"at":1,"kind":"begin","lab":"l"}`, `{"v":4,"at":1,"kind":"lead","instant":-1}`} {
		if _, err := DecodeCommand([]byte(bad)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// TestOlderVersions: commands and snapshots of versions whose labs were texts of lab files are refused, and the
// error says so before it says anything of their fields.
func TestOlderVersions(t *testing.T) {
	_, err := DecodeCommand([]byte(`{"v":2,"client":"c1","seq":1,"low":1,"at":1,"until":2,"kind":"deploy","lab":"lab1","file":"name: lab1\n","engine":"netns"}`))
	if err == nil || err.Error() != "read command: it is of version 2, and this is 4" {
		t.Errorf("a command: %v", err)
	}
	_, err = DecodeState([]byte(`{"schema":"mcastlab/controller/v2","epoch":1,"leader":"","clock":1,"applied":1,"labs":[{"name":"lab1","file":"name: lab1\n"}],"sessions":[]}`))
	if err == nil || err.Error() != `read snapshot: it is "mcastlab/controller/v2", and this version knows "mcastlab/controller/v4"` {
		t.Errorf("a snapshot: %v", err)
	}
}

// TestOnce: a command that is repeated, early or late, gets its first result and has no other
// effect. One whose result may have been dropped is refused.
func TestOnce(t *testing.T) {
	s := up(t, 100)
	lease := Command{Client: "c2", Seq: 1, Low: 1, At: start, Until: until, Kind: KindLease, Lab: "lab1", Run: "run-1"}
	first := s.Apply(1, lease)
	for range 3 {
		if r := s.Apply(9, lease); r != first {
			t.Errorf("again: %+v, first %+v", r, first)
		}
	}
	next := lease
	next.Seq = 2
	if r := s.Apply(9, next); r.Lower != 2 || r.Epoch != 9 {
		t.Errorf("the next command got %+v", r)
	}
	// The client has acknowledged both results: copies of its earlier commands are refused.
	next.Seq, next.Low = 3, 3
	if r := s.Apply(9, next); r.Lower != 3 {
		t.Errorf("the third command got %+v", r)
	}
	if r := s.Apply(9, lease); r.Error == "" || len(s.Lab("lab1").Held()) != 3 {
		t.Errorf("a command whose result was received: %+v", r)
	}
	// The session is dropped, since other clients need the room. A copy of its command still
	// has no effect.
	later := until + 1
	for i := range sessionsMax + 1 {
		x := Command{Client: fmt.Sprintf("d%d", i), Seq: 1, At: later, Until: later + int64(Retry), Kind: KindReset, Lab: "lab1"}
		if r := s.Apply(9, x); r.Error != "" && i < sessionsMax-1 {
			t.Fatalf("client %d: %+v", i, r)
		}
	}
	if len(s.Sessions) > sessionsMax {
		t.Errorf("%d sessions", len(s.Sessions))
	}
	if r := s.Apply(9, lease); r.Error == "" || len(s.Lab("lab1").Held()) != 3 {
		t.Errorf("a command of a client that is forgotten: %+v", r)
	}
	later += int64(Retry) + 1 // the other sessions have expired, too, and there is room again
	if r := s.Apply(9, Command{Client: "e", Seq: 1, At: later, Until: later + int64(Retry), Kind: KindReset, Lab: "lab1"}); r.Error != "" || len(s.Sessions) != 1 {
		t.Errorf("%+v, %d sessions", r, len(s.Sessions))
	}
	if r := s.Apply(9, lease); r.Error == "" || len(s.Lab("lab1").Held()) != 3 {
		t.Errorf("a command of a client that is forgotten, when there is room: %+v", r)
	}
}

// up returns a state with one running lab and one open run.
func up(t *testing.T, lowers uint32) *State {
	t.Helper()
	s := New()
	for i, c := range []Command{
		{Kind: KindDeploy, Lowers: lowers}, {Kind: KindPhase, Phase: PhaseUp}, {Kind: KindBegin, Run: "run-1"},
	} {
		c.Client, c.Seq, c.At, c.Until, c.Lab = "c1", uint64(i)+1, start, until, "lab1"
		if r := s.Apply(1, c); r.Error != "" {
			t.Fatal(r.Error)
		}
	}
	return s
}

// TestQuarantine: an McstID is not leased while it is held, nor in the quarantine that follows. After
// that those that have been free the longest come first. When none is free the error has the time at
// which one will be.
func TestQuarantine(t *testing.T) {
	s := up(t, 3)
	seq := uint64(10)
	do := func(at int64, k Kind, lower uint32) Result {
		seq++
		r := s.Apply(1, Command{Client: "c1", Seq: seq, Low: seq, At: at, Until: start + 2*int64(Quarantine), Kind: k, Lab: "lab1", Run: "run-1", Lower: lower})
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for want := uint32(1); want <= 3; want++ {
		if r := do(start, KindLease, 0); r.Lower != want {
			t.Fatalf("%+v, want %d", r, want)
		}
	}
	if r := do(start, KindLease, 0); r.Error != "all 3 McstIDs of lab lab1 are in use or in quarantine: end a group" {
		t.Errorf("%+v", r)
	}
	do(start, KindFree, 2)
	do(start+int64(time.Minute), KindFree, 1)
	if r := do(start+int64(Quarantine)-1, KindLease, 0); !strings.Contains(r.Error, "the first is free in 1s") {
		t.Errorf("%+v", r)
	}
	if r := do(start+int64(Quarantine), KindLease, 0); r.Lower != 2 {
		t.Errorf("%+v, want 2", r)
	}
	// The clock of the state never goes back, even if a leader's clock does.
	if r := do(start, KindLease, 0); r.Error == "" {
		t.Errorf("%+v", r)
	}
	if r := do(start+int64(Quarantine)+int64(time.Minute), KindLease, 0); r.Lower != 1 {
		t.Errorf("%+v, want 1", r)
	}
	// The McstIDs of a lab that is deployed again go into quarantine, too.
	r := s.Apply(1, Command{Client: "c9", Seq: 1, At: s.Clock, Until: s.Clock + 1, Kind: KindDeploy, Lab: "lab1", Lowers: 3})
	l := s.Lab("lab1")
	if r.Error != "" || len(l.Leases) != 3 || len(l.Held()) != 0 || s.Check() != nil {
		t.Errorf("%+v, leases %v, %v", r, l.Leases, s.Check())
	}
}

// TestDoneOfOld: a report of a leader of an older epoch is ignored, and so is a report about a
// stage that has passed.
func TestDoneOfOld(t *testing.T) {
	s := New()
	for _, c := range story()[:9] {
		s.Apply(2, c)
	}
	old := Command{At: start, Kind: KindDone, Lab: "lab1", Epoch: 2, Done: []Done{{Fault: "lab-0", Stage: StageAdding}}}
	if r := s.Apply(3, old); r.Error == "" || s.Lab("lab1").Fault("lab-0").Stage != StageAdding {
		t.Errorf("epoch 2 in epoch 3: %+v, %+v", r, s.Lab("lab1").Fault("lab-0"))
	}
	s.Apply(3, Command{Client: "c7", Seq: 1, At: start, Until: until, Kind: KindReset, Lab: "lab1"})
	old.Epoch = 3
	if s.Apply(3, old); s.Lab("lab1").Fault("lab-0").Stage != StageRemoving {
		t.Errorf("what was being added when it was reset: %+v", s.Lab("lab1").Fault("lab-0"))
	}
	old.Done[0].Stage = StageRemoving
	if s.Apply(3, old); s.Lab("lab1").Fault("lab-0") != nil {
		t.Error("a fault stays that nodes have taken away")
	}
}

// model is the expected state of a lab, without limits and indexes.
type model struct {
	run    string
	clock  int64             // lab time of a run in virtual time, -1: it is none
	leased uint32            // McstIDs of such a run
	held   map[uint32]string // by lower half
	told   map[uint32]bool   // switches know of it, or may
	going  map[uint32]bool   // switches are to remove its entries
	rests  map[uint32]int64
	faults []string
	gone   map[string]bool // faults that are being removed
	runs   int
}

// TestAgainstModel: over random commands (repeated, of two clients, or out of date) results and
// state are those of the model, every invariant holds, and a replica that starts from a
// snapshot at any point has the same bytes at the end.
func TestAgainstModel(t *testing.T) {
	seeds := uint64(200)
	if os.Getenv("MCASTLAB_SOAK") != "" {
		seeds = 10000
	}
	for seed := range seeds {
		if err := randomHistory(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func randomHistory(t *testing.T, seed uint64) error {
	random := prng.New(seed)
	const lowers = 6
	s := up(t, lowers)
	m := model{clock: -1, run: "run-1", held: map[uint32]string{}, told: map[uint32]bool{}, going: map[uint32]bool{}, rests: map[uint32]int64{}, gone: map[string]bool{}, runs: 1}
	var other *State
	now, epoch, seqs := start, uint64(1), map[string]uint64{"a": 0, "b": 0}
	var sent []Command
	var results []Result
	for step := range 150 {
		now += int64(random.IntN(int(Quarantine / 40)))
		if random.Chance(0.05) {
			epoch++
		}
		var c Command
		var want func(Result) error
		repeat := len(sent) > 0 && random.Chance(0.2)
		if repeat {
			k := len(sent) - 1 - random.IntN(min(len(sent), 4))
			c = sent[k]
			c.At = now
			want = func(r Result) error {
				if r != results[k] && r.Error == "" {
					return fmt.Errorf("repeated: %+v, first %+v", r, results[k])
				}
				return nil
			}
		} else {
			c = Command{Client: []string{"a", "b"}[random.IntN(2)], At: now, Until: now + int64(Retry), Lab: "lab1"}
			seqs[c.Client]++
			c.Seq = seqs[c.Client]
			c.Low = uint64(max(1, int64(c.Seq)-4))
			want = m.draw(&random, &c, now, epoch, lowers)
			if c.Kind == KindDone {
				c.Client, c.Seq, c.Low, c.Until = "", 0, 0, 0
			}
		}
		b, err := c.Encode()
		if err != nil {
			return err
		}
		if c, err = DecodeCommand(b); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		r := s.Apply(epoch, c)
		if other != nil {
			other.Apply(epoch, c)
		}
		if err := want(r); err != nil {
			return fmt.Errorf("step %d, %s: %w", step, b, err)
		}
		if err := m.same(s.Lab("lab1")); err != nil {
			return fmt.Errorf("step %d, %s: %w", step, b, err)
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("step %d, %s: %w", step, b, err)
		}
		if !repeat && c.Client != "" {
			sent, results = append(sent, c), append(results, r)
		}
		if random.Chance(0.03) {
			image, err := s.Encode()
			if err != nil {
				return err
			}
			if other, err = DecodeState(image); err != nil {
				return err
			}
		}
	}
	a, err := s.Encode()
	if err != nil || other == nil {
		return err
	}
	if b, err := other.Encode(); err != nil || !bytes.Equal(a, b) {
		return fmt.Errorf("after a snapshot: %s, without one: %s, %w", b, a, err)
	}
	return nil
}

// draw draws a command, applies it to the model, and returns a check of its result.
func (m *model) draw(random *prng.Stream, c *Command, now int64, epoch uint64, lowers uint32) func(Result) error {
	fails := func(yes bool) func(Result) error {
		return func(r Result) error {
			if (r.Error != "") != yes {
				return fmt.Errorf("%+v", r)
			}
			return nil
		}
	}
	c.Run = m.run
	switch random.IntN(8) {
	case 0, 1, 2:
		c.Kind = KindLease
		if random.Chance(0.4) {
			c.Hosts = []uint32{1, 2}
		}
		if m.clock >= 0 {
			c.Instant = int64(random.IntN(8))
			yes := c.Instant < m.clock || m.leased == lowers
			if !yes {
				m.clock, m.leased = c.Instant, m.leased+1
			}
			want := m.leased
			return func(r Result) error {
				if (r.Error != "") != yes || !yes && r.Lower != want {
					return fmt.Errorf("%+v; %d is next", r, want)
				}
				return nil
			}
		}
		return m.lease(c, now, lowers)
	case 3:
		c.Kind, c.Lower = KindFree, uint32(random.IntN(int(lowers)))+1
		yes := m.held[c.Lower] == "" || m.held[c.Lower] != m.run
		if !yes {
			m.leave(c.Lower, now)
		}
		return fails(yes)
	case 4:
		m.runs++
		c.Kind, c.Run, c.Virtual = KindBegin, fmt.Sprintf("run-%d", m.runs), random.Chance(0.4)
		m.endRun(now)
		if m.clock, m.leased = -1, 0; c.Virtual {
			m.clock = 0
		}
		m.run = c.Run
		return fails(false)
	case 5:
		c.Kind = KindFaults
		id := fmt.Sprintf("f%d", random.IntN(12))
		c.Faults = []Fault{{ID: id}}
		yes := slices.Contains(m.faults, id)
		if !yes {
			m.faults = append(m.faults, id)
		}
		return fails(yes)
	case 6:
		c.Kind, c.Prefix = KindReset, fmt.Sprintf("f%d", random.IntN(4))
		for _, f := range m.faults {
			if strings.HasPrefix(f, c.Prefix) {
				m.gone[f] = true
			}
		}
		return fails(false)
	default:
		return m.done(random, c, now, epoch, fails)
	}
}

// done reports all pending effects as done, by this leader or by a deposed one.
func (m *model) done(random *prng.Stream, c *Command, now int64, epoch uint64, fails func(bool) func(Result) error) func(Result) error {
	c.Kind, c.Run, c.Epoch = KindDone, "", epoch
	if epoch > 1 && random.Chance(0.3) {
		c.Epoch--
	}
	for lower := uint32(1); lower < 10; lower++ {
		if m.going[lower] {
			c.Done = append(c.Done, Done{Lower: lower, Stage: StageRemoving})
		}
	}
	for _, f := range m.faults {
		if m.gone[f] {
			c.Done = append(c.Done, Done{Fault: f, Stage: StageRemoving})
		}
	}
	if c.Epoch < epoch {
		return fails(true)
	}
	for _, d := range c.Done {
		if d.Fault != "" {
			m.faults = slices.DeleteFunc(m.faults, func(f string) bool { return f == d.Fault })
			delete(m.gone, d.Fault)
			continue
		}
		delete(m.going, d.Lower)
		delete(m.held, d.Lower)
		m.rests[d.Lower] = now + int64(Quarantine)
	}
	return fails(false)
}

func (m *model) leave(lower uint32, now int64) {
	if m.told[lower] {
		m.going[lower] = true
		return
	}
	delete(m.held, lower)
	m.rests[lower] = now + int64(Quarantine)
}

func (m *model) endRun(now int64) {
	for lower := uint32(1); lower < 10; lower++ {
		if m.held[lower] == m.run {
			m.leave(lower, now)
		}
	}
}

// lease returns a check that the result is any of the free McstIDs.
func (m *model) lease(c *Command, now int64, lowers uint32) func(Result) error {
	free := 0
	for lower := uint32(1); lower <= lowers; lower++ {
		if m.held[lower] == "" && m.rests[lower] <= now {
			free++
		}
	}
	run, hosts := c.Run, len(c.Hosts) > 0
	return func(r Result) error {
		switch {
		case free == 0 && r.Error == "" || free > 0 && r.Error != "":
			return fmt.Errorf("%d are free, and it got %+v", free, r)
		case free == 0:
			return nil
		case r.Lower == 0 || r.Lower > lowers || m.held[r.Lower] != "" || m.rests[r.Lower] > now:
			return fmt.Errorf("%d is not free", r.Lower)
		}
		m.held[r.Lower], m.told[r.Lower] = run, hosts
		return nil
	}
}

// same compares a state with the model.
func (m *model) same(l *Lab) error {
	held := l.Held()
	if len(held) != len(m.held) || len(l.Groups) != len(m.held) {
		return fmt.Errorf("held are %v, %d groups; the model holds %v", held, len(l.Groups), m.held)
	}
	for _, lower := range held {
		if g := l.Group(lower); m.held[lower] != g.Run || (g.Stage == StageRemoving) != m.going[lower] {
			return fmt.Errorf("group %d is %+v; the model: held by %q, going %v", lower, g, m.held[lower], m.going[lower])
		}
	}
	var ids []string
	for _, f := range l.Faults {
		ids = append(ids, f.ID)
		if (f.Stage == StageRemoving) != m.gone[f.ID] {
			return fmt.Errorf("fault %+v; the model: gone %v", f, m.gone[f.ID])
		}
	}
	if !slices.Equal(ids, m.faults) {
		return fmt.Errorf("faults are %v; the model has %v", ids, m.faults)
	}
	return nil
}

// FuzzDecodeCommand: any input is refused, or is a command that can be encoded and applied.
func FuzzDecodeCommand(f *testing.F) {
	for _, c := range story() {
		b, err := c.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodeCommand(b)
		if err != nil {
			return
		}
		once, err := c.Encode()
		if err != nil {
			return // escapes can make it longer than the limit
		}
		back, err := DecodeCommand(once)
		if err != nil {
			t.Fatalf("%s: %v", once, err)
		}
		twice, err := back.Encode()
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%s came back as %s, %v", once, twice, err)
		}
		s := New()
		for _, x := range story()[:9] {
			s.Apply(1, x)
		}
		s.Apply(2, c)
		if err := s.Check(); err != nil {
			t.Fatalf("%s: %v", once, err)
		}
	})
}

// FuzzDecodeState: any input is refused, or is a state whose invariants hold, before and after
// another command.
func FuzzDecodeState(f *testing.F) {
	s := New()
	f.Add(encoded(f, s))
	for _, c := range story() {
		s.Apply(2, c)
		f.Add(encoded(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeState(b)
		if err != nil {
			return
		}
		for _, c := range story() {
			s.Apply(s.Epoch, c)
			if err := s.Check(); err != nil {
				t.Fatalf("%s, %s: %v", b, c.Kind, err)
			}
		}
	})
}

func encoded(f *testing.F, s *State) []byte {
	b, err := s.Encode()
	if err != nil {
		f.Fatal(err)
	}
	return b
}
