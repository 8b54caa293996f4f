// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
)

// TestEventsAtOnce: goroutines that write and flush at once leave whole lines, and all of
// them.
func TestEventsAtOnce(t *testing.T) {
	const writers, each = 4, 2000
	var out bytes.Buffer
	e := NewEvents(&out)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for i := range each {
				e.Note(0, "result", i)
				e.Flush()
			}
		})
	}
	all.Wait()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	if len(lines) != 2+writers*each {
		t.Errorf("%d lines, want %d", len(lines), 2+writers*each)
	}
	for i, l := range lines {
		if !json.Valid(l) {
			t.Fatalf("line %d: %s", i, l)
		}
	}
}
