// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// TestInbox: words come in their order, however many wait; those put before the end are all taken,
// and then the taker hears that no more will come.
func TestInbox(t *testing.T) {
	const count = 100_000
	b := newWordQueue()
	put := func(i int) {
		b.put(&nodeapi.Word{What: &nodeapi.Word_Request{Request: &nodeapi.ChannelRequest{At: int64(i)}}})
	}
	for i := range count { // nobody takes meanwhile
		put(i)
	}
	go func() {
		for i := range count {
			put(count + i)
		}
		b.close()
	}()
	for i := range 2 * count {
		w, ok := b.take(time.Minute)
		if !ok || w.GetRequest().At != int64(i) {
			t.Fatalf("word %d is %v, %v", i, w, ok)
		}
	}
	if w, ok := b.take(time.Minute); ok {
		t.Errorf("after the end: %v", w)
	}
	if w, ok := newWordQueue().take(time.Millisecond); ok {
		t.Errorf("of nothing: %v", w)
	}
}
