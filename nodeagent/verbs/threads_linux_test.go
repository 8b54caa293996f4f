// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/sweeps"
)

// virtualProgram builds a program of testdata that uses libibverbs, for a host in virtual time.
func virtualProgram(t testing.TB, name string) (lib, program string) {
	t.Helper()
	tools(t, "setarch")
	lib, program = library(t), filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, filepath.Join("testdata", name+".c"),
		filepath.Join(lib, "libibverbs.so.1"), "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return lib, program
}

// TestRandomThreads: programs of random threads that wait for each other in every way end, and each run of one says the same. A run takes
// a slice of the seeds; MCASTLAB_THREADS=FIRST-LAST takes those, of which 1-1000 is run by hand.
func TestRandomThreads(t *testing.T) {
	lib, program := virtualProgram(t, "threads")
	first, last := 1, 10
	if s := os.Getenv("MCASTLAB_THREADS"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &first, &last); err != nil {
			t.Fatalf("MCASTLAB_THREADS=%s is not FIRST-LAST: %v", s, err)
		}
	} else if !sweeps.Whole() {
		first += 25 * int(sweeps.Day(t)%40)
		last = first + 24
	}
	kinds := map[string]int{}
	for seed := first; seed <= last; seed++ {
		var before []byte
		for range 2 {
			h := newVirtual(t)
			out, err := h.run(lib, program, strconv.Itoa(seed))
			h.close()
			if err != nil || !bytes.Contains(out, []byte("done at ")) {
				t.Fatalf("seed %d: %v\n%s", seed, err, out)
			}
			if before != nil && !bytes.Equal(out, before) {
				t.Fatalf("seed %d says\n%s\nand before\n%s", seed, out, before)
			}
			before = out
		}
		for _, l := range bytes.Split(before, []byte("\n")) {
			if f := bytes.Fields(l); len(f) > 7 {
				kinds[string(f[7])]++
			}
		}
	}
	t.Logf("seeds %d to %d, steps by kind: %v", first, last, kinds)
}

// TestBusyWaits: a busy wait ends as late as docs/libibverbs.md says and no later, with polls and sleeps of no length between its looks, or
// one after the other; and a program that stamps each post waits for nothing.
func TestBusyWaits(t *testing.T) {
	lib, program := virtualProgram(t, "pace")
	h := newVirtual(t)
	defer h.close()
	out, err := h.run(lib, program)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// TestEndlessThreads: threads that hand something to and fro for ever do not keep another from the end of its sleep.
func TestEndlessThreads(t *testing.T) {
	lib, program := virtualProgram(t, "endless")
	for _, how := range []string{"semaphores", "condition", "pipes", "yields", "memory"} {
		h := newVirtual(t)
		out, err := h.run(lib, program, how)
		h.close()
		var us int
		if err == nil {
			_, err = fmt.Sscanf(string(out), "done at %d us", &us)
		}
		if most := map[bool]int{false: 1010, true: 30000}[how == "memory"]; err != nil || us < 1000 || us > most { // looks at memory may take 10 ms
			t.Errorf("%s: %v, and at most %d us:\n%s", how, err, most, out)
		}
	}
}

// TestComputing: a program that computes is not taken for one that looks at memory, however long it takes: no lab time passes.
func TestComputing(t *testing.T) {
	lib, program := virtualProgram(t, "compute")
	for range 3 {
		h := newVirtual(t)
		out, err := h.run(lib, program, "200")
		h.close()
		var ns int
		if err == nil {
			_, err = fmt.Sscanf(string(out), "%d ns", &ns)
		}
		if err != nil || ns > 10 { // a look at the clock
			t.Errorf("computing took %d ns of lab time, and takes none: %v\n%s", ns, err, out)
		}
	}
}

// TestUnmapHook: a thread ends whose program has a munmap of its own, which takes locks (UCX's memory hooks do).
func TestUnmapHook(t *testing.T) {
	lib, program := virtualProgram(t, "unmap")
	h := newVirtual(t)
	out, err := h.run(lib, program)
	h.close()
	if err != nil || !strings.Contains(string(out), "3 threads ended, munmap called: yes") {
		t.Errorf("%v\n%s", err, out)
	}
}
