// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exitCodes: a program's exit code is that of exec, also of one that a signal has ended.
func (l *verbsLab) exitCodes() {
	l.t.Helper()
	for script, want := range map[string]int{"exit 3": 3, "kill -KILL $$": 137, "kill -TERM $$": 143, "kill -SEGV $$": 139} { // independent of each other
		if r := invoke(l.t, nil, l.at("h0", "sh", "-c", script)...); r.code != want {
			l.t.Errorf("%s: exit code %d, not %d: %s", script, r.code, want, r.err)
		}
	}
	r := invoke(l.t, nil, l.at("h0", "no-such-program")...)
	if r.code != exitRuntime || strings.Count(r.err, "\n") != 1 || !strings.Contains(r.err, `no executable file "no-such-program" in $PATH`) {
		l.t.Errorf("a program that is not there: exit code %d: %s", r.code, r.err)
	}
}

// transfer is a pair of programs, of which the one at h15 writes to the other.
type transfer struct {
	server, client *verbsServer
	gone           chan struct{} // closed when exec of the client has ended
	mark           string        // in the environment of all that belongs to them
}

// amid starts a transfer that takes a minute, and returns in the middle of it.
func (l *verbsLab) amid() *transfer {
	t := l.t
	t.Helper()
	x := &transfer{mark: fmt.Sprintf("T_VERBS=%s-%d", l.name, l.nextPort())}
	args := []string{"ib_write_bw", "-F", "-D", "60", "-u", "10", "-p", fmt.Sprint(l.port)}
	x.server = l.start("h0", []string{x.mark}, args...)
	before := l.sent("h15")
	for started := time.Now(); ; { // until the server listens
		x.client = l.start("h15", []string{x.mark}, append(args, "h0")...)
		x.gone = make(chan struct{})
		go func() { _ = x.client.Wait(); close(x.gone) }() // how, its state says
		for over := false; !over; {
			select {
			case <-x.gone:
				over = true
			case <-time.After(pollEvery):
				if l.sent("h15") > before+1000 {
					t.Cleanup(func() { _ = x.server.Process.Kill(); _ = x.client.Process.Kill(); <-x.gone })
					return x
				}
			}
		}
		if !bytes.Contains(x.client.said.Bytes(), []byte("connect")) || time.Since(started) > time.Minute {
			_ = x.server.Process.Kill()
			_ = x.server.Wait()
			t.Fatalf("the client says:\n%s\nthe server:\n%s", x.client.said.String(), x.server.said.String())
		}
	}
}

// pid returns the process of a program of a transfer, by the end of its command line.
func (l *verbsLab) pid(x *transfer, end string) int {
	l.t.Helper()
	for _, path := range marks(l.t, x.mark) {
		dir := filepath.Dir(path)
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // it may have ended
		if bytes.HasPrefix(line, []byte("ib_write_bw\x00")) && bytes.HasSuffix(line, []byte(end+"\x00")) {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				l.t.Fatal(err)
			}
			return pid
		}
	}
	l.t.Fatalf("no process ib_write_bw … %s", end)
	return 0
}

// killed: a program is killed in the middle of a transfer, and then one with its exec. Both NICs are as before.
func (l *verbsLab) killed() {
	t := l.t
	t.Helper()
	x := l.amid()
	if err := syscall.Kill(l.pid(x, "h0"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-x.gone
	_ = x.server.Wait() // that its peer has gone is an error to it, or is not
	waitFor(t, func() bool { return len(marks(t, x.mark)) == 0 })
	if code := x.client.ProcessState.ExitCode(); code != 137 {
		t.Errorf("exec of a killed program: exit code %d\n%s", code, x.client.said.String())
	}
	rested(t, l.name, l.fresh)

	x = l.amid()
	if err := x.server.Process.Kill(); err != nil { // the command, not the program
		t.Fatal(err)
	}
	_ = x.server.Wait()
	<-x.gone // its WRITEs are not acknowledged any more
	waitFor(t, func() bool { return len(marks(t, x.mark)) == 0 })
	rested(t, l.name, l.fresh)
}

// destroyed: a lab is destroyed in the middle of a transfer. Both programs end, exec says why in one line, and nothing is left.
func (l *verbsLab) destroyed() {
	t := l.t
	t.Helper()
	spaces := nodeSpaces(t, l.name)
	x := l.amid()
	must(t, "destroy", l.name)
	<-x.gone
	_ = x.server.Wait() // its state says how it ended
	told := 0
	for _, s := range []*verbsServer{x.server, x.client} {
		said := s.said.String()
		code, lines := s.ProcessState.ExitCode(), strings.Count(said, "mcastlab: ")
		why := strings.Contains(said, "the node has ended, and the program with it")
		if why {
			told++
		}
		if code <= 0 || lines != 1 || why != (code == exitRuntime) {
			t.Errorf("exec at a host whose lab is destroyed: exit code %d, %d lines:\n%s", code, lines, said)
		}
	}
	if told == 0 { // the other program may have ended when its peer did
		t.Error("no exec says that its node has ended")
	}
	if left := marks(t, x.mark); len(left) > 0 {
		t.Errorf("processes of the programs: %v", left)
	}
	noLab(t, l.name, spaces)
}

// noLab demands that nothing on this server is of a lab: processes, namespaces, of which spaces has the network namespaces of
// the nodes, mounts, files.
func noLab(t *testing.T, lab string, spaces map[string]string) {
	t.Helper()
	if left := marks(t, "MCASTLAB_LAB="+lab+"\x00"); len(left) > 0 {
		t.Errorf("processes of lab %s are left: %v", lab, left)
	}
	if left := nodePIDs(t, lab); len(left) > 0 {
		t.Errorf("nodes of lab %s are left: %v", lab, left)
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if to, err := os.Readlink(d + "/ns/net"); err == nil && spaces[to] != "" {
			t.Errorf("process %s is in the namespace of node %s", filepath.Base(d), spaces[to])
		}
		mounts, _ := os.ReadFile(d + "/mountinfo") // of one that has ended there are none
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, "/"+lab+"/") {
				t.Errorf("process %s has the mount %s", filepath.Base(d), line)
			}
		}
	}
	err = filepath.Walk("/run/mcastlab", func(p string, _ os.FileInfo, err error) error {
		if err == nil && (filepath.Base(p) == lab || strings.HasPrefix(filepath.Base(p), lab+".")) {
			t.Errorf("%s is left", p)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
