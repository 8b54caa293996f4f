// SPDX-License-Identifier: Apache-2.0

package fallback

import "github.com/mcastlab/mcastlab/core/vtime"

// kind is the kind of a step. The package comment has a table of them.
type kind string

// Kinds of steps.
const (
	kindStop   kind = "stop"
	kindPlan   kind = "plan"
	kindTry    kind = "try"
	kindProbe  kind = "probe"
	kindTest   kind = "test"
	kindDrop   kind = "drop"
	kindSample kind = "sample"
	kindEnd    kind = "end"
)

// step is one instruction of the source to all ranks.
type step struct {
	Kind    kind       `json:"kind"`
	From    int        `json:"from"`              // the source of the message
	Seq     int        `json:"seq"`               // the message
	Epoch   int        `json:"epoch"`             // the group; of a plan: -1 leaves the one in use as it is
	Members []int      `json:"members,omitempty"` // of the group that is tried
	Alive   []int      `json:"alive,omitempty"`   // of a plan, as in membership
	Apart   []int      `json:"apart,omitempty"`   // of a plan, as in membership
	Renew   []int      `json:"renew,omitempty"`   // ranks apart whose connection is replaced
	Lacking []int      `json:"lacking,omitempty"` // who takes part in the overlay of the message, as in plan
	At      vtime.Time `json:"at,omitempty"`      // time of the first sample
	Sender  int        `json:"source,omitempty"`  // who sends the messages of a test
	Bytes   int        `json:"bytes,omitempty"`   // size of each message of a test
	Count   int        `json:"count,omitempty"`   // number of messages of a test
	Backoff backoff    `json:"back"`              // the source's; the next source continues with it
}

// answer is a rank's reply to a step.
type answer struct {
	Have     bool       `json:"have,omitempty"` // the rank has the message
	Expected []uint32   `json:"at,omitempty"`   // the PSN that it expected at each sample; missed: it took none
	Came     vtime.Time `json:"came,omitempty"` // when the message was complete; 0: it is not
	Err      string     `json:"err,omitempty"`  // why it could not act on the step
}

// missed stands for a sample whose time had passed.
const missed = 1 << 31

// samples is the number of samples that a rank takes, a round trip apart.
const samples = 16
