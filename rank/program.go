package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/vtime"
)

// Program is a program of the user's own, which lab files name in workloads: {program: {name:
// ring-sum, args: [8]}}. Run is the part of one rank. It is called on all ranks at the same
// instant, with the arguments of the lab file. An error ends the run.
type Program struct {
	Name string // a letter, then up to 39 letters, digits, underscores and hyphens
	Run  func(r *Rank, args []string) error
}

// RecordKind names what a record holds.
type RecordKind string

// Kinds of records.
const (
	RecordLine   RecordKind = "line"   // a line of Printf
	RecordCheck  RecordKind = "check"  // a result of Verify
	RecordSample RecordKind = "sample" // a duration of Measured
	RecordRun    RecordKind = "run"    // the whole program, from start to end
)

// Record is what Printf, Verify and Measured emit, as JSON. Times are lab time in picoseconds.
type Record struct {
	Kind RecordKind `json:"kind"`
	Text string     `json:"text,omitempty"`
	Size int        `json:"size,omitempty"` // bytes, of a sample
	OK   bool       `json:"ok,omitempty"`   // result of a check
	From vtime.Time `json:"from,omitempty"`
	To   vtime.Time `json:"to"`
}

// Record emits a record.
func (r *Rank) Record(x Record) {
	out, err := json.Marshal(x)
	if err != nil {
		panic(fmt.Sprintf("rank: write record: %v", err)) // cannot happen: a Record has only plain fields
	}
	r.Emit(out)
}

// Printf adds a line to the output of the run, preceded by the host's name. The lines of all
// ranks are sorted by lab time.
func (r *Rank) Printf(format string, args ...any) {
	r.Record(Record{Kind: RecordLine, Text: r.Name() + ": " + fmt.Sprintf(format, args...), To: r.Now()})
}

// Verify records the result of a check. A failed check does not end the program, but the run
// fails (exit code 1) and prints the text.
func (r *Rank) Verify(ok bool, format string, args ...any) {
	x := Record{Kind: RecordCheck, OK: ok, To: r.Now()}
	if !ok {
		x.Text = r.Name() + ": " + fmt.Sprintf(format, args...)
	}
	r.Record(x)
}

// Measured records that this rank's part of an operation took from the given instant until
// now. The report has a row for each name and size. The n-th sample of a row lasts from when
// the first rank began its n-th operation until the last rank ended it. A name has the form of
// a program's name.
func (r *Rank) Measured(name string, bytes int, from vtime.Time) {
	r.Record(Record{Kind: RecordSample, Text: name, Size: bytes, From: from, To: r.Now()})
}
