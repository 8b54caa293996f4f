// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// HostPrograms is a Kind whose ranks are programs of this server, in processes of their own. They run in running
// labs, and only if the user who runs the lab file allows it.
type HostPrograms interface {
	Kind
	// HostProgram returns the program that each rank runs.
	HostProgram() HostProgram
}

// HostProgram is a program of this server.
type HostProgram struct {
	Argv    []string
	MPI     bool           // Open MPI's mpirun starts the ranks
	Timeout vtime.Duration // of the wall clock
}

// Exit is the end of a rank's program, or of Open MPI's mpirun.
type Exit struct {
	Rank int    `json:"rank"` // -1: mpirun, which started the ranks
	Host string `json:"host"`
	Code int    `json:"exit_code"` // 128 and the number of the signal that has ended it
	// Why is the reason for which mcastlab has ended it; empty: it has not.
	Why string `json:"ended_because,omitempty"`
	// Timeout is the row's if that was why, else 0.
	Timeout vtime.Duration `json:"timeout_ps,omitempty"`
	// Waited lists, for a program that mcastlab ended in virtual time, the wait of each thread with its start, and the last error of
	// each of its queue pairs.
	Waited []string `json:"waited_for,omitempty"`
	// Last is the last line that it wrote to standard error, or mpirun did for all, of a program that has failed.
	Last string     `json:"last_line,omitempty"`
	From vtime.Time `json:"from_ps"`
	To   vtime.Time `json:"to_ps"`
}

// Failed reports whether the program has failed, or was ended.
func (x *Exit) Failed() bool { return x.Code != 0 || x.Why != "" }

// Exits are the Details of a row of programs of this server.
type Exits []Exit

// Key implements Details.
func (*Exits) Key() string { return "exits" }

// Quantity implements Details.
func (*Exits) Quantity(string, string, string) (v float64, known bool, err error) {
	return 0, false, nil
}

// Outcome summarises the ends of the programs, in a few words.
func (e *Exits) Outcome() string {
	failed, first := 0, (*Exit)(nil)
	for i := range *e {
		if x := &(*e)[i]; x.Failed() {
			if failed++; first == nil || first.Why != "" && x.Why == "" { // the others were ended because of it
				first = x
			}
		}
	}
	switch {
	case len(*e) == 0:
		return "not run"
	case first == nil:
		return "exit 0"
	case first.Timeout > 0:
		return fmt.Sprintf("killed after %v (timeout)", first.Timeout)
	case first.Why != "":
		return fmt.Sprintf("ended (%d of %d)", failed, len(*e))
	}
	return fmt.Sprintf("exit %d (%d of %d)", first.Code, failed, len(*e))
}

// WallTime implements Unclocked.
func (*Exits) WallTime() {}

// Failures implements Judge.
func (e *Exits) Failures(row *Row) (lines []string) {
	for i := range *e {
		x := &(*e)[i]
		if !x.Failed() {
			continue
		}
		who := fmt.Sprintf("rank %d at %s", x.Rank, x.Host)
		if x.Rank < 0 {
			who = "mpirun"
		}
		text := fmt.Sprintf("%s %s: %s ended with exit code %d", row.Workload, row.Scheme, who, x.Code)
		if x.Why != "" {
			text += ", because " + x.Why
		}
		if x.Timeout > 0 {
			text += fmt.Sprintf(" (timeout: %v)", x.Timeout)
		}
		if len(x.Waited) > 0 {
			text += "; " + strings.Join(x.Waited, "; ")
		}
		if x.Last != "" {
			text += ": " + x.Last
		}
		lines = append(lines, text)
	}
	return lines
}

// Unclocked marks Details of rows whose times are not the lab's: they include this server's computing time.
type Unclocked interface{ WallTime() }
