// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// privateEngine is a Docker engine of the test's own, on a small file system of its own: it
// may be killed, and its disk may be full.
type privateEngine struct {
	t   *testing.T
	dir string
}

// newPrivateEngine starts one. Everything of the test uses it from here on.
func newPrivateEngine(t *testing.T) *privateEngine {
	t.Helper()
	e := &privateEngine{t, t.TempDir()}
	if err := syscall.Mount("tmpfs", e.dir, "tmpfs", 0, "size=400m"); err != nil {
		t.Fatalf("mount a file system for an engine: %v", err)
	}
	t.Cleanup(func() {
		if b, err := os.ReadFile(e.path("log")); err == nil && t.Failed() {
			t.Logf("the engine's log ends:\n%s", b[max(0, len(b)-3000):])
		}
		e.end("pid")
		e.end("exec/containerd/containerd.pid")
		if err := syscall.Unmount(e.dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	e.write("config", "{}")
	e.write("start", fmt.Sprintf(`#!/bin/sh
cd %[1]s
rm -f pid
setsid dockerd --config-file config --data-root %[1]s/root --exec-root %[1]s/exec --pidfile %[1]s/pid -H unix://%[1]s/socket \
  --bridge none --iptables=false --ip6tables=false > log 2>&1 < /dev/null &
for i in $(seq 300); do
  docker -H unix://%[1]s/socket version > /dev/null 2>&1 && exit
  sleep 0.1
done
cat log
exit 1
`, e.dir))
	e.write("restart", fmt.Sprintf(`#!/bin/sh
cd %s
all="$(cat pid) $(cat exec/containerd/containerd.pid)"
kill -9 $all
for p in $all; do
  while [ -e /proc/$p/exe ]; do sleep 0.05; done # a zombie has none
done
rm -f exec/containerd/containerd.pid exec/containerd/*.sock*
./start
`, e.dir))
	e.write("fill", fmt.Sprintf("#!/bin/sh\ndd if=/dev/zero of=%s/filler bs=64k 2> /dev/null || true\n", e.dir))
	t.Setenv("DOCKER_HOST", "unix://"+e.dir+"/socket")
	e.run("start")
	return e
}

func (e *privateEngine) path(name string) string { return filepath.Join(e.dir, name) }

func (e *privateEngine) write(name, text string) {
	e.t.Helper()
	if err := os.WriteFile(e.path(name), []byte(text), 0o700); err != nil {
		e.t.Fatal(err)
	}
}

func (e *privateEngine) run(name string) {
	e.t.Helper()
	if out, err := exec.Command(e.path(name)).CombinedOutput(); err != nil {
		e.t.Fatalf("%s an engine: %v\n%s", name, err, out)
	}
}

// end ends the process whose number is in a file, and waits until it is gone.
func (e *privateEngine) end(file string) {
	b, err := os.ReadFile(e.path(file))
	if err != nil {
		return // it did not come so far
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		e.t.Errorf("%s: %v", file, err)
		return
	}
	_ = syscall.Kill(pid, syscall.SIGTERM) // it may have ended
	waitFor(e.t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestEngineTroubleMidway: the engine is killed and started again, or its disk is full, at
// a step of deploy, run and destroy. When that is over, the lab comes up, or goes.
func TestEngineTroubleMidway(t *testing.T) {
	need(t, "docker")
	if _, err := exec.LookPath("dockerd"); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	e := newPrivateEngine(t)
	c := newCrashing(t, "docker", crashLab)
	c.must("deploy", "nothing") // the image is made
	c.must("destroy", "a deploy")
	day := uint64(time.Now().Unix() / 86400)
	draw := rand.New(rand.NewPCG(day, 3))
	each := 1
	if os.Getenv("MCASTLAB_SOAK") != "" {
		each = 20
	}
	for _, verb := range []string{"deploy", "run", "destroy"} {
		names := c.steps(verb, snapshot(t))
		if verb == "deploy" { // an engine that dies here loses a container that comes up all the same
			starts := slices.Index(names, "start container, done") + 1
			for range 2 * each {
				c.trouble(e, verb, "restart", starts, draw.IntN(2) == 0)
			}
		}
		for range each {
			for _, wrong := range []string{"restart", "fill"} {
				c.trouble(e, verb, wrong, 1+draw.IntN(len(names)), draw.IntN(2) == 0)
			}
		}
	}
}

// trouble has an engine go wrong at a step of a verb. Afterwards the lab comes up, if it is asked to,
// and goes.
func (c *crashing) trouble(e *privateEngine, verb, wrong string, step int, again bool) {
	c.t.Helper()
	before := snapshot(c.t)
	c.prepare(verb)
	at, code, said := c.do(verb, fmt.Sprintf("%d:run:%s", step, e.path(wrong)))
	what := fmt.Sprintf("%s, step %d (%s): %s", verb, step, at, wrong)
	c.t.Logf("%s: exit %d", what, code)
	if code != exitOK && code != exitRuntime && code != exitFidelity || strings.Contains(said, "goroutine ") {
		c.t.Errorf("%s: exit %d\n%s", what, code, said)
	}
	if err := os.RemoveAll(e.path("filler")); err != nil {
		c.t.Fatal(err)
	}
	if again {
		c.must("deploy", what)
		c.must("run", what)
	}
	c.must("destroy", what)
	if same(c.t, before, snapshot(c.t)); c.t.Failed() {
		c.t.Fatalf("after %s:\n%s", what, said)
	}
}
