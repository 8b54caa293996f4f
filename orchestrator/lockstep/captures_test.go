// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// newStepCaptures captures both ends of a host's link in a star of three hosts; the switch is node 3.
func newStepCaptures(t *testing.T, dir string) *lockstepCaptures {
	t.Helper()
	g, err := topo.Star(3, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{Spec: fabric.Spec{Graph: g, Seed: 1}}
	k := &lockstepCaptures{ends: []topo.End{{Node: 0}, {Node: 3}}, links: sim.NewSchedule(cfg).Net(), order: cfg.Order()}
	folder, err := runner.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Open(k.links, folder, k.ends, 0); err != nil {
		t.Fatal(err)
	}
	return k
}

// TestStepCaptures: whatever the order in which nodes tell of frames, and however often what is
// complete is written, the files are the same.
func TestStepCaptures(t *testing.T) {
	frame := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 60+i) }
	var files []string
	for _, often := range []bool{false, true} {
		dir := t.TempDir()
		k := newStepCaptures(t, dir)
		for round := range 50 {
			order := []int{0, 3}
			if often {
				order = []int{3, 0}
			}
			for _, node := range order {
				for i := range 2 {
					now := int64(1e6*(round+1)) + int64(i)
					if err := k.add(node, &nodeapi.CapturedFrame{Capture: uint32(i), Now: now, At: now - 600, Frame: frame(node)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			if often {
				k.write(vtime.Time(1e6 * (round + 1)))
			}
		}
		if err := k.close(); err != nil {
			t.Fatal(err)
		}
		all := ""
		for _, e := range k.ends {
			b, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(k.links.Graph().PortName(e), ":", "_")+".pcapng"))
			if err != nil {
				t.Fatal(err)
			}
			all += string(b)
		}
		files = append(files, all)
	}
	if files[0] != files[1] || len(files[0]) < 100*60 {
		t.Errorf("files of %d and %d bytes differ", len(files[0]), len(files[1]))
	}
}

// TestStepCapturesRefused: a node that tells of what it cannot have seen is named by its error.
func TestStepCapturesRefused(t *testing.T) {
	k := newStepCaptures(t, t.TempDir())
	k.write(100)
	for _, c := range []struct {
		node    int
		capture uint32
		now     int64
		want    string
	}{
		{0, 2, 200, "capture 2, which there is not"},
		{0, 1 << 31, 200, "which there is not"},
		{1, 0, 200, "it tells of a capture at h0:0, where it has no part"},
		{0, 0, 99, "arrived at 99ps, after all have come to 100ps"},
		{0, 0, -1, "after all have come to"},
	} {
		err := k.add(c.node, &nodeapi.CapturedFrame{Capture: c.capture, Now: c.now, Frame: make([]byte, 60)})
		if !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("node %d, capture %d at %d: %v, want %q", c.node, c.capture, c.now, err, c.want)
		}
	}
	if len(k.waiting) > 0 {
		t.Errorf("%d frames wait", len(k.waiting))
	}
	if err := k.close(); err != nil {
		t.Fatal(err)
	}
}
