// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLiveRaces: under go test -race, the orchestrator and all nodes of a lab run under
// the race detector, with the progress display on, and events, counters, faults and a capture
// streaming out of them.
func TestLiveRaces(t *testing.T) {
	if !raceDetector {
		t.Skip("for go test -race")
	}
	need(t)
	before := snapshot(t)
	dir := t.TempDir()
	text := strings.Replace(starLab("t-race", `faults:
  - {for: 1s, loss: {links: h1-leaf0, direction: down, frames: {kind: data}, every-nth: 90}}
  - {at: 80us, for: 10us, every: 200us, pause: {node: h3}}
`), "64B, 64KiB, 1MiB", "64B, 64KiB", 1)
	o := invoke(t, nil, "run", "--runtime", "netns", "--dilation", "20000", "--capture", "leaf0:*", "--runs", dir, write(t, text))
	if o.code != exitOK && o.code != exitFidelity || strings.Contains(o.err, "DATA RACE") {
		t.Errorf("exit %d\n%s", o.code, o.err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "t-race-1", "logs", "*")) // of nodes that said something
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range logs {
		b, err := os.ReadFile(path)
		if err != nil || bytes.Contains(b, []byte("DATA RACE")) {
			t.Errorf("%s: %v\n%s", filepath.Base(path), err, b)
		}
	}
	same(t, before, snapshot(t))
}
