// SPDX-License-Identifier: Apache-2.0

// Package rank is the API that distributed programs of a lab are written against. A Rank is
// one process of a job. It offers blocking calls on top of verbs: connections to other ranks
// (Connect), multicast groups (NewGroup, NewWriteGroup, NewMulticast, NewReduction),
// registered memory (Alloc), an out-of-band channel (Put, Get, Sync), the lab's clock and
// workers (Go). The same program runs on the event clock and in containers.
//
// A program is an ordinary function. It may block only through this package: a bare channel
// operation or time.Sleep would stop the event loop.
package rank

import (
	"errors"
)

// Errors of this package; those of work requests carry the verbs' status as text.
var (
	ErrGroup = errors.New("group cannot be used")
)
