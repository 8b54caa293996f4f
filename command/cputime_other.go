// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package command

import "time"

// processorTime returns 0: it is not known here.
func processorTime() time.Duration { return 0 }
