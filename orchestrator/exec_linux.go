package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
)

// Exec runs a program of this host in the network namespace of every node whose name
// fits the pattern, all at once, and returns the largest exit code. With several nodes
// each line is preceded by the node's name.
func (d *Deployed) Exec(ctx context.Context, pattern string, argv []string, out, errOut io.Writer) (code int, err error) {
	found, err := d.o.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return 0, err
	}
	pids := map[string]int{}
	var names []string
	for _, n := range found {
		ok, err := path.Match(pattern, n.Name)
		if err != nil {
			return 0, fmt.Errorf("exec at %q: %w", pattern, err)
		}
		if ok && n.PID > 0 {
			names = append(names, n.Name)
			pids[n.Name] = n.PID
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("exec at %q: no running node has that name", pattern)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	codes, errs := make([]int, len(names)), make([]error, len(names))
	for i, n := range names {
		all.Go(func() {
			o, e := &lines{mu: &mu, w: out}, &lines{mu: &mu, w: errOut}
			if len(names) > 1 {
				o.prefix, e.prefix = n+": ", n+": "
			}
			codes[i], errs[i] = execIn(ctx, pids[n], argv, o, e)
			o.end()
			e.end()
		})
	}
	all.Wait()
	for _, c := range codes {
		code = max(code, c)
	}
	return code, errors.Join(errs...)
}

// execGrace is how long a program may take to end after an interrupt.
const execGrace = 2 * time.Second

// execIn runs a program in the network namespace of a process. It is a process group of its
// own: when ctx ends, so do those that the program has started, which hold its output open.
func execIn(ctx context.Context, pid int, argv []string, out, errOut io.Writer) (code int, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, errOut
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = execGrace
	// The child is born in the namespace of the thread that starts it.
	err = ns.WithNetNSPath(fmt.Sprintf("/proc/%d/ns/net", pid), func(ns.NetNS) error { return cmd.Start() })
	if err != nil {
		return 0, fmt.Errorf("exec %s: %w", argv[0], err)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // processes that ignored SIGTERM; mostly there are none
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// lines writes whole lines, each with a prefix, so that those of several nodes do not
// mix.
type lines struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		i := bytes.IndexByte(l.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		if err := l.put(l.rest[:i+1]); err != nil {
			return 0, err
		}
		l.rest = l.rest[i+1:]
	}
}

func (l *lines) put(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := fmt.Fprintf(l.w, "%s%s", l.prefix, line)
	return err
}

// end writes a last line that lacks a newline.
func (l *lines) end() {
	if len(l.rest) > 0 {
		_ = l.put(append(l.rest, '\n')) // the program's own exit code counts
	}
}
