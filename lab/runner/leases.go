// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// LeasesFile is the file of a run folder with the decisions of the lab's controllers during the run. A run of the
// same lab makes the same decisions at the same instants, also in a simulation.
const LeasesFile = "leases.jsonl"

// Lease is a decision of the lab's controllers in a run in virtual time: a group has an address of its own.
type Lease struct {
	At    vtime.Time `json:"at"`    // lab time at which the rank has it, in picoseconds
	Lower uint32     `json:"lower"` // half of the group's address
	Epoch uint64     `json:"epoch"` // of the controller that led
	Index uint64     `json:"index"` // of the state that the decision led to
}

// NoteLease adds a decision to the run's folder.
func (r *Record) NoteLease(x Lease) error { return r.note(LeasesFile, x) }

// note adds a line to a file of the run's folder.
func (r *Record) note(name string, line any) error {
	b, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := r.Folder.root.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
