// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Apply applies one command, or returns the result of a command that was applied before. epoch
// is raft's term of the entry. An invalid command is no failure of the replica: its Result
// carries an error, whose text depends only on the state and the command, so that all replicas
// return the same.
func (s *State) Apply(epoch uint64, c Command) Result {
	s.Epoch = max(s.Epoch, epoch)
	s.Clock = max(s.Clock, c.At)
	s.Applied++
	if c.Client == "" {
		return s.stamp(s.do(&c))
	}
	x, err := s.session(&c)
	if err != nil {
		return s.stamp(Result{Error: err.Error()})
	}
	i, known := slices.BinarySearchFunc(x.Results, c.Seq, func(k Kept, seq uint64) int { return cmp.Compare(k.Seq, seq) })
	switch {
	case known:
		return x.Results[i].Result
	case c.Seq < x.Low:
		return s.stamp(Result{Error: fmt.Sprintf("command %d: its result was received and is not kept any more", c.Seq)})
	case len(x.Results) >= resultsMax:
		return s.stamp(Result{Error: fmt.Sprintf("command %d: %d results of this client wait to be received", c.Seq, resultsMax)})
	case c.Until < s.Clock:
		return s.stamp(Result{Error: "the command came after its deadline: its outcome is not known"})
	}
	r := s.stamp(s.do(&c))
	x.Results = slices.Insert(x.Results, i, Kept{c.Seq, r})
	return r
}

func (s *State) stamp(r Result) Result {
	r.Epoch, r.Index = s.Epoch, s.Applied
	return r
}

// session returns the client's session, and creates it if there is none. Results that the
// client has acknowledged are dropped.
func (s *State) session(c *Command) (*Session, error) {
	i, ok := slices.BinarySearchFunc(s.Sessions, c.Client, func(x Session, id string) int { return cmp.Compare(x.Client, id) })
	if !ok {
		if c.Until < s.Clock || c.Until > s.Clock+2*int64(Retry) {
			return nil, fmt.Errorf("command of an unknown client: its deadline was %d, and it is %d: its outcome is not known", c.Until, s.Clock)
		}
		if len(s.Sessions) >= sessionsMax {
			s.Sessions = slices.DeleteFunc(s.Sessions, func(x Session) bool { return x.Until < s.Clock })
			if len(s.Sessions) >= sessionsMax {
				return nil, fmt.Errorf("%d clients are active, and no more are admitted: try again in a minute", sessionsMax)
			}
			i, _ = slices.BinarySearchFunc(s.Sessions, c.Client, func(x Session, id string) int { return cmp.Compare(x.Client, id) })
		}
		s.Sessions = slices.Insert(s.Sessions, i, Session{Client: c.Client, Results: []Kept{}})
	}
	x := &s.Sessions[i]
	x.Until = max(x.Until, c.Until)
	if c.Low > x.Low {
		x.Low = c.Low
		x.Results = slices.DeleteFunc(x.Results, func(k Kept) bool { return k.Seq < x.Low })
	}
	return x, nil
}

// do applies a command that has not been applied before.
func (s *State) do(c *Command) Result {
	switch c.Kind {
	case KindLead:
		s.Leader = c.Replica
		return Result{}
	case KindDeploy:
		return s.deploy(c)
	}
	l := s.Lab(c.Lab)
	if l == nil {
		return failed("there is no lab %s", c.Lab)
	}
	switch c.Kind {
	case KindForget:
		s.Labs = slices.DeleteFunc(s.Labs, func(x Lab) bool { return x.Name == c.Lab })
		return Result{}
	case KindPhase:
		if !slices.Contains(phases, c.Phase) {
			return failed("lab %s: unknown phase %q", l.Name, c.Phase)
		}
		l.Phase = c.Phase
		if c.Phase == PhaseConfiguring || c.Phase == PhaseRepairing {
			l.Generation++
		}
		return Result{Generation: l.Generation}
	case KindBegin:
		return s.begin(l, c)
	case KindEnd:
		return s.end(l, c)
	case KindLease:
		return s.lease(l, c)
	case KindFree:
		g := l.Group(c.Lower)
		if g == nil || g.Run != c.Run {
			return failed("run %s holds no group %d", c.Run, c.Lower)
		}
		s.leave(l, c.Lower)
		return Result{}
	case KindFaults:
		return l.add(c)
	case KindReset:
		l.reset(c.Prefix)
		return Result{}
	case KindDone:
		return s.done(l, c)
	}
	return failed("unknown kind of command %q", c.Kind)
}

func failed(format string, args ...any) Result { return Result{Error: fmt.Sprintf(format, args...)} }

// deploy records a lab that is to be brought up from scratch. The state of an earlier
// deployment is dropped, except for its McstIDs, which go into quarantine.
func (s *State) deploy(c *Command) Result {
	lowers := c.Lowers
	if lowers == 0 {
		lowers = lowersMax
	}
	fresh := Lab{
		Name: c.Lab, Message: c.Message, Engine: c.Engine, Phase: PhaseDeploying, Lowers: lowers, Next: 1,
		Leases: []Lease{}, Groups: []Group{}, Faults: []Fault{}, Runs: []Run{},
	}
	i, ok := slices.BinarySearchFunc(s.Labs, c.Lab, func(l Lab, name string) int { return cmp.Compare(l.Name, name) })
	if ok {
		if old := &s.Labs[i]; old.Lowers == lowers {
			fresh.Next, fresh.Generation = old.Next, old.Generation
			for _, x := range old.Leases {
				if x.Run != "" {
					x.Run, x.Until = "", s.Clock+int64(Quarantine)
				}
				fresh.Leases = append(fresh.Leases, x)
			}
		}
		s.Labs[i] = fresh
		return Result{Generation: fresh.Generation}
	}
	if len(s.Labs) >= labsMax {
		return failed("lab %s: there are %d labs already", c.Lab, labsMax)
	}
	s.Labs = slices.Insert(s.Labs, i, fresh)
	return Result{}
}

// begin starts a run. An earlier run that has not ended must have been abandoned, since
// commands on a lab exclude each other: it is ended first.
func (s *State) begin(l *Lab, c *Command) Result {
	if c.Run == "" || l.Run(c.Run) != nil {
		return failed("run %q of lab %s: its name is empty or taken", c.Run, l.Name)
	}
	if l.Phase != PhaseUp {
		return failed("lab %s is %s, not up", l.Name, l.Phase)
	}
	for i := range l.Runs {
		if l.Runs[i].Ended == 0 {
			s.over(l, &l.Runs[i], "abandoned")
		}
	}
	l.Runs = append(l.Runs, Run{ID: c.Run, Begun: s.Clock, Virtual: c.Virtual})
	if over := len(l.Runs) - 1 - runsMax; over > 0 {
		l.Runs = slices.Delete(l.Runs, 0, over)
	}
	return Result{}
}

func (s *State) end(l *Lab, c *Command) Result {
	r := l.Run(c.Run)
	if r == nil || r.Ended != 0 {
		return failed("run %s of lab %s: not begun, or over", c.Run, l.Name)
	}
	s.over(l, r, c.Error)
	return Result{}
}

// over ends a run and releases its groups.
func (s *State) over(l *Lab, r *Run, why string) {
	r.Ended, r.Error = max(s.Clock, 1), why
	var held []uint32
	for _, g := range l.Groups {
		if g.Run == r.ID {
			held = append(held, g.Lower)
		}
	}
	for _, lower := range held {
		s.leave(l, lower)
	}
}

// lease gives a run the next free McstID. The search goes round all McstIDs, so that the one
// that has been free the longest comes first.
func (s *State) lease(l *Lab, c *Command) Result {
	r := l.Run(c.Run)
	if r == nil || r.Ended != 0 {
		return failed("run %s of lab %s: not begun, or over", c.Run, l.Name)
	}
	if r.Virtual {
		return l.leaseVirtual(r, c.Instant)
	}
	l.Leases = slices.DeleteFunc(l.Leases, func(x Lease) bool { return x.Run == "" && x.Until <= s.Clock })
	if uint32(len(l.Leases)) >= l.Lowers {
		return failed("all %d McstIDs of lab %s are in use or in quarantine: %s", l.Lowers, l.Name, s.nextFree(l))
	}
	lower := l.Next
	i, taken := l.lease(lower)
	for taken {
		lower = lower%l.Lowers + 1
		i, taken = l.lease(lower)
	}
	l.Next = lower%l.Lowers + 1
	l.Leases = slices.Insert(l.Leases, i, Lease{Lower: lower, Run: c.Run})
	g := Group{Lower: lower, Run: c.Run, Holder: c.Holder, Hosts: slices.Clone(c.Hosts)}
	if len(g.Hosts) > 0 {
		g.Stage = StageAdding
	}
	k, _ := slices.BinarySearchFunc(l.Groups, lower, func(g Group, lower uint32) int { return cmp.Compare(g.Lower, lower) })
	l.Groups = slices.Insert(l.Groups, k, g)
	return Result{Lower: lower}
}

// leaseVirtual gives a run in virtual time its next McstID, which takes effect at an instant of lab time.
func (l *Lab) leaseVirtual(r *Run, instant int64) Result {
	switch {
	case instant < r.Instant:
		return failed("run %s of lab %s: a lease at %d ps of lab time, and one at %d ps has been decided", r.ID, l.Name, instant, r.Instant)
	case r.Leased >= l.Lowers:
		return failed("all %d McstIDs of run %s of lab %s have been used", l.Lowers, r.ID, l.Name)
	}
	r.Leased, r.Instant = r.Leased+1, instant
	return Result{Lower: r.Leased}
}

// nextFree returns when the next McstID becomes free, as the end of an error text.
func (s *State) nextFree(l *Lab) string {
	first := int64(0)
	for _, x := range l.Leases {
		if x.Run == "" && (first == 0 || x.Until < first) {
			first = x.Until
		}
	}
	if first == 0 {
		return "end a group"
	}
	return fmt.Sprintf("the first is free in %v", (time.Duration(first-s.Clock) + time.Second).Truncate(time.Second))
}

// leave dissolves a group. Switches delete it from their tables first; its McstID is quarantined when
// they have.
func (s *State) leave(l *Lab, lower uint32) {
	g := l.Group(lower)
	if g.Stage != StageNone {
		g.Stage = StageRemoving
		return
	}
	s.quarantine(l, lower)
}

// quarantine removes a group and quarantines its McstID.
func (s *State) quarantine(l *Lab, lower uint32) {
	l.Groups = slices.DeleteFunc(l.Groups, func(g Group) bool { return g.Lower == lower })
	if i, ok := l.lease(lower); ok {
		l.Leases[i].Run, l.Leases[i].Until = "", max(s.Clock+int64(Quarantine), 1)
	}
}

// add appends faults to the lab's timeline.
func (l *Lab) add(c *Command) Result {
	if len(l.Faults)+len(c.Faults) > faultsMax {
		return failed("lab %s has %d faults: reset some before adding %d (at most %d)", l.Name, len(l.Faults), len(c.Faults), faultsMax)
	}
	for i, f := range c.Faults {
		if f.ID == "" || l.Fault(f.ID) != nil || slices.ContainsFunc(c.Faults[:i], func(g Fault) bool { return g.ID == f.ID }) {
			return failed("fault %q of lab %s: its ID is empty or taken", f.ID, l.Name)
		}
	}
	for _, f := range c.Faults {
		f.Stage, f.Error = StageAdding, ""
		l.Faults = append(l.Faults, f)
	}
	return Result{}
}

// reset marks the faults whose ID begins with prefix for removal. They are removed when nodes have
// confirmed it.
func (l *Lab) reset(prefix string) {
	for i := range l.Faults {
		if strings.HasPrefix(l.Faults[i].ID, prefix) {
			l.Faults[i].Stage = StageRemoving
		}
	}
}

// done records the changes that nodes have confirmed. Reports of a deposed leader are ignored, and so
// are reports about a stage that has passed.
func (s *State) done(l *Lab, c *Command) Result {
	if c.Epoch < s.Epoch {
		return failed("epoch %d is over: the present one is %d", c.Epoch, s.Epoch)
	}
	for _, d := range c.Done {
		if d.Fault != "" {
			f := l.Fault(d.Fault)
			switch {
			case f == nil || f.Stage != d.Stage || !d.Stage.pending():
			case f.Stage == StageRemoving:
				l.Faults = slices.DeleteFunc(l.Faults, func(x Fault) bool { return x.ID == d.Fault })
			default:
				f.Stage, f.Error = StageOn, d.Error
			}
			continue
		}
		g := l.Group(d.Lower)
		switch {
		case g == nil || g.Stage != d.Stage || !d.Stage.pending():
		case g.Stage == StageRemoving:
			s.quarantine(l, d.Lower)
		default:
			g.Stage, g.Error = StageOn, d.Error
		}
	}
	return Result{}
}
