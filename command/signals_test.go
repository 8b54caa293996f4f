// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endings are the ways in which a terminal, a shell or a service manager ends a program.
// SIGPIPE stands for a reader of its output that has gone.
var endings = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}

// endLimit is the time after which a program that ignores a signal to end counts as one that never ends.
const endLimit = 2 * time.Minute

// ending is the outcome of a program that a signal ended early.
type ending struct {
	code int // as a shell has it
	said string
}

// heed has the programs that a test starts know a signal which the test itself was started to ignore, by nohup: they would
// rightly ignore it, too.
func heed(sig os.Signal) {
	if signal.Ignored(sig) {
		signal.Notify(make(chan os.Signal, 1), sig)
	}
}

// endAt starts the program and, at a moment, asks it to end.
func endAt(t *testing.T, sig syscall.Signal, moment time.Duration, env []string, args ...string) ending {
	t.Helper()
	heed(sig)
	ctx, stop := context.WithTimeout(t.Context(), moment+endLimit)
	defer stop()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program1(t), args...)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the program has its own
	var said bytes.Buffer
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(&said, r) }() // until the program ends, or r does
	<-time.After(moment)
	if sig == syscall.SIGPIPE {
		_ = r.SetReadDeadline(time.Now())
		<-read
		_ = r.Close()
	} else {
		_ = cmd.Process.Signal(sig) // it may have come to its end
	}
	_ = cmd.Wait() // the exit code says it
	<-read
	_ = r.Close()
	e := ending{cmd.ProcessState.ExitCode(), said.String()}
	if ctx.Err() != nil {
		t.Fatalf("%s: it did not end within %v after %v\n%s", strings.Join(args, " "), endLimit, sig, e.said)
	}
	switch s := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case s.Signaled(): // before it listened to signals
		e.code = 128 + int(s.Signal())
	case sig == syscall.SIGQUIT && strings.Contains(e.said, "SIGQUIT: quit"): // likewise
		e.code = 128 + int(sig)
	}
	if e.code != 0 && e.code != 128+int(sig) {
		t.Errorf("%s: exit %d after %v\n%s", strings.Join(args, " "), e.code, sig, e.said)
	}
	return e
}

// moments returns where random moments come from, and says how to have them again.
func moments(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 1))
}

// rounds returns the number of times each verb is ended in each way.
func rounds() int {
	if os.Getenv("MCASTLAB_SOAK") != "" {
		return 40
	}
	return 1
}

// TestSignalsSim: each verb that needs no root ends on each signal, and when nobody reads its
// output any more, with the exit code that says so; what it leaves says that it is not all.
func TestSignalsSim(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := t.TempDir()
	file := write(t, star)
	must(t, "run", "-q", "--trace", "messages", "--runs", dir, file)
	done := filepath.Join(dir, "small-1")
	endless := write(t, strings.Replace(strings.Replace(star, "name: small", "name: endless", 1), "iterations: 2", "iterations: 10000000", 1))
	r := moments(t)
	for _, v := range []struct {
		args    []string
		span    time.Duration
		endless bool
	}{
		{[]string{"run", "--runs", dir, endless}, time.Second, true},
		{[]string{"fuzz", "--seeds", "100000000", "--out", dir, file}, time.Second, true},
		{[]string{"validate", quickstart}, 60 * time.Millisecond, false},
		{[]string{"graph", quickstart}, 60 * time.Millisecond, false},
		{[]string{"trace", done}, 60 * time.Millisecond, false},
		{[]string{"diff", done, done}, 60 * time.Millisecond, false},
	} {
		for _, sig := range slices.Repeat(endings, rounds()) {
			e := endAt(t, sig, time.Duration(r.Int64N(int64(v.span))), nil, v.args...)
			if v.endless && e.code == 0 {
				t.Errorf("%s after %v: exit 0 of a run without end\n%s", v.args[0], sig, e.said)
			}
		}
	}
	folders, err := filepath.Glob(filepath.Join(dir, "endless-*"))
	if err != nil || len(folders) == 0 {
		t.Errorf("%d run folders (%v)", len(folders), err)
	}
	for _, f := range folders {
		interruptedFolder(t, f)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != len(folders)+1 {
		t.Errorf("left is %v (%v)", left, err)
	}
}

// interruptedFolder holds a run folder to what there is to be after an interrupt: nothing in
// it is cut off in the middle, and it says that it is not all.
func interruptedFolder(t *testing.T, dir string) {
	t.Helper()
	var meta struct{ Status string }
	b, err := os.ReadFile(filepath.Join(dir, "meta.json"))
	if err == nil {
		err = json.Unmarshal(b, &meta)
	}
	if err != nil && !os.IsNotExist(err) || err == nil && meta.Status == "ok" {
		t.Errorf("%s: status %q (%v)", dir, meta.Status, err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "summary.json")); err == nil && !json.Valid(b) {
		t.Errorf("%s: summary.json is no JSON", dir)
	}
	b, _ = os.ReadFile(filepath.Join(dir, "events.jsonl")) // an early end leaves none
	for line := range bytes.Lines(b) {
		if meta.Status == "interrupted" && !json.Valid(line) {
			t.Errorf("%s: events.jsonl has %q", dir, line)
		}
	}
}

// TestHangupIgnored: under nohup a hangup is no reason to end.
func TestHangupIgnored(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	endless := write(t, strings.Replace(star, "iterations: 2", "iterations: 10000000", 1))
	cmd := exec.Command("sh", "-c", `trap "" HUP; echo ready; exec "$@"`, "sh", program1(t), "run", "-q", "--runs", t.TempDir(), endless)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = out.Read(make([]byte, 1)) // by now the shell ignores it
	}
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for time.Since(began) < time.Second { // it has long begun by then
		_ = cmd.Process.Signal(syscall.SIGHUP)
		<-time.After(50 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGTERM) {
		t.Errorf("exit %v, want that of SIGTERM", cmd.ProcessState)
	}
}

// TestSecondSignal: what does not end by itself ends by a second signal, unless that comes so
// soon that it must be a repetition of the first, as timeout(1) sends it.
func TestSecondSignal(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGQUIT} {
		heed(sig)
		cmd := exec.Command(program1(t), "validate", "-")
		var said bytes.Buffer
		cmd.Stderr = &said
		in, err := cmd.StdinPipe() // from which nothing comes
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(200 * time.Millisecond)
		for range 2 {
			for range 2 {
				_ = cmd.Process.Signal(sig) // it may have come to its end
				<-time.After(impatience / 10)
			}
			<-time.After(impatience)
		}
		_ = cmd.Wait() // the exit code says it
		_ = in.Close() // the program has ended
		if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != sig && s.ExitStatus() != 128+int(sig) || strings.Contains(said.String(), "goroutine") {
			t.Errorf("it ended with %v\n%s", cmd.ProcessState, said.String())
		}
	}
}

// TestDeadErrors: the program continues to clean up, and ends, when only its messages have no
// reader.
func TestDeadErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir := t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close() // nobody reads from the start
	cmd := exec.Command(program1(t), "run", "--runs", dir, write(t, strings.Replace(star, "iterations: 2", "iterations: 10000000", 1)))
	cmd.Stderr = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the program has its own
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != exitUnread {
		t.Errorf("exit %v, want %d", cmd.ProcessState, exitUnread)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err == nil && len(left) == 1 {
		interruptedFolder(t, left[0])
	}
}

// marks returns the processes whose environment has the mark.
func marks(t *testing.T, mark string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(mark)) {
			pids = append(pids, path)
		}
	}
	return pids
}

// signalled is a verb of running labs under each signal.
type signalled struct {
	t        *testing.T
	r        *rand.Rand
	lab      string
	snapshot map[string]string
}

// end ends a verb in each way at a random moment. before and after, if not nil, are called
// around it; then the server is to be as it was.
func (s *signalled) end(before func(), after func(code int), span time.Duration, args ...string) {
	s.t.Helper()
	for _, sig := range slices.Repeat(endings, rounds()) {
		if before != nil {
			before()
		}
		mark := fmt.Sprintf("MCASTLAB_TEST_MARK=%d", s.r.Uint64())
		moment := time.Duration(s.r.Int64N(int64(span)))
		e := endAt(s.t, sig, moment, []string{mark}, args...)
		if left := marks(s.t, mark); len(left) > 0 {
			s.t.Errorf("%s leaves %v", args[0], left)
		}
		if after != nil {
			after(e.code)
		}
		same(s.t, s.snapshot, snapshot(s.t))
		if s.t.Failed() {
			s.t.Fatalf("%s, %v after %v: exit %d\n%s", strings.Join(args, " "), sig, moment, e.code, e.said)
		}
	}
}

// TestSignalsLive: each long verb of running labs, under each signal and when nobody reads
// its output any more, leaves nothing of its own.
func TestSignalsLive(t *testing.T) {
	need(t)
	s := &signalled{t: t, r: moments(t), lab: "t-signals"}
	file := write(t, "name: t-signals\ntopology: {star: {hosts: 2}}\nworkloads:\n  - bcast: {schemes: [unicast], sizes: [64KiB], iterations: 100000}\n")
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", s.lab) })
	const runtime = "netns"
	s.snapshot = snapshot(t)
	up := func() { must(t, "deploy", "-q", "-r", runtime, file) }
	down := func(int) { must(t, "destroy", s.lab) }
	s.end(nil, nil, 4*time.Second, "run", "-r", runtime, "--runs", t.TempDir(), file)
	s.end(nil, func(code int) {
		if code == exitOK {
			down(code)
		}
	}, 400*time.Millisecond, "deploy", "-r", runtime, file)
	s.end(up, func(code int) {
		if code != exitOK { // it ended before it listened to signals
			down(code)
		}
	}, 200*time.Millisecond, "destroy", s.lab)
	s.end(up, down, time.Second, "exec", "--lab", s.lab, "--node", "*", "--", "sh", "-c", "sleep 300 & sleep 300; echo never")
	up()
	s.snapshot = snapshot(t)
	s.end(nil, nil, 4*time.Second, "run", "-q", "-r", runtime, "--runs", t.TempDir(), file)
	s.end(nil, nil, time.Second, "capture", "--lab", s.lab, "h0:0")
	s.end(nil, nil, 100*time.Millisecond, "logs", "--lab", s.lab, "h0")
	s.end(nil, nil, 100*time.Millisecond, "inspect", s.lab)
	s.end(nil, nil, 100*time.Millisecond, "wipe") // lists
	down(0)
}

// TestDeployUnread: a lab of which nobody reads that it is up is taken back, and one that was up stays.
func TestDeployUnread(t *testing.T) {
	need(t)
	file := write(t, "name: t-unread\ntopology: {star: {hosts: 2}}\nworkloads:\n  - bcast: {schemes: [unicast], sizes: [64B]}\n")
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-unread") })
	deploy := func() {
		t.Helper()
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) // not noticed before something is written to it, as a pipe is
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(pair[0])
		cmd := exec.Command(program1(t), "deploy", "-q", "-r", "netns", file)
		out := os.NewFile(uintptr(pair[1]), "unread")
		defer out.Close()
		cmd.Stdout = out
		_ = cmd.Run() // the exit code says it
		if code := cmd.ProcessState.ExitCode(); code != exitUnread {
			t.Errorf("exit %d, want %d", code, exitUnread)
		}
	}
	before := snapshot(t)
	deploy()
	same(t, before, snapshot(t))
	must(t, "deploy", "-q", "-r", "netns", file)
	before = snapshot(t)
	deploy()
	same(t, before, snapshot(t))
}
