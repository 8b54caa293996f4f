// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bufio"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// A program on a node has a guardian: this binary again, with the verb GuardVerb. It is PID 1 of its own
// namespace, so all children of the program end with it; and it ends when its order pipe closes, however the
// other end has died.

// GuardVerb is the verb of guardians.
const GuardVerb = "guard"

// identity is the user and the groups of a program.
type identity struct {
	UID, GID uint32
	Groups   []uint32
	Name     string
	Home     string
}

// programStart is the first message to a guardian. Signals follow, a byte each.
type programStart struct {
	Argv, Env []string
	As        identity
	Host      string // the name of the server that the program sees
	Dir       string // folder of the node's sockets, of which the program sees that of verbs; empty: none
	Hosts     string // file that the program sees as /etc/hosts; empty: that of this server
	Turns     bool   // the program has turns of a run in virtual time, as that of
	Rank      uint32 // this rank
	Group     bool   // signals are for the program's process group
	// Ask are the hosts at which the program may have daemons started (see MPIRun). Scratch: it
	// has a folder for files.
	Ask     []string
	Scratch bool
}

// program is a program on a node.
type program struct {
	lab, node string
	pid       int // of the node
	start     programStart
	remote    *remoteProgram           // of a node on another server
	started   func(guardian int) error // called, if not nil, when the program runs
}

// invoker returns the user that called sudo, or root.
func invoker(root bool) (who identity, err error) {
	text := os.Getenv("SUDO_UID")
	if root || text == "" {
		return identity{Name: "root", Home: "/root"}, nil
	}
	uid, err := strconv.ParseUint(text, 10, 32)
	gid, gidErr := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if err := errors.Join(err, gidErr); err != nil {
		return who, fmt.Errorf("SUDO_UID and SUDO_GID are not the numbers of a user and a group: %w", err)
	}
	who = identity{UID: uint32(uid), GID: uint32(gid), Groups: []uint32{uint32(gid)}, Name: text, Home: "/"}
	u, err := user.LookupId(text)
	if err != nil {
		return who, nil // a user without an entry may still own processes
	}
	who.Name, who.Home = u.Username, u.HomeDir
	if groups, err := u.GroupIds(); err == nil {
		for _, g := range groups {
			if n, err := strconv.ParseUint(g, 10, 32); err == nil {
				who.Groups = append(who.Groups, uint32(n))
			}
		}
	}
	return who, nil
}

// environment returns the environment of a program, which has the NIC whose socket is in dir, or none.
func environment(who identity, library, dir string) []string {
	var own []string
	if who.UID != 0 {
		own = append(own, "HOME="+who.Home, "USER="+who.Name, "LOGNAME="+who.Name)
	}
	if dir != "" {
		if preload := preloads(library); preload != "" {
			own = append(own, preloadEnv+"="+preload)
		}
		if old := os.Getenv("LD_LIBRARY_PATH"); old != "" {
			library += ":" + old
		}
		own = append(own, "LD_LIBRARY_PATH="+library, "MCASTLAB_VERBS="+filepath.Join(dir, nodeapi.ProgramSocket))
		own = append(own, ProgramSettings()...)
	}
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "MCASTLAB_") || slices.ContainsFunc(own, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	}), own...)
}

const preloadEnv = "LD_PRELOAD"

// preloads returns what the dynamic linker is to load before a program's libraries: what the caller has it load, and
// the library by which UCX finds the device, if it is in that folder. The caller's comes first, so
// that it sees what the program calls.
func preloads(library string) string {
	old := os.Getenv(preloadEnv)
	path := filepath.Join(library, "libmcastsysfs.so")
	if _, err := os.Stat(path); err != nil || slices.Contains(strings.FieldsFunc(old, between), path) {
		return old
	}
	if strings.ContainsFunc(path, between) {
		path = filepath.Base(path) // which is found by LD_LIBRARY_PATH
	}
	if old != "" {
		path = old + ":" + path
	}
	return path
}

// between reports whether a character parts the names in LD_PRELOAD, which nothing can quote.
func between(c rune) bool { return c == ':' || c == ' ' }

// needsVerbs reports whether a program is linked with libibverbs or librdmacm. Of a script it does not know.
func needsVerbs(name string) bool {
	path, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	libraries, err := f.ImportedLibraries()
	return errors.Join(err, f.Close()) == nil && (slices.Contains(libraries, "libibverbs.so.1") || slices.Contains(libraries, "librdmacm.so.1"))
}

// programGrace is the time limit for a program to end after a signal.
const programGrace = 2 * time.Second

// run runs the program until it ends, and returns its exit code: 128 and the signal's number if one has ended it.
// When ctx ends the program is sent the signal that is the cause of it, and killed after programGrace.
func (p *program) run(ctx context.Context, in io.Reader, out, errOut io.Writer) (code int, err error) {
	if p.remote != nil {
		return p.runRemote(ctx, in, out, errOut)
	}
	failed := func(err error) (int, error) { return 0, fmt.Errorf("exec %s at %s: %w", p.start.Argv[0], p.node, err) }
	node, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = unix.Close(node) }() // only looked at
	tellEnd, tell, err := os.Pipe()
	if err != nil {
		return failed(err)
	}
	answer, answerEnd, err := os.Pipe()
	if err != nil {
		return failed(errors.Join(err, tellEnd.Close(), tell.Close()))
	}
	p.start.Group = !onTerminal(in)
	cmd := exec.Command("/proc/self/exe", GuardVerb)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	cmd.ExtraFiles = []*os.File{tellEnd, answerEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS, Setpgid: p.start.Group,
	}
	cmd.WaitDelay = programGrace // output that another program holds open
	// The child is born in the network namespace of the thread that starts it.
	err = ns.WithNetNSPath(fmt.Sprintf("/proc/%d/ns/net", p.pid), func(ns.NetNS) error { return cmd.Start() })
	_, _ = tellEnd.Close(), answerEnd.Close() // the child's
	if err != nil {
		return failed(errors.Join(err, tell.Close(), answer.Close()))
	}
	err = json.NewEncoder(tell).Encode(&p.start)
	why, readErr := io.ReadAll(answer) // until the program has been started, or has not
	err = errors.Join(err, readErr, answer.Close())
	if err == nil && len(why) > 0 {
		err = errors.New(string(why))
	}
	if err == nil && p.started != nil {
		err = p.started(cmd.Process.Pid)
	}
	if err != nil {
		_ = tell.Close()
		_ = cmd.Wait()
		return failed(err)
	}
	ended := make(chan struct{})
	lost := p.watch(ctx, node, tell, ended)
	err = cmd.Wait()
	close(ended)
	// A program that loses its NIC may come to its end before it is ended.
	if <-lost || err != nil && over(node) {
		return 0, fmt.Errorf("exec %s at %s: the node has ended, and the program with it: lab %s was destroyed or is being repaired", p.start.Argv[0], p.node, p.lab)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
			return signalBase + int(s.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		return failed(err)
	}
	return 0, nil
}

// over reports whether a process has ended, by its descriptor.
func over(process int) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}

// signalBase plus the number of a signal is the exit code of a program that the signal ended.
const signalBase = 128

// onTerminal reports whether a program reads from a terminal, by which it is sent signals itself.
func onTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// watch passes on the signal that ends ctx, and ends the program with its node: then the channel gets
// true. It closes tell when the program is to be killed, or has ended.
func (p *program) watch(ctx context.Context, node int, tell *os.File, ended <-chan struct{}) <-chan bool {
	lost := make(chan bool, 1)
	gone := make(chan struct{})
	go func() {
		fds := []unix.PollFd{{Fd: int32(node), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(fds, nodeLook)
			select {
			case <-ended:
				return
			default:
			}
			if n > 0 || err != nil && err != unix.EINTR {
				close(gone)
				return
			}
		}
	}()
	go func() {
		defer func() { _ = tell.Close() }()
		select {
		case <-ended:
		case <-gone:
			lost <- true
			return
		case <-ctx.Done():
			by := syscall.SIGTERM
			var s interface{ Signal() syscall.Signal }
			if errors.As(context.Cause(ctx), &s) {
				by = s.Signal()
			}
			if p.start.Group || by == syscall.SIGTERM || by == syscall.SIGHUP { // others a terminal has sent
				_, _ = tell.Write([]byte{byte(by)}) // it may have ended
			}
			select {
			case <-ended:
			case <-time.After(programGrace):
			}
		}
		lost <- false
	}()
	return lost
}

// nodeLook is the interval of checks whether the program has ended, in milliseconds.
const nodeLook = 100

// Guard is the guardian of a program: it reads orders from tell, writes to answer why the program
// could not start, closes answer otherwise, and returns the program's exit code.
func Guard(tell, answer *os.File) (code int) {
	refuse := func(err error) int {
		_, _ = io.WriteString(answer, err.Error()) // nobody else listens
		return 1
	}
	for _, f := range []*os.File{tell, answer} {
		unix.CloseOnExec(int(f.Fd()))
	}
	told := bufio.NewReader(tell)
	line, err := told.ReadBytes('\n')
	var s programStart
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		return refuse(fmt.Errorf("learn what to run: %w", err))
	}
	ignoreSignals()
	begun, err := s.announce()
	if err == nil {
		err = s.confine()
	}
	if err != nil {
		return refuse(err)
	}
	pid, err := s.fork()
	if err != nil {
		return refuse(err)
	}
	begun(pid)
	_ = answer.Close()
	go func() {
		for {
			b, err := told.ReadByte()
			if err != nil {
				os.Exit(signalBase + int(syscall.SIGKILL)) // and with it all there is in the namespace
			}
			to := pid
			if s.Group {
				to = -pid
			}
			_ = syscall.Kill(to, syscall.Signal(b)) // it may have ended
		}
	}()
	for { // orphans are children, too
		var w syscall.WaitStatus
		n, err := syscall.Wait4(-1, &w, 0, nil)
		switch {
		case err == syscall.EINTR || err == nil && n != pid:
		case err != nil:
			return 1
		case w.Signaled():
			return signalBase + int(w.Signal())
		default:
			return w.ExitStatus()
		}
	}
}
