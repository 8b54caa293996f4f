package rank

import (
	"encoding/json"
	"fmt"

	"github.com/mcastlab/mcastlab/vtime"
)

// Program is a program of the user's own, which labs name in workloads: {program: {name:
// ring-sum, args: [8]}}. Run is one rank's part. It is called on all ranks at one instant,
// with the arguments of the lab file; an error ends the run.
type Program struct {
	Name string // a letter, then up to 39 letters, digits, underscores and hyphens
	Run  func(r *Rank, args []string) error
}

// RecordKind says what a program recorded.
type RecordKind string

// Kinds of records.
const (
	RecordLine   RecordKind = "line"   // of Printf
	RecordCheck  RecordKind = "check"  // of Verify
	RecordSample RecordKind = "sample" // of Measured
	RecordRun    RecordKind = "run"    // the program as a whole, from its start to its end
)

// Record is what Printf, Verify and Measured emit, as JSON. Times are picoseconds of lab
// time.
type Record struct {
	Kind RecordKind `json:"kind"`
	Text string     `json:"text,omitempty"`
	Size int        `json:"size,omitempty"` // bytes, of a sample
	OK   bool       `json:"ok,omitempty"`   // of a check
	From vtime.Time `json:"from,omitempty"`
	To   vtime.Time `json:"to"`
}

// Record hands a record over.
func (r *Rank) Record(x Record) {
	out, err := json.Marshal(x)
	if err != nil {
		panic(fmt.Sprintf("rank: write record: %v", err)) // it has plain fields only
	}
	r.Emit(out)
}

// Printf adds a line to what the run prints, with the host's name in front. Lines of all
// ranks are in the order of lab time.
func (r *Rank) Printf(format string, args ...any) {
	r.Record(Record{Kind: RecordLine, Text: r.Name() + ": " + fmt.Sprintf(format, args...), To: r.Now()})
}

// Verify records that something was compared, and whether it was right. One that was not
// does not end the program, but the run fails (exit code 1) and prints the text.
func (r *Rank) Verify(ok bool, format string, args ...any) {
	x := Record{Kind: RecordCheck, OK: ok, To: r.Now()}
	if !ok {
		x.Text = r.Name() + ": " + fmt.Sprintf(format, args...)
	}
	r.Record(x)
}

// Measured records that this rank's part of something took from the instant given until
// now. The report has a row for each name and size; its n-th time is from when the first
// rank began its n-th until the last rank ended it. name is as that of a program.
func (r *Rank) Measured(name string, bytes int, from vtime.Time) {
	r.Record(Record{Kind: RecordSample, Text: name, Size: bytes, From: from, To: r.Now()})
}
