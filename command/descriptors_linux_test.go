// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMarkDescriptors: the way for older kernels marks every descriptor, and leaves the first three alone.
func TestMarkDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	for _, mark := range []func() error{markDescriptors, keepDescriptors} {
		if _, err := unix.FcntlInt(r.Fd(), unix.F_SETFD, 0); err != nil {
			t.Fatal(err)
		}
		if err := mark(); err != nil {
			t.Fatal(err)
		}
		if flags, err := unix.FcntlInt(r.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v", flags, err)
		}
		if flags, err := unix.FcntlInt(1, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
			t.Errorf("standard output: flags %#x, %v", flags, err)
		}
	}
}

// TestDescriptors: of a hundred files that the caller has open and locked, no node of a lab and no program of exec
// has one: their locks are free as soon as the caller has ended.
func TestDescriptors(t *testing.T) {
	need(t)
	dir := t.TempDir()
	file := write(t, starLab("t-descriptors", ""))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-descriptors") })
	var locked []*os.File
	for i := range 100 {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		locked = append(locked, f)
	}
	call := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program1(t), args...)
		cmd.ExtraFiles = locked
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("mcastlab %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	call("deploy", "-q", "--runtime", "netns", file)
	if out := call("exec", "--clock", "wall", "--lab", "t-descriptors", "--node", "h0", "--", "sh", "-c", "ls -l /proc/self/fd"); strings.Contains(out, dir) || !strings.Contains(out, " 1 -> ") {
		t.Errorf("a program of exec has open:\n%s", out)
	}
	for _, f := range locked {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range locked {
		f, err := os.Open(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			t.Errorf("file %d is still locked: %v", i, err)
		}
		_ = f.Close()
	}
}

// TestFullRun: a lab whose folder is on a full file system is destroyed, by destroy and by wipe, and nothing of it
// stays. /run is a small file system in a mount namespace for it.
func TestFullRun(t *testing.T) {
	need(t)
	dir := t.TempDir()
	for _, verb := range []string{"destroy t-full", "wipe --yes"} {
		file := write(t, starLab("t-full", ""))
		script := fmt.Sprintf(`set -e
mount --make-rprivate /
mount -t tmpfs -o size=96k tmpfs /run
cd %s
%[2]s deploy -q --runtime netns %[3]s
dd if=/dev/zero of=/run/fill bs=1k 2>/dev/null || true
%[2]s %[4]s
test ! -e /run/mcastlab
test -z "$(pgrep -f '^mcastlab [n]ode' || true)"
`, dir, program1(t), file, verb)
		out, err := exec.CommandContext(t.Context(), "unshare", "-m", "-p", "-f", "--mount-proc", "bash", "-c", script).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", verb, err, out)
		}
	}
}
