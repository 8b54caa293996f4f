// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// buildOutside builds mcastlab with a program that blocks on request.
func buildOutside(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outside")
	if out, err := goBuild(path, "./testdata/outside").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// outsideLab is a lab whose rank 2 blocks.
func outsideLab(t *testing.T, name string, args ...string) string {
	t.Helper()
	return write(t, fmt.Sprintf("name: %s\ntopology: {star: {hosts: 4}}\nworkloads: [{program: {name: outside, args: [%s]}}]\n", name, strings.Join(args, ", ")))
}

// waitsForWhom is the message about four ranks that wait for messages that nobody sends.
const waitsForWhom = "mcastlab: deadlock: waiting on nothing that can happen: rank 0 (h0) on receive from rank 3; rank 1 (h1) on receive from rank 0; " +
	"rank 2 (h2) on receive from rank 1; rank 3 (h3) on receive from rank 2\n"

// lockedBuffer holds the output of a process, and can be read while the process writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// interruptAt runs a program that does not come to its end, interrupts it once the word has
// come, and returns its exit code and what it said.
func interruptAt(t *testing.T, word, bin string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command(bin, args...)
	said, errOut := &lockedBuffer{}, &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = said, errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended
	for deadline := time.Now().Add(time.Minute); !strings.Contains(errOut.String(), word); <-time.After(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never says %q: %s", word, errOut)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatalf("it does not end: %s", errOut)
	}
	return outcome{cmd.ProcessState.ExitCode(), said.String(), errOut.String()}
}

// TestOutside: a program that blocks outside package rank ends with an interrupt, which names
// the rank. One that waits for what nobody sends says who waits
// for whom.
func TestOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for programs that block")
	}
	t.Parallel()
	bin := buildOutside(t)
	for _, how := range []string{"channel", "sleep", "loop"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			file := outsideLab(t, "t-outside", how, "sim")
			o := interruptAt(t, "rank 2 leaves", bin, "run", "-q", "--runs", t.TempDir(), file)
			if want := "mcastlab: interrupted: rank 2 (h2) has not come back to package rank for "; o.code != exitInterrupted || strings.Count(o.err, want) != 1 {
				t.Errorf("exit %d, want %d and once %q: %s", o.code, exitInterrupted, want, o.err)
			}
		})
	}
	dir := t.TempDir()
	said, err := exec.Command(bin, "run", "-q", "--runs", dir, outsideLab(t, "t-panics", "panic", "sim")).CombinedOutput()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != exitRuntime ||
		!regexp.MustCompile(`mcastlab: .*rank 2 panicked: assignment to entry in nil map \(at main\.go:\d+\)\n`).Match(said) || !bytes.Contains(said, []byte("main.run(")) {
		t.Errorf("a panic: %v: %s", err, said)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "t-panics-1", "meta.json")); err != nil || bytes.Contains(b, []byte(`"running"`)) {
		t.Errorf("its folder is not complete: %v: %s", err, b)
	}
	o := interruptAt(t, "mcastlab: rank 2 (h2) has not come back", bin, "run", "-q", "--runs", t.TempDir(), outsideLab(t, "t-outside", "sleep", "sim"))
	if o.code != exitInterrupted {
		t.Errorf("after it was named: exit %d: %s", o.code, o.err)
	}
	out, err := exec.Command(bin, "run", "-q", "--runs", t.TempDir(), outsideLab(t, "t-waits", "waits", "sim")).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte(waitsForWhom)) {
		t.Errorf("%v: %s", err, out)
	}
}
