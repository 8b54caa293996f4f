// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

func opened(t *testing.T) *store {
	t.Helper()
	s := &store{dir: filepath.Join(t.TempDir(), "state")}
	if err := s.open(t.Context(), t.Logf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

// TestAuthorityKept: the authority and the deployer's credentials are made once, and again when they expire, do not fit, or are
// files of another program.
func TestAuthorityKept(t *testing.T) {
	s := opened(t)
	now := time.Now()
	a, err := s.authority(now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.deployer(a, "n1", now)
	if err != nil || c.Identity() != (trust.Identity{Role: trust.Deployer, Node: "n1"}) {
		t.Fatalf("%v, %v", c, err)
	}
	again, err := s.authority(now)
	if err != nil || !c.Signed(again) {
		t.Fatalf("a second time it is another authority, %v", err)
	}
	file := func() string {
		b, err := os.ReadFile(filepath.Join(s.dir, deployerFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := file()
	kept := func(node string, at time.Time) bool {
		if _, err := s.deployer(a, node, at); err != nil {
			t.Fatal(err)
		}
		same := file() == first
		first = file()
		return same
	}
	if !kept("n1", now) || kept("n1", now.Add(trust.Valid-trust.Renew+time.Minute)) || kept("n2", now.Add(trust.Valid-trust.Renew)) {
		t.Error("credentials are made again too early, too late, or not for another node")
	}
	for _, name := range []string{authorityFile, deployerFile, "lock"} {
		if info, err := os.Stat(filepath.Join(s.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, authorityFile), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := s.authority(now)
	if err != nil || c.Signed(b) {
		t.Errorf("a broken file is still the authority, %v", err)
	}
	if late, err := s.authority(b.Ends().Add(-trust.Renew)); err != nil || late.Ends().Equal(b.Ends()) {
		t.Errorf("an authority that ends is kept, %v", err)
	}
	if err := s.remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
}

// TestLock: one command at a time; a second one waits, and says so once; it gets the folder even if the first has removed it.
func TestLock(t *testing.T) {
	s := opened(t)
	told := make(chan string, 100)
	second := &store{dir: s.dir}
	got := make(chan error, 1)
	go func() { got <- second.open(t.Context(), func(f string, _ ...any) { told <- f }) }()
	if text := <-told; !strings.Contains(text, "waiting") {
		t.Errorf("%q", text)
	}
	select {
	case err := <-got:
		t.Fatalf("two commands at once, %v", err)
	case <-time.After(3 * pollEvery):
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&store{dir: s.dir}).open(ctx, t.Logf); !errors.Is(err, context.Canceled) {
		t.Errorf("an interrupted wait ends with %v", err)
	}
	if err := s.remove(); err != nil {
		t.Fatal(err)
	}
	s.close()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(s.dir, "lock")); err != nil || len(told) != 0 {
		t.Errorf("%v, told %d times more", err, len(told))
	}
	second.close()
}

// TestProgress: how far the Swarm has come on a server, by the newest task of the specification that is asked for.
func TestProgress(t *testing.T) {
	at := time.Now()
	task := func(node, hash string, age int, state swarm.TaskState, why string) swarm.Task {
		x := swarm.Task{NodeID: node, Spec: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Labels: map[string]string{labelSpec: hash}}}}
		x.CreatedAt, x.Status = at.Add(-time.Duration(age)*time.Second), swarm.TaskStatus{State: state, Err: why}
		return x
	}
	job := task("i", "new", 1, swarm.TaskStateFailed, "exit (1)")
	job.Spec.RestartPolicy = &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionNone}
	tasks := []swarm.Task{
		job, task("a", "new", 2, swarm.TaskStateRejected, "No such image: sha256:1"), task("a", "new", 1, swarm.TaskStateRunning, ""),
		task("b", "new", 2, swarm.TaskStateRunning, ""), task("b", "new", 1, swarm.TaskStateRejected, "No such image: sha256:1"),
		task("c", "old", 1, swarm.TaskStateRunning, ""), task("d", "new", 1, swarm.TaskStateStarting, ""),
		task("e", "new", 1, swarm.TaskStateRejected, "invalid\nmount  config"), task("f", "new", 1, swarm.TaskStateFailed, "exit (1)"),
		{NodeID: "g"},
	}
	for _, x := range []struct {
		node string
		want swarm.TaskState
		done bool
		err  string
	}{
		{"a", swarm.TaskStateRunning, true, ""},
		{"b", swarm.TaskStateRunning, false, "run mcastlab servers image there"},
		{"c", swarm.TaskStateRunning, false, ""},
		{"d", swarm.TaskStateRunning, false, ""},
		{"e", swarm.TaskStateRunning, false, "the Swarm cannot start the daemon: invalid mount config"},
		{"f", swarm.TaskStateRunning, false, ""},                              // the Swarm starts it again
		{"i", swarm.TaskStateRunning, false, "has ended too early: exit (1)"}, // a job, which it does not
		{"i", swarm.TaskStateComplete, false, "has ended too early: exit (1)"},
		{"g", swarm.TaskStateRunning, false, ""},
		{"h", swarm.TaskStateRunning, false, ""},
	} {
		done, err := progress(tasks, x.node, "new", x.want)
		if done != x.done || (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s, %s: %v, %v", x.node, x.want, done, err)
		}
	}
}
