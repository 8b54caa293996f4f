// SPDX-License-Identifier: Apache-2.0

// Package process runs the nodes of a lab as plain processes, each in namespaces of its
// own (net, mount, pid, uts, ipc), without a container engine.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Name is the runtime's name.
const Name = "netns"

// Engine is an engine.Engine of processes. LogDir returns where a node's standard error
// goes.
type Engine struct {
	LogDir func(lab, node string) string
}

// Name implements engine.Engine.
func (Engine) Name() string { return Name }

// Start implements engine.Engine.
func (e Engine) Start(ctx context.Context, lab string, nodes []engine.Node, intend func(effect, object string) error) error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("start nodes: %w", err)
	}
	defer func() { _ = self.Close() }() // read only
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	gate := make(chan struct{}, parallel)
	for i, n := range nodes {
		if err := intend("start", n.Name); err != nil {
			return err
		}
		all.Go(func() {
			gate <- struct{}{}
			errs[i] = e.start(ctx, lab, n, self)
			<-gate
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// parallel is the number of processes that start at the same time.
const parallel = 4

// start starts one process. It survives the caller.
func (e Engine) start(ctx context.Context, lab string, n engine.Node, self *os.File) error {
	log, err := os.OpenFile(e.LogDir(lab, n.Name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start node %s: %w", n.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command("/proc/self/fd/3", n.Command(n.Dir, n.Data, n.Nodes)...)
	cmd.Args[0] = "mcastlab"
	cmd.ExtraFiles = []*os.File{self}
	cmd.Dir = "/"
	cmd.Env = []string{engine.MarkLab + "=" + lab, engine.MarkNode + "=" + n.Name}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Credential: &syscall.Credential{Uid: engine.UID, Gid: engine.UID},
		Setsid:     true,
	}
	if err := failpoint.At("start process", cmd.Start); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("start node %s: %w: namespaces need root", n.Name, err)
		}
		return fmt.Errorf("start node %s: %w", n.Name, err)
	}
	awaitMarks(ctx, cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // takes its exit status, so that no zombie stays while we run
	return nil
}

// Find implements engine.Engine.
func (Engine) Find(_ context.Context, lab string) (found []engine.Running, err error) {
	all, err := marked()
	for _, p := range all {
		if p.lab == lab {
			found = append(found, engine.Running{Name: p.node, PID: p.pid})
		}
	}
	return found, err
}

// Labs implements engine.Engine.
func (Engine) Labs(context.Context) (labs []string, err error) {
	all, err := marked()
	for _, p := range all {
		labs = append(labs, p.lab)
	}
	slices.Sort(labs)
	return slices.Compact(labs), err
}

// node is a process with our marks.
type node struct {
	pid       int
	lab, node string
}

// marked looks through all processes for those that carry our marks, hold the node's
// user and are not zombies.
func marked() (found []node, err error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, fmt.Errorf("look for nodes: %w", err)
	}
	for _, d := range dirs {
		if n, ok := markedIn(d); ok {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b node) int { return strings.Compare(a.node, b.node) })
	return found, nil
}

// markedIn looks for our marks in the process with this folder, as marked does.
func markedIn(dir string) (n node, ok bool) {
	info, err := os.Stat(dir)
	if err != nil {
		return n, false // ended meanwhile
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != engine.UID && st.Uid != 0 {
		return n, false
	}
	env, err := environ(dir)
	if err != nil || !bytes.Contains(env, []byte(engine.MarkLab+"=")) {
		return n, false
	}
	for _, v := range strings.Split(string(env), "\x00") {
		if x, ok := strings.CutPrefix(v, engine.MarkLab+"="); ok {
			n.lab = x
		}
		if x, ok := strings.CutPrefix(v, engine.MarkNode+"="); ok {
			n.node = x
		}
	}
	n.pid, err = strconv.Atoi(filepath.Base(dir))
	return n, err == nil && n.node != "" && uidOf(dir) == engine.UID
}

// environ returns what a process was started with. While a node's process executes its program
// again there is nothing to see for a moment.
func environ(dir string) (env []byte, err error) {
	for until := time.Now().Add(executeWait); ; time.Sleep(100 * time.Microsecond) {
		env, err = os.ReadFile(filepath.Join(dir, "environ"))
		pid, bad := strconv.Atoi(filepath.Base(dir))
		if err != nil || len(env) > 0 || uidOf(dir) != engine.UID || bad != nil || ended(pid) || time.Now().After(until) {
			return env, err
		}
	}
}

// executeWait bounds how long that may be: another program of the node's user may have been
// started with nothing.
const executeWait = 100 * time.Millisecond

// showWait bounds how long the kernel may take to show what a process was started with.
const showWait = time.Minute

// awaitMarks waits until a process that was started a moment ago can be found. That it has been
// started is known when the kernel begins to replace the old program; the environment of
// the new one can be read some time later, on a busy server many milliseconds.
func awaitMarks(ctx context.Context, pid int) {
	dir := fmt.Sprintf("/proc/%d", pid)
	for until := time.Now().Add(showWait); time.Now().Before(until) && ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
		if _, ok := markedIn(dir); ok || ended(pid) {
			return // who looks for it finds it, or finds that it has died
		}
	}
}

// uidOf returns the effective user of a process, or -1. The owner of its folder is root
// if the process may not be looked into.
func uidOf(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return -1
	}
	for _, line := range strings.Split(string(b), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "Uid:" {
			if uid, err := strconv.Atoi(f[2]); err == nil {
				return uid
			}
		}
	}
	return -1
}

// removeWait bounds how long the kernel may take to end processes.
const removeWait = 10 * time.Second

// Remove implements engine.Engine.
func (e Engine) Remove(ctx context.Context, lab string, nodes ...string) error {
	killed := map[int]string{}
	for until := time.Now().Add(removeWait); ; {
		all, err := marked()
		if err != nil {
			return err
		}
		for _, p := range all {
			if p.lab != lab || len(nodes) > 0 && !slices.Contains(nodes, p.node) {
				continue
			}
			killed[p.pid] = p.node
			// PID 1 of its namespace: with it goes all that is in there.
			err := failpoint.At("end process", func() error { return unix.Kill(p.pid, unix.SIGKILL) })
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end node %s: %w", p.node, err)
			}
		}
		for pid := range killed { // independent of each other
			if ended(pid) {
				delete(killed, pid)
			}
		}
		switch {
		case len(killed) == 0:
			return nil
		case time.Now().After(until):
			return fmt.Errorf("end nodes of %s: %d processes still run after %v", lab, len(killed), removeWait)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// ended reports whether a process is gone with all it had. A zombie is: what is left of it
// is its exit status, and who takes that is not our business.
func ended(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, after, ok := bytes.Cut(b, []byte(") "))
	return ok && len(after) > 0 && (after[0] == 'Z' || after[0] == 'X')
}

// Logs implements engine.Engine.
func (e Engine) Logs(_ context.Context, lab, name string) ([]byte, error) {
	b, err := os.ReadFile(e.LogDir(lab, name))
	if err != nil {
		return nil, fmt.Errorf("read log of node %s: %w", name, err)
	}
	return b, nil
}
