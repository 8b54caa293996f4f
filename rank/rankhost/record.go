// SPDX-License-Identifier: Apache-2.0

package rankhost

import "github.com/mcastlab/mcastlab/core/vtime"

// RecordKind is the kind of a record.
type RecordKind string

// Kinds of records.
const (
	RecordLine   RecordKind = "line"   // a line of Printf
	RecordCheck  RecordKind = "check"  // a result of Verify
	RecordSample RecordKind = "sample" // a duration of Measured
	RecordRun    RecordKind = "run"    // the whole program, from start to end
)

// Record is one line of JSON that Printf, Verify or Measured of a rank emits. Times are lab time in
// picoseconds.
type Record struct {
	Kind RecordKind `json:"kind"`
	Text string     `json:"text,omitempty"`
	Size int        `json:"size,omitempty"` // bytes, of a sample
	OK   bool       `json:"ok,omitempty"`   // result of a check
	From vtime.Time `json:"from,omitempty"`
	To   vtime.Time `json:"to"`
}
