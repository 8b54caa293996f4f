// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/counters"
)

// TestWriteCounters: several cores write the same file as one would, for a large lab with a line for each node.
func TestWriteCounters(t *testing.T) {
	for _, count := range []int{0, 1, 2, 255, 256, 257, 1023, 1024, 1030} {
		nodes := make([]counters.Node, count)
		for i := range nodes {
			nodes[i] = counters.Node{Node: fmt.Sprintf("h%d<&>]", i), Kind: "host", Ports: make([]counters.Port, i%3), Counts: map[string]uint64{"b": uint64(i), "a": 1}}
		}
		dir := t.TempDir()
		one, several := filepath.Join(dir, "one"), filepath.Join(dir, "several")
		if err := WriteJSON(one, counters.File{Schema: counters.Schema, Nodes: nodes}); err != nil {
			t.Fatal(err)
		}
		b, err := countersText(nodes)
		if err = errors.Join(err, WriteFile(several, b)); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(one)
		if count >= nodesAsLines {
			text := fmt.Sprintf("{\n  \"schema\": %q,\n  \"nodes\": [", counters.Schema)
			for i := range nodes {
				var b bytes.Buffer
				e := json.NewEncoder(&b)
				e.SetEscapeHTML(false)
				if err := e.Encode(nodes[i]); err != nil {
					t.Fatal(err)
				}
				text += strings.TrimPrefix(",", strings.Repeat(",", 1-min(i, 1))) + "\n    " + strings.TrimSuffix(b.String(), "\n")
			}
			want = checksum.Object([]byte(text + "\n  ]\n}\n"))
		}
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
