// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// site holds the state that all parts of the fallback share.
type site struct {
	r       *rank.Rank
	label   string       // distinguishes this broadcast from others of the job
	partial bool         // stragglers are served apart; else all ranks do the same
	base    *rank.Rank   // view of the rank whose connections carry probes
	empty   *rank.Buffer // data of probes
	meter   *meter       // meter of the messages to the group
}

// me returns the rank's number.
func (s *site) me() int { return s.r.ID() }

// key returns the key that ranks publish a value under for each other.
func (s *site) key(format string, args ...any) string {
	return s.label + "/" + fmt.Sprintf(format, args...)
}
