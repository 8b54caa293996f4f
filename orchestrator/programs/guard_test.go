// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// spareEnv names, for a process of this test, the number of goroutines that block at once.
const spareEnv = "MCASTLAB_TEST_SPARE"

// TestSpareThreads: a guardian whose goroutines block starts no thread, which would take the process number that a program
// gets in each run. A program that draws its first PSN from its number, as ibv_rc_pingpong does, would send other frames.
func TestSpareThreads(t *testing.T) {
	if os.Getenv(spareEnv) != "" {
		if err := spareThreads(guardThreads); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread() // as the goroutine that forks the program
		before := threads(t)
		blockAll(t, guardThreads/2)
		runtime.GC()
		fmt.Printf("%d threads more\n", threads(t)-before)
		return
	}
	for range 20 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestSpareThreads$") //nolint:gosec // this test
		cmd.Env = append(os.Environ(), spareEnv+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "0 threads more\n") {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// blockAll has n goroutines read at once from a pipe, in calls that keep their threads, until all have begun.
func blockAll(t *testing.T, n int) {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for range n {
		ended.Go(func() {
			begun.Done()
			_, _ = unix.Read(p[0], make([]byte, 1))
		})
	}
	begun.Wait()
	_ = unix.Close(p[1])
	ended.Wait()
	_ = unix.Close(p[0])
}

// threads returns the number of threads of this process.
func threads(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// TestLibraryOf: the libraries are found beside the binary, as an archive and a clone have them, and where a Debian package puts them.
func TestLibraryOf(t *testing.T) {
	top := t.TempDir()
	binary := filepath.Join(top, "bin", "mcastlab")
	if got := libraryOf(binary); got != "" {
		t.Errorf("there is none, and %s is found", got)
	}
	for _, dir := range []string{filepath.Join(top, "lib", "mcastlab", "verbs"), filepath.Join(top, "bin", "verbs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if got := libraryOf(binary); got == dir {
			t.Errorf("%s has no library", dir)
		}
		if err := os.WriteFile(filepath.Join(dir, libraryName), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if got := libraryOf(binary); got != dir {
			t.Errorf("%q is found, not %s", got, dir)
		}
	}
}
