// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"reflect"
	"testing"
)

// TestHeldWaits: frames that wait at ports are listed by port, and none of a node at which nothing waits.
func TestHeldWaits(t *testing.T) {
	var h Held
	h.waits(0, 3, 0, 0)
	if h.Queues != nil || h.Paused != nil {
		t.Errorf("nothing waits: %+v", h)
	}
	h.waits(1, 3, 4096, 0)
	h.waits(2, 3, 0, 1<<3)
	if !reflect.DeepEqual(h.Queues, []int{0, 4096, 0}) || !reflect.DeepEqual(h.Paused, []int{0, 0, 8}) {
		t.Errorf("%+v", h)
	}
}
