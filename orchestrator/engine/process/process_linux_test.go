package process

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
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
	for deadline := time.Now().Add(10 * time.Second); !zombie(); {
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
