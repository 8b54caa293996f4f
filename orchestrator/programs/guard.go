// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// ignoreSignals keeps a guardian alive when a terminal tells a whole process group that it should end.
// The program gets what it does by default.
func ignoreSignals() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
}

// announce tells the node that a program with turns begins. The connection stays open until this process ends. The
// returned function tells its number.
func (s *programStart) announce() (begun func(pid int), err error) {
	if !s.Turns {
		return func(int) {}, nil
	}
	c, err := net.Dial("unixpacket", filepath.Join(s.Dir, nodeapi.ProgramSocket))
	if err == nil {
		_, err = c.Write(nodeapi.ProgramBegins(s.Rank))
	}
	if err != nil {
		return nil, fmt.Errorf("tell the node of the program: %w", err)
	}
	return func(pid int) {
		_, _ = c.Write(nodeapi.ProgramStarted(uint32(pid))) // a node that has gone ends the program in any case
		runtime.KeepAlive(c)
	}, nil
}

// confine makes what the program sees of this server that of its node. It is called in namespaces of its own.
func (s *programStart) confine() error {
	if err := unix.Sethostname([]byte(s.Host)); err != nil {
		return fmt.Errorf("name the server: %w", err)
	}
	// What is taken away outside goes here, too; nothing gets out.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if s.Dir != "" {
		if err := s.showSocket(); err != nil {
			return fmt.Errorf("reach the NIC: %w", err)
		}
	}
	if s.Scratch {
		if err := s.showScratch(); err != nil {
			return err
		}
	}
	if len(s.Ask) > 0 {
		if err := s.showLauncher(); err != nil {
			return err
		}
	}
	if s.Hosts != "" {
		if err := unix.Mount(s.Hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("name the lab's hosts in /etc/hosts: %w", err)
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("show the program its processes: %w", err)
	}
	return nil
}

// showSocket puts a folder in place of the node's, in which every user may see the socket of verbs and
// nothing else. Outside it is the node's user who may.
func (s *programStart) showSocket() error {
	path := filepath.Join(s.Dir, nodeapi.ProgramSocket)
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }() // it was only looked at
	if err := unix.Mount("tmpfs", s.Dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return fmt.Errorf("mount a folder at %s: %w", s.Dir, err)
	}
	return bind(fmt.Sprintf("/proc/self/fd/%d", fd), path)
}

// bind shows a file at a path where there is none.
func bind(file, path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = unix.Mount(file, path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("show %s: %w", path, err)
	}
	return nil
}

// fork starts the program, as its user and unable to gain a privilege.
func (s *programStart) fork() (pid int, err error) {
	path, err := exec.LookPath(s.Argv[0])
	if errors.Is(err, exec.ErrNotFound) {
		return 0, fmt.Errorf("no executable file %q in $PATH: is it installed on this server?", s.Argv[0])
	}
	if err != nil {
		return 0, errors.Unwrap(err) // it names the file
	}
	if s.Turns {
		if err := spareThreads(guardThreads); err != nil {
			return 0, err
		}
	}
	runtime.LockOSThread() // the child is as the thread that forks it
	if s.Turns {
		s.makeAlike()
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("give up privileges: %w", err)
	}
	attr := &syscall.ProcAttr{Env: append(s.Env, served()...), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: s.Group}}
	if s.As.UID != 0 {
		attr.Sys.Credential = &syscall.Credential{Uid: s.As.UID, Gid: s.As.GID, Groups: s.As.Groups}
	}
	if pid, err = syscall.ForkExec(path, s.Argv, attr); err != nil {
		return 0, fmt.Errorf("start %s: %w", path, err)
	}
	return pid, nil
}

// served returns the pipes of the program that always have a reader: its output and errors. A write to these is not a wait.
func served() []string {
	var inodes [2]uint64
	for i := range inodes {
		var st unix.Stat_t
		if err := unix.Fstat(1+i, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			inodes[i] = st.Ino
		}
	}
	return []string{fmt.Sprintf("MCASTLAB_SERVED=%d,%d", inodes[0], inodes[1])}
}

// makeAlike has the program get the same number and the same addresses in each run, where the kernel lets it: programs draw random
// numbers from their number, and addresses are in the frames of one-sided requests.
func (s *programStart) makeAlike() {
	const noRandomAddresses = 0x0040000 // ADDR_NO_RANDOMIZE of personality(2)
	_, _, _ = unix.RawSyscall(unix.SYS_PERSONALITY, noRandomAddresses, 0, 0)
	_ = os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte("999"), 0)
}

// guardThreads is more than the goroutines of a guardian that block at once.
const guardThreads = 16

// spareThreads starts n threads and leaves them idle. The Go runtime starts another thread only when a goroutine may run and no
// thread is idle. Its number would be that of the program, or of a child of the program, in the PID namespace that the guardian
// shares with them.
//
// From here on one goroutine runs at a time, whatever processors there are: a thread that is being started holds the right to run, so
// none is while the caller does. That needs a caller that is not locked to its thread: another thread would start those for it, later.
func spareThreads(n int) error {
	runtime.GOMAXPROCS(1)
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("keep threads ready: %w", err)
	}
	var begun, ended sync.WaitGroup
	begun.Add(n)
	for range n {
		ended.Go(func() {
			begun.Done()
			_, _ = unix.Read(p[0], make([]byte, 1)) // it keeps its thread until the pipe ends
		})
	}
	begun.Wait()
	err := unix.Close(p[1])
	ended.Wait()
	return errors.Join(err, unix.Close(p[0]))
}

// Library returns the folder of the libibverbs.so.1 for programs on nodes: that of MCASTLAB_VERBS_LIB, verbs
// beside this binary or, of a Debian package, lib/mcastlab/verbs beside the binary's bin. It is empty if there is none.
func Library() (dir string, err error) {
	if dir = os.Getenv(libraryEnv); dir != "" {
		if dir, err = filepath.Abs(dir); err == nil {
			_, err = os.Stat(filepath.Join(dir, libraryName))
		}
		if err != nil {
			return "", fmt.Errorf("look for libibverbs in $%s: %w: build it by make verbs", libraryEnv, err)
		}
		return dir, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("look for libibverbs beside this program: %w", err)
	}
	return libraryOf(strings.TrimSuffix(self, " (deleted)")), nil
}

// libraryOf returns the folder of the library that comes with a binary, or nothing.
func libraryOf(binary string) string {
	bin := filepath.Dir(binary)
	for _, dir := range []string{filepath.Join(bin, "verbs"), filepath.Join(filepath.Dir(bin), "lib", "mcastlab", "verbs")} {
		if _, err := os.Stat(filepath.Join(dir, libraryName)); err == nil {
			return dir
		}
	}
	return ""
}

const (
	libraryName = "libibverbs.so.1"
	libraryEnv  = "MCASTLAB_VERBS_LIB"
)
