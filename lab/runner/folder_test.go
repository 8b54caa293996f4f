package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcastlab/mcastlab/internal/counters"
)

// TestWriteCounters: what several cores write is what one would have written.
func TestWriteCounters(t *testing.T) {
	for _, count := range []int{0, 1, 2, 255, 256, 257, 1030} {
		nodes := make([]counters.Node, count)
		for i := range nodes {
			nodes[i] = counters.Node{Node: fmt.Sprintf("h%d<&>]", i), Kind: "host", Ports: make([]counters.Port, i%3), Counts: map[string]uint64{"b": uint64(i), "a": 1}}
		}
		dir := t.TempDir()
		one, several := filepath.Join(dir, "one"), filepath.Join(dir, "several")
		if err := WriteJSON(one, counters.File{Schema: counters.Schema, Nodes: nodes}); err != nil {
			t.Fatal(err)
		}
		if err := writeCounters(several, nodes); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(one)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(several)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d nodes: %d bytes, want %d", count, len(got), len(want))
		}
	}
}
