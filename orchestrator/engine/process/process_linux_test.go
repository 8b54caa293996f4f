// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestEnded: a process that runs has not ended; one that was killed has, though nobody has
// taken its exit status.
func TestEnded(t *testing.T) {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	if ended(pid) {
		t.Error("a process that runs is said to have ended")
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	zombie := func() bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && bytes.Contains(b, []byte(") Z "))
	}
	for deadline := time.Now().Add(time.Minute); !zombie(); {
		if time.Now().After(deadline) {
			t.Fatal("the process does not die")
		}
	}
	if !ended(pid) {
		t.Error("a process of which only the exit status is left is waited for")
	}
	_ = child.Wait() // it was killed
	if !ended(pid) {
		t.Error("a process that is not there has not ended")
	}
}

// TestAwaitMarks: a node that has been started is found, and one that dies at once is not
// waited for. Without the wait 44 of 600 were missed on a busy server.
func TestAwaitMarks(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal("root is needed")
		}
		t.Skip("root is needed")
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				c := exec.Command("/bin/sleep", "600")
				c.Dir, c.Env = "/", []string{engine.MarkLab + "=t-marks", engine.MarkNode + "=h0"}
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: engine.UID, Gid: engine.UID}, Pdeathsig: syscall.SIGKILL}
				if err := c.Start(); err != nil {
					t.Error(err)
					return
				}
				awaitMarks(t.Context(), c.Process.Pid)
				if n, ok := markedIn(fmt.Sprintf("/proc/%d", c.Process.Pid)); !ok || n.lab != "t-marks" || n.node != "h0" {
					t.Errorf("a node that runs is found as %+v, %v", n, ok)
				}
				_ = c.Process.Kill() // it runs
				awaitMarks(t.Context(), c.Process.Pid)
				_ = c.Wait() // it was killed
			}
		})
	}
	all.Wait()
}

// TestRemove: nodes are found by both their marks and their user, and those that are ended
// are the lab's and no others, however alike the names of labs are.
func TestRemove(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatal("root is needed")
		}
		t.Skip("root is needed")
	}
	const lab = "t-remove"
	start := func(lab, node string, uid uint32) *exec.Cmd {
		c := exec.Command("/bin/sleep", "600")
		c.Dir, c.Env = "/", []string{engine.MarkLab + "=" + lab}
		if node != "" {
			c.Env = append(c.Env, engine.MarkNode+"="+node)
		}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() }) // it may have ended
		if node != "" && uid == engine.UID {
			awaitMarks(t.Context(), c.Process.Pid)
		}
		return c
	}
	h0, h1 := start(lab, "h0", engine.UID), start(lab, "h1", engine.UID)
	others := []*exec.Cmd{start(lab+"-b", "h0", engine.UID), start("x"+lab, "h0", engine.UID), start(lab, "h0", engine.UID+1), start(lab, "", engine.UID)}
	e := Engine{}
	found := func(lab string, want ...int) {
		t.Helper()
		got, err := e.Find(t.Context(), lab)
		if err != nil {
			t.Fatal(err)
		}
		var pids []int
		for _, n := range got {
			pids = append(pids, n.PID)
		}
		if !slices.Equal(pids, want) {
			t.Errorf("of %s there are %+v, want %v", lab, got, want)
		}
	}
	found(lab, h0.Process.Pid, h1.Process.Pid)
	for _, step := range []struct {
		nodes []string
		left  []int
	}{{[]string{"h0"}, []int{h1.Process.Pid}}, {nil, nil}, {nil, nil}} {
		if err := e.Remove(t.Context(), lab, step.nodes...); err != nil {
			t.Fatal(err)
		}
		found(lab, step.left...)
		for _, c := range others {
			if ended(c.Process.Pid) {
				t.Fatalf("after %v of %s was removed the process of %v has ended", step.nodes, lab, c.Env)
			}
		}
	}
	found(lab+"-b", others[0].Process.Pid)
}
