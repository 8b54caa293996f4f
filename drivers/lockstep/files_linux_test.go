// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
)

// held returns the descriptors and the mappings of shared memory that this process has.
func held(t *testing.T) string {
	t.Helper()
	var all []string
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.Contains(to, "memfd:mcastlab") { // it may be closed already
			all = append(all, to)
		}
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, "memfd:mcastlab") {
			all = append(all, line)
		}
	}
	return strings.Join(all, "\n")
}

func threeHosts(t *testing.T) *sim.Config {
	t.Helper()
	g, err := topo.Star(3, topo.LinkParams{Rate: 1e9, Delay: vtime.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	return &sim.Config{Spec: fabric.Spec{Graph: g, Seed: 1}, OutOfBand: vtime.Microsecond}
}

const aloneVar = "MCASTLAB_TEST_ALONE"

// alone runs a test again in a process of its own, whose limits and descriptors no other test shares, and reports whether this is that process.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneVar) != "" {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneVar+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// TestMemoryFails: whichever file of the shared memory cannot be made, mapped or handed over, that is an error, and nothing of the memory is left, at a
// coordinator, at the relay of a server and at a node.
func TestMemoryFails(t *testing.T) {
	if !alone(t) {
		return
	}
	cfg := threeHosts(t)
	for name, start := range map[string]func() (interface{ Close() error }, error){ // each by itself
		"coordinator": func() (interface{ Close() error }, error) {
			c, err := NewCoordinator(cfg)
			if c == nil {
				return nil, err
			}
			return c, err
		},
		"relay": func() (interface{ Close() error }, error) {
			r, err := NewRelay(cfg, []bool{true, true, false, true})
			if r == nil {
				return nil, err
			}
			return r, err
		},
	} {
		fails := failsWith(t, name, unix.RLIMIT_NOFILE, 64, unix.EMFILE, start)
		fails += failsWith(t, name, unix.RLIMIT_FSIZE, 24, unix.EFBIG, start)
		if fails < 15 {
			t.Errorf("%s: %d starts have failed: the limits do not bite", name, fails)
		}
	}
	handOverFails(t, cfg)
	nodeFails(t, cfg)
}

// failsWith calls start with each limit below most files, or units of 4 KiB.
func failsWith(t *testing.T, name string, limit, most int, want error, start func() (interface{ Close() error }, error)) (fails int) {
	t.Helper()
	for n := range most {
		var was unix.Rlimit
		if err := unix.Getrlimit(limit, &was); err != nil {
			t.Fatal(err)
		}
		low := unix.Rlimit{Cur: uint64(n), Max: was.Max}
		if limit == unix.RLIMIT_FSIZE {
			low.Cur *= 4096
		}
		if err := unix.Setrlimit(limit, &low); err != nil {
			t.Fatal(err)
		}
		x, err := start()
		if err := unix.Setrlimit(limit, &was); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			err = x.Close()
		} else if fails++; x != nil || !errors.Is(err, want) {
			t.Fatalf("%s with limit %d: %v and %v, want %v", name, n, x, err, want)
		} else {
			err = nil
		}
		if left := held(t); err != nil || left != "" {
			t.Fatalf("%s with limit %d: %v; left:\n%s", name, n, err, left)
		}
	}
	return fails
}

// handOverFails has each hand-over to a node fail.
func handOverFails(t *testing.T, cfg *sim.Config) {
	t.Helper()
	broken := errors.New("broken")
	for at := 0; ; at++ {
		c, err := NewCoordinator(cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		err = c.HandOver(func(int, []*os.File) error {
			if n++; n > at {
				return broken
			}
			return nil
		})
		if failed := c.Close(); failed != nil || held(t) != "" {
			t.Fatalf("hand-over %d: %v; left:\n%s", at, failed, held(t))
		}
		if err == nil {
			if at != 2*len(cfg.Graph.Nodes) {
				t.Errorf("%d hand-overs", at)
			}
			return
		}
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
	}
}

// nodeFails gives a node another file in place of each of its own.
func nodeFails(t *testing.T, cfg *sim.Config) {
	t.Helper()
	c, err := NewCoordinator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const leaf = 3
	fds := func(files []*os.File, without int) (all []int) {
		for i, f := range files {
			if i == without {
				all = append(all, -1)
				continue
			}
			fd, err := unix.Dup(int(f.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fd)
		}
		return all
	}
	before := held(t)
	var m *NodeMemory
	err = c.HandOver(func(i int, files []*os.File) error {
		if i != leaf {
			return nil
		}
		for without := range files {
			if m != nil { // the second time: the memory that it reads
				continue
			}
			if x, err := NewNodeMemory(fds(files, without)); !errors.Is(err, unix.EBADF) || x != nil {
				return fmt.Errorf("without file %d: %v and %v", without, x, err)
			}
			if now := held(t); now != before {
				return fmt.Errorf("without file %d is left:\n%s\nbefore:\n%s", without, now, before)
			}
		}
		if m != nil {
			for without := range files {
				x, before := &NodeMemory{out: make([]ring, len(files)-1)}, held(t)
				if err := x.Read(fds(files, without)); !errors.Is(err, unix.EBADF) {
					return fmt.Errorf("without file %d to read: %v", without, err)
				}
				if err := x.Close(); err != nil || held(t) != before {
					return fmt.Errorf("without file %d to read: %v; is left:\n%s\nbefore:\n%s", without, err, held(t), before)
				}
			}
			return m.Read(fds(files, -1))
		}
		m, err = NewNodeMemory(fds(files, -1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
}
