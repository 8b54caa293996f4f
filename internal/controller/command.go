// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/strictjson"
)

// Kind is the type of a command.
type Kind string

// Kinds of commands.
const (
	KindLead   Kind = "lead"   // a replica leads from this term on
	KindDeploy Kind = "deploy" // a lab is being brought up from nothing
	KindPhase  Kind = "phase"  // the lab has reached a phase
	KindForget Kind = "forget" // a lab is gone
	KindBegin  Kind = "begin"  // a run begins; those before it are over
	KindEnd    Kind = "end"    // a run has ended
	KindLease  Kind = "lease"  // a run needs an McstID, for a group
	KindFree   Kind = "free"   // a run no longer needs an McstID
	KindFaults Kind = "faults" // faults are to be applied
	KindReset  Kind = "reset"  // faults are to be removed
	KindDone   Kind = "done"   // nodes have confirmed a change
)

// kinds lists all kinds of commands.
var kinds = []Kind{KindLead, KindDeploy, KindPhase, KindForget, KindBegin, KindEnd, KindLease, KindFree, KindFaults, KindReset, KindDone}

// commandVersion is the version of the format of commands. A replica that meets another version stops:
// it must not skip commands that the other replicas apply. Commands of versions 1 and 2 had the text of
// a lab file in place of its message, and version 3 had no runs in virtual time.
const commandVersion = 4

// CommandMax bounds the bytes of a command.
const CommandMax = 4 << 20

// Command is one change of a state.
type Command struct {
	Version int `json:"v"`
	// Client and Seq identify the command: a copy with the same two is the same command. Low is
	// the first Seq whose result the client does not have yet. The leader's own commands have no
	// client.
	Client string `json:"client,omitempty"`
	Seq    uint64 `json:"seq,omitempty"`
	Low    uint64 `json:"low,omitempty"`
	// At is the time at the leader that took it, Until when the client gives up; nanoseconds
	// since 1970.
	At    int64 `json:"at"`
	Until int64 `json:"until,omitempty"`

	Kind Kind   `json:"kind"`
	Lab  string `json:"lab,omitempty"`

	Message json.RawMessage `json:"message,omitempty"` // of the lab that is deployed: labspec.Encode
	Engine  string          `json:"engine,omitempty"`
	Lowers  uint32          `json:"lowers,omitempty"` // McstIDs of a lab that is deployed; 0: all there are
	Phase   string          `json:"phase,omitempty"`

	Run    string   `json:"run,omitempty"`
	Holder string   `json:"holder,omitempty"`
	Hosts  []uint32 `json:"hosts,omitempty"`
	Lower  uint32   `json:"lower,omitempty"`
	Error  string   `json:"error,omitempty"`

	Virtual bool  `json:"virtual,omitempty"` // the run that begins is one in virtual time
	Instant int64 `json:"instant,omitempty"` // of a lease in such a run: when it takes effect, picoseconds of lab time

	Faults []Fault `json:"faults,omitempty"`
	Prefix string  `json:"prefix,omitempty"`

	Replica string `json:"replica,omitempty"`
	Epoch   uint64 `json:"epoch,omitempty"`
	Done    []Done `json:"done,omitempty"`
}

// Done reports that nodes have confirmed a change of a fault or a group, or could not be reached.
type Done struct {
	Fault string `json:"fault,omitempty"`
	Lower uint32 `json:"lower,omitempty"`
	Stage Stage  `json:"stage"` // the stage it was in
	Error string `json:"error,omitempty"`
}

// Encode returns the bytes of a command.
func (c Command) Encode() ([]byte, error) {
	c.Version = commandVersion
	b, err := json.Marshal(c)
	if err == nil && len(b) > CommandMax {
		err = fmt.Errorf("%d bytes are more than %d", len(b), CommandMax)
	}
	if err != nil {
		return nil, fmt.Errorf("write command %s: %w", c.Kind, err)
	}
	return b, nil
}

// DecodeCommand reads a command. An unknown field or kind is an error.
func DecodeCommand(b []byte) (c Command, err error) {
	if len(b) > CommandMax {
		return c, fmt.Errorf("read command: %d bytes are more than %d", len(b), CommandMax)
	}
	var of struct {
		Version int `json:"v"`
	}
	if err = json.Unmarshal(b, &of); err == nil && of.Version != commandVersion {
		err = fmt.Errorf("it is of version %d, and this is %d", of.Version, commandVersion)
	}
	if err == nil {
		err = strictjson.Decode(b, &c)
	}
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Command{}, fmt.Errorf("read command: %w", err)
	}
	return c, nil
}

// check refuses a command that no client of this version sends.
func (c *Command) check() error {
	switch {
	case !slices.Contains(kinds, c.Kind):
		return fmt.Errorf("there is no kind %q", c.Kind)
	case c.Kind != KindLead && c.Kind != KindDone && c.Client == "":
		return errors.New("it names no client")
	case c.At < 0 || c.At > clockMax || c.Until < 0 || c.Until > clockMax || c.Client != "" && c.Until == 0:
		return fmt.Errorf("its times are out of range: sent at %d, deadline %d", c.At, c.Until)
	case c.Client != "" && (c.Seq == 0 || c.Low > c.Seq):
		return fmt.Errorf("its number is %d, and the first number without a result is %d", c.Seq, c.Low)
	case len(c.Client) > 64 || len(c.Lab) > 64 || len(c.Run) > 128 || len(c.Holder) > 128 || len(c.Prefix) > 128 || len(c.Replica) > 64:
		return errors.New("one of its names is too long")
	case c.Kind != KindLead && c.Lab == "":
		return errors.New("it names no lab")
	case c.Instant < 0:
		return fmt.Errorf("it takes effect at %d", c.Instant)
	case len(c.Hosts) > hostsMax || len(c.Faults) > faultsMax || c.Lowers > lowersMax || c.Lower > lowersMax:
		return errors.New("one of its lists or numbers is too large")
	}
	return nil
}

// Encode returns the bytes of a snapshot: equal states have equal ones.
func (s *State) Encode() ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	return b, nil
}

// DecodeState reads a snapshot. One that is damaged or that breaks an invariant is an error.
func DecodeState(b []byte) (*State, error) {
	var of struct {
		Schema string `json:"schema"`
	}
	err := json.Unmarshal(b, &of)
	if err == nil && of.Schema != StateSchema {
		err = fmt.Errorf("it is %q, and this version knows %q", of.Schema, StateSchema)
	}
	s := New()
	if err == nil {
		err = strictjson.Decode(b, s)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return s, nil
}

// DecodeResult reads a result.
func DecodeResult(b []byte) (r Result, err error) {
	if err := strictjson.Decode(b, &r); err != nil {
		return r, fmt.Errorf("read result: %w", err)
	}
	return r, nil
}

// Encode returns the bytes of a result.
func (r Result) Encode() ([]byte, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write result: %w", err)
	}
	return b, nil
}
