// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestBlame: what fails at a node of a lab on several servers names the server, once, also where only the node was called.
// A server that was lost while a run opened its nodes was not named before.
func TestBlame(t *testing.T) {
	g, err := topo.Star(3, topo.LinkParams{})
	if err != nil {
		t.Fatal(err)
	}
	d := &orchestrator.Deployed{Graph: g, Lost: make([]atomic.Bool, len(g.Nodes))}
	d.Access = orchestrator.LocalAccess(d)
	fail := func(i int) error {
		switch i {
		case 1:
			return fmt.Errorf("node %s: %w", g.Nodes[i].Name, io.ErrUnexpectedEOF)
		case 2:
			return fmt.Errorf("server m1 (10.0.0.2): %w", io.ErrClosedPipe)
		}
		return nil
	}
	if err := d.Each(fail); err == nil || !strings.HasPrefix(err.Error(), "node "+g.Nodes[1].Name) {
		t.Errorf("of one server: %v", err)
	}
	d.Access = &serverNodes{d: d, placement: &engine.Placement{At: []int{0, 1, 1, 0}, Servers: []engine.Server{{Name: "m0", Address: "10.0.0.1"}, {Name: "m1", Address: "10.0.0.2"}}}}
	err = d.Each(fail)
	if err == nil || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, io.ErrClosedPipe) {
		t.Fatalf("of two servers: %v", err)
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		if strings.Count(line, "server m1 (10.0.0.2): ") != 1 {
			t.Errorf("%q names the server %d times", line, strings.Count(line, "server m1 (10.0.0.2): "))
		}
	}
}
