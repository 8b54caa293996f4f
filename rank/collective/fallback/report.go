// SPDX-License-Identifier: Apache-2.0

package fallback

import "errors"

// ErrLost is returned at a rank that the source has given up.
var ErrLost = errors.New("the source has given this rank up")

// Safety counts the actions of a group's sources beside multicast. Package collective has the same
// fields for users, with a comment on each.
type Safety struct {
	Fallbacks, Returns, Probes, Overlay, Apart, Restarted int
	Causes                                                []string
	Lost                                                  []Lost
}

// Lost is a rank that was given up, as collective.Lost.
type Lost struct {
	Rank int
	Host string
	Why  string
}
