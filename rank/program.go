// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Program is a program of the user's own, which lab files name in workloads: {program: {name:
// ring-sum, args: [8]}}. Run is the part of one rank. It is called on all ranks at the same
// instant, with the arguments of the lab file. An error ends the run.
//
// A program with Broadcast is a scheme of the broadcast benchmark, which lab files name in
// schemes: [cepheus, program:two-level]. Broadcast prepares one rank: it is called on all ranks
// and may make connections and groups. A program has Run, Broadcast or both.
type Program struct {
	Name      string // a letter, then up to 39 letters, digits, underscores and hyphens
	Run       func(r *Rank, args []string) error
	Broadcast func(r *Rank) (Broadcast, error)
}

// Broadcast is one rank's part of a broadcast algorithm of the user's own. The benchmark calls it for
// one message after another and verifies the received data. Time is measured from the instant at which
// all ranks have returned from Begin.
type Broadcast interface {
	// Begin prepares for a message of n bytes at the start of b, from the rank root to all
	// others: it posts the receives and makes the connections that are not there yet.
	Begin(b *Buffer, n, root int) error
	// Run moves the message. It calls received as soon as this rank has all of it, and returns when all
	// packets of the rank are acknowledged. Without the call the rank has the message when Run returns;
	// the root has it from the start.
	Run(received func()) error
	// Close releases the algorithm's objects in the fabric, such as groups. It is called on all ranks
	// after the last message.
	Close() error
}

// Record emits a record.
func (r inside) Record(x rankhost.Record) { r.record(x) }

func (r *Rank) record(x rankhost.Record) {
	out, err := json.Marshal(x)
	if err != nil {
		panic(fmt.Sprintf("rank: write record: %v", err)) // cannot happen: a Record has only plain fields
	}
	r.c.Board.Emit(out)
}

// Printf adds a line to the output of the run, preceded by the host's name. The lines of all
// ranks are sorted by lab time.
func (r *Rank) Printf(format string, args ...any) {
	r.record(rankhost.Record{Kind: rankhost.RecordLine, Text: r.Name() + ": " + fmt.Sprintf(format, args...), To: r.Now()})
}

// Verify records the result of a check. A failed check does not end the program, but the run
// fails (exit code 1) and prints the text.
func (r *Rank) Verify(ok bool, format string, args ...any) {
	x := rankhost.Record{Kind: rankhost.RecordCheck, OK: ok, To: r.Now()}
	if !ok {
		x.Text = r.Name() + ": " + fmt.Sprintf(format, args...)
	}
	r.record(x)
}

// Measured records that this rank's part of an operation took from the given instant until
// now. The report has a row for each name and size. The n-th sample of a row lasts from when
// the first rank began its n-th operation until the last rank ended it. A name has the form of
// a program's name.
func (r *Rank) Measured(name string, bytes int, from vtime.Time) {
	r.record(rankhost.Record{Kind: rankhost.RecordSample, Text: name, Size: bytes, From: from, To: r.Now()})
}
