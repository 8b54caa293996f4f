// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
)

// TestMemoryOfBrokenRun: a run that ends before it has handed over all of its shared memory leaves
// nothing that the next run would take for its own.
func TestMemoryOfBrokenRun(t *testing.T) {
	g, err := topo.Star(2, topo.LinkParams{Rate: 1e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken off")
	a := &agent{}
	hand := func(most int) (handed int, err error) {
		c, err := lockstep.NewCoordinator(&sim.Config{Spec: fabric.Spec{Graph: g, Seed: 1}, OutOfBand: vtime.Microsecond})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		const node = 2 // the switch, of two ports
		return handed, c.HandOver(func(i int, files []*os.File) error {
			if i != node {
				return nil
			}
			if handed++; handed > most {
				return broken
			}
			var fds []int
			for _, f := range files {
				fd, err := unix.Dup(int(f.Fd()))
				if err != nil {
					return err
				}
				fds = append(fds, fd)
			}
			a.takeMemory(fds)
			return nil
		})
	}
	for range 3 {
		if _, err := hand(1); !errors.Is(err, broken) || a.memory.Complete() {
			t.Fatalf("%v; all of the memory is there: %v", err, a.memory.Complete())
		}
	}
	half := a.memory
	if _, err := hand(2); err != nil || !a.memory.Complete() || a.memory == half {
		t.Errorf("%v; all of the memory is there: %v, that of a broken run: %v", err, a.memory.Complete(), a.memory == half)
	}
	if err := a.memory.Close(); err != nil {
		t.Error(err)
	}
	a.memory = nil
	a.takeMemory([]int{-1, -1, -1}) // the run gets the kernel's refusals
	a.node = &node{}
	if _, _, err := a.enter(); err == nil || !strings.Contains(err.Error(), "bad file descriptor") {
		t.Errorf("a run enters a node whose memory could not be mapped: %v", err)
	}
}
