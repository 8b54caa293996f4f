// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// The share is in a container, and programs on nodes are the server's. So the share starts this binary again, with the verb
// CallerVerb, where the server's files are: in the mount namespace of the process that has started the container. That one does
// what a command that runs a program on a node of its own server does.

// CallerVerb is the verb of the process that runs a program for a caller on another server.
const CallerVerb = "caller"

// callerOrder is the first message to such a process; signals follow, a byte each. The process ends with the pipe.
type callerOrder struct {
	Run            shareapi.Run
	Lab, Node, Dir string
	PID            int
	Why            string // why the program has no NIC
	Hosts          string // see start
}

// callerAnswer is a reply of such a process: a command that mpirun starts elsewhere, and at the end the outcome of the program.
type callerAnswer struct {
	Asked *shareapi.Asked `json:"asked,omitempty"`
	Ended *shareapi.Ended `json:"ended,omitempty"`
}

// ServeProgram runs a program on a node of this server for a caller on another server. Set it in multihost.ShareOptions.
func ServeProgram(ctx context.Context, d *orchestrator.Deployed, c net.Conn, q *shareapi.Open) error {
	k, err := orderOf(ctx, d, q)
	if err := shareapi.Reply(c, err); err != nil || k == nil {
		return err
	}
	to := shareapi.NewPieces(c)
	e, err := k.serve(c, to)
	if err != nil {
		e.Error = fmt.Sprintf("exec %s at %s: %v", k.Run.Argv[0], k.Node, err)
	}
	b, err := json.Marshal(e)
	if err == nil {
		_ = to.Write(shareapi.PartEnded, b) // the caller may have gone
	}
	return err
}

// orderOf returns the order for the process that runs the program.
func orderOf(ctx context.Context, d *orchestrator.Deployed, q *shareapi.Open) (*callerOrder, error) {
	run, err := q.Program()
	if err != nil {
		return nil, err
	}
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return nil, err
	}
	k := &callerOrder{Run: *run, Lab: d.Lab.Name, Node: q.Node, Dir: d.Store.NodePath(q.Node)}
	if k.Hosts, err = d.HostsFile(); err != nil {
		return nil, err
	}
	for _, n := range found {
		if n.Name == q.Node {
			k.PID = n.PID
		}
	}
	if k.PID == 0 {
		return nil, fmt.Errorf("node %s is not running", q.Node)
	}
	if why := withoutNIC(d, q.Node, &Execution{Library: k.Run.Library, inTurns: k.Run.InTurns}); why != nil {
		k.Why = why.Error()
	}
	return k, nil
}

// serve starts the process, passes on what goes to and fro, and returns how the program has ended.
func (k *callerOrder) serve(c net.Conn, to *shareapi.Pieces) (e shareapi.Ended, err error) {
	tellEnd, tell, err := os.Pipe()
	if err != nil {
		return e, err
	}
	answer, answerEnd, err := os.Pipe()
	if err != nil {
		return e, errors.Join(err, tellEnd.Close(), tell.Close())
	}
	cmd := exec.Command("/proc/self/exe", CallerVerb)
	cmd.Env, cmd.ExtraFiles = k.Run.Env, []*os.File{tellEnd, answerEnd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s := &stdio{to: to}
	err = onServer(func() error {
		if err := s.open(cmd, k.Run.Terminal); err != nil {
			return err
		}
		if i, err := os.Stat(k.Run.Dir); err == nil && i.IsDir() {
			cmd.Dir = k.Run.Dir
		} else {
			cmd.Dir = "/"
		}
		return cmd.Start()
	})
	_, _ = tellEnd.Close(), answerEnd.Close() // the child's
	s.started()
	if err != nil {
		s.close()
		return e, errors.Join(err, tell.Close(), answer.Close())
	}
	if err := json.NewEncoder(tell).Encode(k); err != nil {
		_ = tell.Close() // with which it ends
	}
	go s.take(c, tell)
	s.all.Go(func() {
		if !takeAnswers(answer, to, &e) {
			e.Error = "exec " + k.Run.Argv[0] + " at " + k.Node + ": the program was ended from outside"
		}
	})
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = nil // what it has answered says more
	}
	late := time.AfterFunc(programGrace, s.close) // output that another program holds open
	s.all.Wait()
	late.Stop()
	s.close()
	_, _ = tell.Close(), answer.Close() // nothing is under way
	return e, err
}

// takeAnswers passes on what a caller answers, until it says how the program has ended.
func takeAnswers(answer io.Reader, to *shareapi.Pieces, e *shareapi.Ended) (ended bool) {
	all := json.NewDecoder(answer)
	for {
		var a callerAnswer
		if all.Decode(&a) != nil {
			return false
		}
		if a.Ended != nil {
			*e = *a.Ended
			return true
		}
		if b, err := json.Marshal(a.Asked); err == nil {
			_ = to.Write(shareapi.PartAsked, b) // the caller may have gone
		}
	}
}

// stdio holds this side's ends of a program's input and output.
type stdio struct {
	to       *shareapi.Pieces
	in       *os.File   // what it reads is written here
	terminal *os.File   // or here, and what it writes is read
	outs     []*os.File // or there
	theirs   []*os.File // the program's ends
	all      sync.WaitGroup
	once     sync.Once
}

// open makes pipes, or a terminal of that size.
func (s *stdio) open(cmd *exec.Cmd, size *shareapi.Size) error {
	if size != nil {
		far, err := s.openTerminal(size)
		if err != nil {
			return fmt.Errorf("make a terminal: %w", err)
		}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = far, far, far
		cmd.SysProcAttr.Setctty = true
		return nil
	}
	in, near, err := os.Pipe()
	if err != nil {
		return err
	}
	s.in, s.theirs, cmd.Stdin = near, []*os.File{in}, in
	for i, part := range []shareapi.Part{shareapi.PartOut, shareapi.PartErr} {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		s.outs, s.theirs = append(s.outs, r), append(s.theirs, w)
		if i == 0 {
			cmd.Stdout = w
		} else {
			cmd.Stderr = w
		}
		s.all.Go(func() { _, _ = io.Copy(s.to.Writer(part), r) }) // until it ends, or nobody wants it
	}
	return nil
}

// openTerminal makes a terminal of the server.
func (s *stdio) openTerminal(size *shareapi.Size) (far *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	s.terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	s.resize(size.Rows, size.Columns)
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	if far, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, err
	}
	s.theirs = []*os.File{far}
	s.all.Go(func() { _, _ = io.Copy(s.to.Writer(shareapi.PartOut), s.terminal) }) // an error is its end
	return far, nil
}

func (s *stdio) resize(rows, columns uint16) {
	if s.terminal == nil {
		return
	}
	if r, err := s.terminal.SyscallConn(); err == nil {
		_ = r.Control(func(fd uintptr) { // a terminal of another size still works
			_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
		})
	}
}

// started closes what only the program needs.
func (s *stdio) started() {
	for _, f := range s.theirs {
		_ = f.Close() // it has its own
	}
}

func (s *stdio) close() {
	s.once.Do(func() {
		for _, f := range append(s.outs, s.in, s.terminal) {
			if f != nil {
				_ = f.Close() // nothing is under way
			}
		}
	})
}

// take takes what comes for the program. When the connection ends, so does the program.
func (s *stdio) take(c net.Conn, tell *os.File) {
	defer func() { _ = tell.Close() }()
	input := make(chan []byte, shareapi.PiecesMax+1)
	defer close(input)
	go s.feed(input)
	r, buf := bufio.NewReaderSize(c, 2*shareapi.PieceMax), make([]byte, shareapi.PieceMax)
	for {
		part, b, err := shareapi.ReadPiece(r, buf)
		if err != nil {
			return
		}
		switch {
		case part == shareapi.PartIn:
			select {
			case input <- append([]byte{}, b...):
			default:
				return // more than there is room for: not from a caller of this program
			}
		case part == shareapi.PartSignal && len(b) == 1:
			_, _ = tell.Write(b) // it may have ended
		case part == shareapi.PartSize && len(b) == 4:
			s.resize(binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]))
		}
	}
}

// feed writes what the program reads.
func (s *stdio) feed(input <-chan []byte) {
	w := s.in
	if w == nil {
		w = s.terminal
	}
	for b := range input {
		if len(b) == 0 {
			if s.in != nil {
				_ = s.in.Close()
			}
			continue
		}
		_, _ = w.Write(b) // a program may read less
		_ = s.to.Write(shareapi.PartTaken, nil)
	}
}

// onServer calls f where the files are those of this server, and not those of the container of this process.
func onServer(f func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with it
		failed <- func() error {
			fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", os.Getppid()), unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				return fmt.Errorf("reach the files of this server: %w", err)
			}
			defer func() { _ = unix.Close(fd) }() // it was only looked at
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return fmt.Errorf("reach the files of this server: %w", err)
			}
			if err := unix.Setns(fd, unix.CLONE_NEWNS); err != nil {
				return fmt.Errorf("reach the files of this server: %w", err)
			}
			return f()
		}()
	}()
	return <-failed
}

// callerSignal is the error of a caller that has sent a signal.
type callerSignal struct{ by syscall.Signal }

// Error says so.
func (callerSignal) Error() string { return "interrupted" }

// Signal returns the signal.
func (s callerSignal) Signal() syscall.Signal { return s.by }

// Call is the process that runs a program for a caller on another server: it reads orders from tell and replies on answer.
func Call(ctx context.Context, tell, answer *os.File) error {
	for _, f := range []*os.File{tell, answer} {
		unix.CloseOnExec(int(f.Fd()))
	}
	told := bufio.NewReader(tell)
	line, err := told.ReadBytes('\n')
	var k callerOrder
	if err == nil {
		err = json.Unmarshal(line, &k)
	}
	if err != nil {
		return fmt.Errorf("learn what to run: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		for {
			b, err := told.ReadByte()
			if err != nil {
				os.Exit(signalBase + int(syscall.SIGKILL)) // and with it the program
			}
			stop(callerSignal{syscall.Signal(b)})
		}
	}()
	var e shareapi.Ended
	tellAll := &replies{to: json.NewEncoder(answer)}
	if e.Code, err = k.run(ctx, tellAll); err != nil {
		e.Error = err.Error()
	}
	return tellAll.write(callerAnswer{Ended: &e})
}

// replies writes answers, one at a time.
type replies struct {
	mu sync.Mutex
	to *json.Encoder
}

func (a *replies) write(x callerAnswer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.to.Encode(x)
}

// asked passes on what mpirun wants to run elsewhere.
func (a *replies) asked(host int, command string, err error) {
	x := shareapi.Asked{Host: host, Command: command}
	if err != nil {
		x.Error = err.Error()
	}
	_ = a.write(callerAnswer{Asked: &x}) // if nobody reads it, this process is at its end
}

// run runs the program, with the files and the environment of this process.
func (k *callerOrder) run(ctx context.Context, tell *replies) (code int, err error) {
	x := &Execution{Argv: k.Run.Argv, Library: k.Run.Library, Root: k.Run.Root, Clock: k.Run.Clock, inTurns: k.Run.InTurns}
	s := programSite{lab: k.Lab, node: k.Node, pid: k.PID, dir: k.Dir, hosts: k.Hosts, since: k.Run.Since}
	const library = "libibverbs.so.1"
	if k.Why != "" {
		s.why = errors.New(k.Why)
	} else if _, err := os.Stat(filepath.Join(x.Library, library)); err != nil {
		s.why = fmt.Errorf("%s is not in %s on this server: build it by make verbs, and copy it there, or set MCASTLAB_VERBS_LIB to a folder that all servers have",
			library, x.Library)
	}
	if name := os.Getenv("SUDO_USER"); name != "" && !x.Root {
		who, err := invoker(false)
		if err != nil {
			return 0, err
		}
		if who.Name != name {
			return 0, fmt.Errorf("exec %s at %s: user %d is %s there, and %s here: give --root, or users the same numbers",
				k.Run.Argv[0], k.Node, who.UID, who.Name, name)
		}
	}
	p, err := x.program(s)
	if err != nil {
		return 0, err
	}
	p.start.Env = append(p.start.Env, k.Run.More...)
	p.start.Turns, p.start.Rank = k.Run.Turns, k.Run.Rank
	if k.Run.Scratch {
		p.start.scratch()
	}
	if k.Run.MPI != nil {
		if err := p.start.mpirun(k.Run.MPI, x.Library); err != nil {
			return 0, err
		}
		var heard *launchListener
		p.started = func(guardian int) (err error) {
			heard, err = p.start.hear(guardian, tell.asked)
			return err
		}
		defer func() { heard.close() }()
	}
	if k.Run.Terminal != nil {
		if err := os.Stdin.Chown(int(p.start.As.UID), -1); err != nil {
			return 0, fmt.Errorf("exec %s at %s: give it its terminal: %w", k.Run.Argv[0], k.Node, err)
		}
	}
	return p.run(ctx, os.Stdin, os.Stdout, os.Stderr)
}
