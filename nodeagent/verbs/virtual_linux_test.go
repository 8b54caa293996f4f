// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// virtual is a host in virtual time without a lab around it: its NIC reaches itself alone. It is the loop of the server, and the task of
// the program that runs there.
type virtual struct {
	t       testing.TB
	now     vtime.Time
	nic     *virtrnic.NIC
	gate    machine.Machine
	turns   *Turns
	server  *Server
	path    string
	kicked  bool
	touched uint64
	stuck   string    // the program's wait that cannot end
	give    time.Time // when a program that stops lab time is given up
	end     func()    // kills the program
}

func newVirtual(t testing.TB) *virtual {
	t.Helper()
	h := &virtual{t: t, turns: NewTurns(), path: filepath.Join(t.TempDir(), "s")}
	pool := &wire.Pool{}
	links := machine.NewLinks([]machine.PortConfig{{BitsPerSec: 100e9, Delay: vtime.Microsecond}})
	h.nic = virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &links.Ports(0, 1)[0], Pool: pool, Keys: prng.New(1)})
	h.server = NewServer(Config{Loop: h, NIC: h.nic, Pool: pool, MTU: 4096, Turns: h.turns})
	h.gate = h.server.Gate()
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: h.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = h.server.Serve(l) }() // until Close
	return h
}

// close ends the host.
func (h *virtual) close() {
	h.turns.Stop()
	h.turns.End()
	if err := h.server.Close(); err != nil {
		h.t.Error(err)
	}
}

// Call implements Loop.
func (h *virtual) Call(_ vtime.Time, f func(now vtime.Time)) bool {
	f(h.now)
	return true
}

// Now implements Host.
func (h *virtual) Now() vtime.Time { return h.now }

// Kick implements Host.
func (h *virtual) Kick() { h.kicked = true }

// Park implements Host: the next event happens, here or outside the lab.
func (h *virtual) Park(until vtime.Time, why string) {
	for {
		if h.kicked {
			h.kicked = false
			return
		}
		next, armed := h.gate.NextTimeout()
		if !armed {
			next = vtime.Never
		}
		done := h.nic.Completions()
		idle := min(next, until) == vtime.Never
		if waiting, touched := h.turns.Outside(); waiting > 0 && (idle || touched != h.touched) {
			h.touched = touched
			if h.turns.Check() {
				h.turns.Proceed()
			}
			if h.kicked {
				continue
			}
			if idle && time.Now().Before(h.give) {
				<-time.After(100 * time.Microsecond) // something of the server's may come
				continue
			}
		}
		if idle || time.Now().After(h.give) {
			h.stuck = fmt.Sprintf("at %v, on %s", h.now, why)
			h.end()
			return
		}
		h.now = min(next, until)
		if next <= h.now {
			h.gate.HandleTimeout(h.now)
		}
		h.server.News(h.now)
		if h.nic.Completions() != done || until <= h.now {
			return
		}
	}
}

// run runs a program with lab time from 0 on, and returns its output.
func (h *virtual) run(lib, name string, args ...string) (out []byte, err error) {
	const rank = 2
	guardian, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h.path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	say := func(o op, m any) error {
		_, err := guardian.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(o)), encode(m)...))
		return err
	}
	file, err := os.Create(filepath.Join(h.t.TempDir(), "out"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command("setarch", append([]string{"-R", name}, args...)...) // its addresses are the same each time
	cmd.Stdout, cmd.Stderr = file, file
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+lib, "MCASTLAB_VERBS="+h.path, "LD_PRELOAD="+filepath.Join(lib, "libmcasttime.so"),
		fmt.Sprint("MCASTLAB_CLOCK=", epoch), fmt.Sprint("MCASTLAB_TURNS=", rank))
	if err := say(opProgram, programHello{rank}); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	wait := limit(h.t)
	h.give, h.end = time.Now().Add(wait), func() { _ = cmd.Process.Kill() } // it may have ended
	watch := time.AfterFunc(wait, h.end)                                    // a program that keeps its turn
	defer watch.Stop()
	if err := say(opExpect, byID{uint32(cmd.Process.Pid)}); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = guardian.Close()
		ended <- err
	}()
	if _, err := h.turns.Run(rank, h); err != nil {
		return nil, err
	}
	err = <-ended
	if h.stuck != "" {
		err = fmt.Errorf("it waits for ever: %s", h.stuck)
	}
	out, readErr := os.ReadFile(file.Name())
	if err == nil {
		err = readErr
	}
	return out, err
}
