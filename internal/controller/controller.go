// SPDX-License-Identifier: Apache-2.0

// Package controller holds the state of a lab's control plane and decides on it: labs, groups,
// the leases of their McstIDs, timelines of faults, and runs. It is one deterministic state
// machine without I/O: commands go in, in an order that all replicas agree on, and results
// come out. What has to be done at nodes follows from the state (Pending); the leader does it
// and reports it with another command.
//
// A command that is applied twice has one effect: it carries its client's number, and the
// result is kept until the client has it.
package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Limits of the contents of a state. A command that would exceed one is answered with an error.
const (
	sessionsMax = 1024      // clients whose results are kept
	resultsMax  = 256       // results of one client that it has not acknowledged
	faultsMax   = 4096      // of one lab
	runsMax     = 64        // that have ended; older ones are forgotten
	labsMax     = 64        //
	hostsMax    = 1 << 14   // of one group
	lowersMax   = 1<<16 - 1 // McstIDs of a lab
	clockMax    = 1 << 62   // nanoseconds: until 2116
)

// Times on the clock of the state, in nanoseconds.
const (
	// Retry bounds how long a client may repeat one command: later copies are refused unless the
	// result is still known. It bounds how long results have to be kept.
	Retry = 2 * time.Minute
	// Quarantine is the time that an McstID stays unused before it is leased again: longer than a frame
	// of its former group can live, even in queues that are paused.
	Quarantine = 10 * time.Minute
)

// Phases of a lab.
const (
	PhaseDeploying   = "deploying"
	PhaseStarting    = "starting"
	PhaseWiring      = "wiring"
	PhaseConfiguring = "configuring"
	PhaseUp          = "up"
	PhaseRepairing   = "repairing"
)

// phases are those that a lab can be put in.
var phases = []string{PhaseDeploying, PhaseStarting, PhaseWiring, PhaseConfiguring, PhaseUp, PhaseRepairing}

// Stage is the progress of a change that nodes have to make.
type Stage string

// Stages, in the order they are passed.
const (
	StageNone     Stage = ""         // nodes have nothing to do with it
	StageAdding   Stage = "adding"   // nodes do not have it yet
	StageOn       Stage = "on"       // nodes have it
	StageRemoving Stage = "removing" // nodes are to remove it
)

// stages are all stages.
var stages = []Stage{StageNone, StageAdding, StageOn, StageRemoving}

// State is the whole state of a controller. Its lists are sorted, so that equal states have equal
// bytes.
type State struct {
	Schema   string    `json:"schema"`
	Epoch    uint64    `json:"epoch"` // raft's term of the last command
	Leader   string    `json:"leader"`
	Clock    int64     `json:"clock"` // nanoseconds since 1970; it never goes back
	Applied  uint64    `json:"applied"`
	Labs     []Lab     `json:"labs"`
	Sessions []Session `json:"sessions"`
}

// StateSchema names the format of a snapshot.
const StateSchema = "mcastlab/controller/v4"

// Lab is the intended state of a lab.
type Lab struct {
	Name string `json:"name"`
	// Message is the description of the lab for nodes (labspec.Encode); here it is only kept.
	Message    json.RawMessage `json:"message"`
	Engine     string          `json:"engine"`
	Phase      string          `json:"phase"`
	Generation uint64          `json:"generation"` // counts the times nodes were configured
	Lowers     uint32          `json:"lowers"`     // McstIDs there are: 1 to this, the lower halves of addresses
	Next       uint32          `json:"next"`       // lower half at which the search for a free McstID begins
	Leases     []Lease         `json:"leases"`     // by lower half
	Groups     []Group         `json:"groups"`     // by lower half
	Faults     []Fault         `json:"faults"`     // in the order they were added
	Runs       []Run           `json:"runs"`       // in the order they were begun
}

// Lease is an McstID that is not free.
type Lease struct {
	Lower uint32 `json:"lower"`
	Run   string `json:"run,omitempty"`   // the run that holds it; empty: none
	Until int64  `json:"until,omitempty"` // end of its quarantine
}

// Group is a group that holds an McstID.
type Group struct {
	Lower uint32 `json:"lower"`
	Run   string `json:"run"`
	// Holder is the rank that asked for it.
	Holder string `json:"holder"`
	// Hosts are the members' addresses of a plain multicast group, whose entries switches get; others
	// register themselves.
	Hosts []uint32 `json:"hosts,omitempty"`
	Stage Stage    `json:"stage,omitempty"`
	Error string   `json:"error,omitempty"`
}

// Fault is an entry of a lab's timeline.
type Fault struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Text string `json:"text"` // as in a lab file, for people to read
	// Message is the description of the fault for nodes (faults.Encode); here it is only kept.
	Message json.RawMessage `json:"message"`
	Origin  int64           `json:"origin"` // lab time its times count from, picoseconds
	Stage   Stage           `json:"stage,omitempty"`
	Error   string          `json:"error,omitempty"`
}

// Run is a run of a lab's workloads.
type Run struct {
	ID    string `json:"id"`
	Begun int64  `json:"begun"`
	Ended int64  `json:"ended,omitempty"`
	Error string `json:"error,omitempty"`
	// Virtual is set if the run is in virtual time. Its nodes are newly built, and no frame of another run
	// reaches them: it counts its McstIDs from 1, as a simulation does, and leaves those of the lab alone.
	Virtual bool   `json:"virtual,omitempty"`
	Leased  uint32 `json:"leased,omitempty"`  // McstIDs of a run in virtual time: 1 to this
	Instant int64  `json:"instant,omitempty"` // lab time at which the last of them took effect, picoseconds
}

// Session is a client whose results are kept.
type Session struct {
	Client string `json:"client"`
	// Until is the time at which the client gives up all its commands. From then on the session may be
	// forgotten: none of its commands is applied any more, however long a copy was delayed.
	Until   int64  `json:"until"`
	Low     uint64 `json:"low"` // the client has received all results below it
	Results []Kept `json:"results"`
}

// Kept is the result of a command.
type Kept struct {
	Seq    uint64 `json:"seq"`
	Result Result `json:"result"`
}

// Result is the result of a command.
type Result struct {
	Epoch      uint64 `json:"epoch"` // raft's term it was applied in
	Index      uint64 `json:"index"` // index of the state after the command
	Lower      uint32 `json:"lower,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	Error      string `json:"error,omitempty"`
}

// New returns the state of a controller without any commands.
func New() *State { return &State{Schema: StateSchema, Labs: []Lab{}, Sessions: []Session{}} }

// Lab returns a lab, or nil.
func (s *State) Lab(name string) *Lab {
	i, ok := slices.BinarySearchFunc(s.Labs, name, func(l Lab, name string) int { return cmp.Compare(l.Name, name) })
	if !ok {
		return nil
	}
	return &s.Labs[i]
}

// Fault returns a fault of the lab, or nil.
func (l *Lab) Fault(id string) *Fault {
	for i := range l.Faults {
		if l.Faults[i].ID == id {
			return &l.Faults[i]
		}
	}
	return nil
}

// Group returns the group with an McstID's lower half, or nil.
func (l *Lab) Group(lower uint32) *Group {
	i, ok := slices.BinarySearchFunc(l.Groups, lower, func(g Group, lower uint32) int { return cmp.Compare(g.Lower, lower) })
	if !ok {
		return nil
	}
	return &l.Groups[i]
}

// Run returns a run of the lab, or nil.
func (l *Lab) Run(id string) *Run {
	for i := range l.Runs {
		if l.Runs[i].ID == id {
			return &l.Runs[i]
		}
	}
	return nil
}

// Held returns the McstIDs' lower halves that runs hold.
func (l *Lab) Held() (lowers []uint32) {
	for _, x := range l.Leases {
		if x.Run != "" {
			lowers = append(lowers, x.Lower)
		}
	}
	return lowers
}

// Pending reports whether nodes have something to do.
func (l *Lab) Pending() bool {
	return slices.ContainsFunc(l.Faults, func(f Fault) bool { return f.Stage.pending() }) ||
		slices.ContainsFunc(l.Groups, func(g Group) bool { return g.Stage.pending() })
}

func (s Stage) pending() bool { return s == StageAdding || s == StageRemoving }

// Check returns an error if an invariant is broken: an McstID leased twice, a group without a
// lease, a lease of a run that is over.
func (s *State) Check() error {
	if s.Clock < 0 || s.Clock > clockMax || len(s.Labs) > labsMax || len(s.Sessions) > sessionsMax {
		return fmt.Errorf("clock %d, %d labs, %d clients", s.Clock, len(s.Labs), len(s.Sessions))
	}
	for i := range s.Labs {
		l := &s.Labs[i]
		if i > 0 && s.Labs[i-1].Name >= l.Name {
			return fmt.Errorf("labs are out of order at %s", l.Name)
		}
		if err := l.check(); err != nil {
			return fmt.Errorf("lab %s: %w", l.Name, err)
		}
	}
	for i := range s.Sessions {
		x := &s.Sessions[i]
		if i > 0 && s.Sessions[i-1].Client >= x.Client {
			return fmt.Errorf("clients are out of order at %s", x.Client)
		}
		for k := range x.Results {
			if x.Results[k].Seq < x.Low || k > 0 && x.Results[k-1].Seq >= x.Results[k].Seq {
				return fmt.Errorf("client %s: result %d is out of order", x.Client, x.Results[k].Seq)
			}
		}
		if len(x.Results) > resultsMax {
			return fmt.Errorf("client %s has %d results", x.Client, len(x.Results))
		}
	}
	return nil
}

func (l *Lab) check() error {
	if l.Lowers == 0 || l.Lowers > lowersMax || l.Next == 0 || l.Next > l.Lowers {
		return fmt.Errorf("%d McstIDs, %d looked at next", l.Lowers, l.Next)
	}
	if err := l.checkFaults(); err != nil {
		return err
	}
	for i, x := range l.Leases {
		switch {
		case i > 0 && l.Leases[i-1].Lower >= x.Lower:
			return fmt.Errorf("lease %d appears twice or out of order", x.Lower)
		case x.Lower == 0 || x.Lower > l.Lowers:
			return fmt.Errorf("lease %d is out of range", x.Lower)
		case (x.Run == "") != (x.Until != 0):
			return fmt.Errorf("lease %d is held and rests", x.Lower)
		case (x.Run != "") != (l.Group(x.Lower) != nil):
			return fmt.Errorf("lease %d and its group do not agree", x.Lower)
		}
	}
	for i, g := range l.Groups {
		k, ok := l.lease(g.Lower)
		switch {
		case i > 0 && l.Groups[i-1].Lower >= g.Lower:
			return fmt.Errorf("group %d appears twice or out of order", g.Lower)
		case !ok || l.Leases[k].Run != g.Run:
			return fmt.Errorf("group %d has no lease", g.Lower)
		}
		if r := l.Run(g.Run); g.Stage != StageRemoving && (r == nil || r.Ended != 0) {
			return fmt.Errorf("group %d outlives run %s", g.Lower, g.Run)
		}
	}
	open := 0
	ids := map[string]bool{}
	for _, r := range l.Runs {
		if r.Ended == 0 {
			open++
		}
		if ids[r.ID] {
			return fmt.Errorf("run %s appears twice", r.ID)
		}
		ids[r.ID] = true
		if r.Leased > l.Lowers || r.Instant < 0 || !r.Virtual && (r.Leased != 0 || r.Instant != 0) {
			return fmt.Errorf("run %s: %d McstIDs of virtual time, the last at %d", r.ID, r.Leased, r.Instant)
		}
	}
	if open > 1 || len(l.Runs)-open > runsMax || len(l.Faults) > faultsMax {
		return fmt.Errorf("%d runs at once, %d in all, %d faults", open, len(l.Runs), len(l.Faults))
	}
	return nil
}

func (l *Lab) checkFaults() error {
	ids := map[string]bool{}
	for _, f := range l.Faults {
		if ids[f.ID] || f.Stage == StageNone || !slices.Contains(stages, f.Stage) {
			return fmt.Errorf("fault %s appears twice, or %q", f.ID, f.Stage)
		}
		ids[f.ID] = true
	}
	for _, g := range l.Groups {
		if !slices.Contains(stages, g.Stage) {
			return fmt.Errorf("group %d is %q", g.Lower, g.Stage)
		}
	}
	return nil
}

// lease returns the index of a lease, or the one at which it would be inserted.
func (l *Lab) lease(lower uint32) (int, bool) {
	return slices.BinarySearchFunc(l.Leases, lower, func(x Lease, lower uint32) int { return cmp.Compare(x.Lower, lower) })
}
