// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// TestEnvironment: a program on a host has the libraries in front of those that the caller's environment names, and
// what the caller preloads besides the one for UCX, if there is one.
func TestEnvironment(t *testing.T) {
	bare, full, spaced := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(spaced, 0o755); err != nil {
		t.Fatal(err)
	}
	const name = "libmcastsysfs.so"
	for _, dir := range []string{full, spaced} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(full, name)
	for _, c := range []struct{ library, dir, old, want string }{
		{full, "/node", "", path},
		{full, "/node", "own.so other.so", "own.so other.so:" + path},
		{full, "/node", "own.so:" + path, "own.so:" + path},
		{spaced, "/node", "own.so", "own.so:" + name},
		{bare, "/node", "own.so", "own.so"},
		{full, "", "own.so", "own.so"},
		{bare, "/node", "", ""},
	} {
		t.Setenv("LD_PRELOAD", c.old)
		t.Setenv("LD_LIBRARY_PATH", "/own")
		t.Setenv("MCASTLAB_VERBS", "/outer") // of a program that calls exec
		env := environment(identity{}, c.library, c.dir)
		libraries, socket := "LD_LIBRARY_PATH=/own", "MCASTLAB_VERBS=/outer"
		if c.dir != "" {
			libraries, socket = "LD_LIBRARY_PATH="+c.library+":/own", "MCASTLAB_VERBS=/node/"+nodeapi.ProgramSocket
		}
		if !slices.Contains(env, libraries) || slices.Contains(env, socket) != (c.dir != "") || !slices.Contains(env, "LD_PRELOAD="+c.want) {
			t.Errorf("%+v: %q", c, slices.DeleteFunc(env, func(v string) bool { return !strings.HasPrefix(v, "LD_") && !strings.HasPrefix(v, "MCASTLAB_") }))
		}
	}
}

// TestAppendPreload: the library of the lab's time comes after what is preloaded already, in a form that the dynamic linker can read.
func TestAppendPreload(t *testing.T) {
	for _, c := range []struct{ env, path, want string }{
		{"A=1", "/lib/t.so", "A=1 LD_PRELOAD=/lib/t.so"},
		{"LD_PRELOAD= B=2", "/lib/t.so", "LD_PRELOAD=/lib/t.so B=2"},
		{"LD_PRELOAD=own.so B=2", "/lib/t.so", "LD_PRELOAD=own.so:/lib/t.so B=2"},
		{"A=1", "/my:lib/t.so", "A=1 LD_PRELOAD=t.so"},
	} {
		if got := strings.Join(appendPreload(strings.Split(c.env, " "), c.path), " "); got != c.want {
			t.Errorf("%q and %s: %q, not %q", c.env, c.path, got, c.want)
		}
	}
}

// TestStatic: checks that a program without a dynamic linker is distinguished from one that has it, and from a script.
func TestStatic(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir := t.TempDir()
	source, script := filepath.Join(dir, "p.c"), filepath.Join(dir, "script")
	for path, text := range map[string]string{source: "int main(void) { return 0; }\nvoid _start(void) { for (;;); }\n", script: "#!/bin/sh\n"} { // independent of each other
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, how := range [][]string{{"static", "-static", "-nostdlib"}, {"dynamic", "-nostartfiles"}} {
		if out, err := exec.Command("cc", append(how[1:], "-o", filepath.Join(dir, how[0]), source)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for name, want := range map[string]bool{filepath.Join(dir, "static"): true, filepath.Join(dir, "dynamic"): false, script: false, "no-such-program": false} { // independent of each other
		if got := isStatic(name); got != want {
			t.Errorf("%s: %v", filepath.Base(name), got)
		}
	}
}
