// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestRestart: a NIC that is started again under programs ends their transfer with flushed requests; nothing is
// left of them, and a program that comes later has a device.
func TestRestart(t *testing.T) {
	lib := library(t)
	tools(t, "ib_write_bw", "ibv_devinfo")
	h, _ := hosts(t)
	var said bytes.Buffer
	var server *exec.Cmd
	ended := make(chan error, 1)
	for tries := 1; ; tries++ {
		// With a timeout of 67 ms, and with more requests at a time, transfers end in retries exceeded on a busy server.
		args := []string{"-D", "60", "-s", "65536", "-t", "4", "-u", "19", "-F", "-p", freePort(t)}
		server = h[0].at(t, lib, "ib_write_bw", args...)
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				said.Reset()
				client := h[1].at(t, lib, "ib_write_bw", append(args, "127.0.0.1")...)
				client.Stdout, client.Stderr = &said, &said
				err := client.Run()
				if !strings.Contains(said.String(), "Couldn't connect") {
					ended <- err
					return
				}
				<-time.After(100 * time.Millisecond)
			}
		}()
		err, begun := underWay(t, h[1], ended)
		if begun {
			break
		}
		t.Logf("the client ended before the transfer was under way: %v\n%s", err, said.String())
		if tries == 5 { // the two have not found each other on a busy server
			t.FailNow()
		}
		_ = server.Process.Kill()
		_ = server.Wait()
	}
	h[1].loop.Call(vtime.Never, func(now vtime.Time) {
		h[1].server.Restart(now)
		h[1].nic.Restart(now)
	})
	if err := <-ended; err == nil || !strings.Contains(said.String(), "Failed status 5") {
		t.Errorf("the client ends with %v and says:\n%s", err, said.String())
	}
	_ = server.Process.Kill()
	_ = server.Wait()
	for _, h := range h {
		h.emptied(t)
	}
	if out, err := h[1].at(t, lib, "ibv_devinfo").CombinedOutput(); err != nil || !bytes.Contains(out, []byte("mcast0")) {
		t.Errorf("afterwards: %v\n%s", err, out)
	}
}

// underWay waits for a hundred more completions of a host's NIC, or for the value of ended before that.
func underWay(t *testing.T, h *host, ended <-chan error) (err error, begun bool) {
	t.Helper()
	completions := func() (done uint64) {
		if !h.loop.Call(vtime.Never, func(vtime.Time) { done = h.nic.Completions() }) {
			t.Fatal("the loop has ended")
		}
		return done
	}
	for before := completions(); completions() < before+100; {
		select {
		case err := <-ended:
			return err, false
		case <-time.After(time.Millisecond):
		}
	}
	return nil, true
}
