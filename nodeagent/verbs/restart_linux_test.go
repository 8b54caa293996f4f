package verbs

import (
	"bytes"
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
	args := []string{"-D", "60", "-s", "65536", "-F", "-p", freePort(t)}
	server := h[0].at(t, lib, "ib_write_bw", args...)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	ended := make(chan error, 1)
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
	for done := uint64(0); done < 100; { // the transfer is under way
		if !h[1].loop.Call(vtime.Never, func(vtime.Time) { done = h[1].nic.Completions() }) {
			t.Fatal("the loop has ended")
		}
		<-time.After(time.Millisecond)
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
