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
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// A program on a node of another server is a program of that server, started by its share. What it reads and writes, its signals and
// the size of its terminal go over one connection, and it ends with that.

// remoteProgram is the place of a program, and its order.
type remoteProgram struct {
	d      *orchestrator.Deployed
	server *engine.Server
	run    shareapi.Run
	asked  func(host int, command string, err error) // of mpirun: what it wants to run elsewhere
}

// remotePrograms prepares a program at each of the nodes, on their servers.
func remotePrograms(d *orchestrator.Deployed, at []engine.Running, x *Execution) (all []*program, err error) {
	since, err := deployedSince(d)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("exec %s: %w", x.Argv[0], err)
	}
	for _, n := range at {
		server, ok := d.Access.ServerOf(n.Name)
		if !ok {
			return nil, fmt.Errorf("exec at %s: no server of lab %s has it", n.Name, d.Lab.Name)
		}
		all = append(all, &program{lab: d.Lab.Name, node: n.Name, start: programStart{Argv: x.Argv}, remote: &remoteProgram{
			d: d, server: server,
			run: shareapi.Run{
				Argv: x.Argv, Env: os.Environ(), Dir: dir, Since: since, Library: x.Library, Clock: x.Clock, Root: x.Root, InTurns: x.inTurns,
			},
		}})
	}
	return all, nil
}

// runRemote is run of a program on another server.
func (p *program) runRemote(ctx context.Context, in io.Reader, out, errOut io.Writer) (code int, err error) {
	failed := func(err error) (int, error) {
		return 0, fmt.Errorf("exec %s at %s: server %s: %w", p.start.Argv[0], p.node, p.remote.server, err)
	}
	q := p.remote.run
	q.Argv, q.More, q.Turns, q.Rank = p.start.Argv, p.start.Env, p.start.Turns, p.start.Rank
	restore := func() {}
	if f, ok := in.(*os.File); ok && onTerminal(f) && onTerminal(asReader(out)) {
		if q.Terminal, restore, err = takeTerminal(f); err != nil {
			return failed(err)
		}
	}
	defer restore()
	open, err := shareapi.OpenProgram(p.node, &q)
	if err != nil {
		return failed(err)
	}
	c, err := p.remote.d.Access.Call(ctx, p.node, open)
	if err != nil {
		return 0, fmt.Errorf("exec %s at %s: %w", p.start.Argv[0], p.node, err)
	}
	defer func() { _ = c.Close() }() // with which the program ends, if it has not
	to, ended := shareapi.NewPieces(c), make(chan struct{})
	defer close(ended)
	room := make(chan bool, shareapi.PiecesMax)
	for range shareapi.PiecesMax {
		room <- true
	}
	go sendInput(to, in, room, ended)
	go p.sendSignals(ctx, to, c, in, q.Terminal != nil, ended)
	e, err := p.remote.takePieces(c, room, out, errOut)
	var gone outputError
	switch {
	case errors.As(err, &gone) && errors.Is(err, syscall.EPIPE):
		return signalBase + int(syscall.SIGPIPE), nil // by which it would have ended here
	case err != nil && ctx.Err() != nil:
		return signalBase + int(syscall.SIGKILL), nil
	case errors.Is(err, io.EOF):
		return failed(errors.New("its share has ended, and the program with it"))
	case err != nil:
		return failed(err)
	case e.Error != "":
		return 0, fmt.Errorf("%s (server %s)", e.Error, p.remote.server)
	}
	return e.Code, nil
}

// asReader returns a file that is written to as one that onTerminal takes.
func asReader(w io.Writer) io.Reader {
	f, _ := w.(*os.File)
	if f == nil {
		return nil
	}
	return f
}

// outputError says that what a program has written could not be written here.
type outputError struct{ error }

// Unwrap returns why.
func (e outputError) Unwrap() error { return e.error }

// takePieces takes what comes from a program until it ends.
func (f *remoteProgram) takePieces(c net.Conn, room chan<- bool, out, errOut io.Writer) (e shareapi.Ended, err error) {
	r, buf := bufio.NewReaderSize(c, 2*shareapi.PieceMax), make([]byte, shareapi.PieceMax)
	for {
		part, b, err := shareapi.ReadPiece(r, buf)
		if err != nil {
			return e, err
		}
		switch part {
		case shareapi.PartOut:
			_, err = out.Write(b)
		case shareapi.PartErr:
			_, err = errOut.Write(b)
		case shareapi.PartTaken:
			select {
			case room <- true:
			default: // a share that has taken more than it was sent
			}
		case shareapi.PartAsked:
			var a shareapi.Asked
			if err := json.Unmarshal(b, &a); err != nil || f.asked == nil {
				return e, fmt.Errorf("its share asks for programs elsewhere that are none: %.100q", b)
			}
			var why error
			if a.Error != "" {
				why = errors.New(a.Error)
			}
			f.asked(a.Host, a.Command, why)
		case shareapi.PartEnded:
			return e, json.Unmarshal(b, &e)
		}
		if err != nil {
			return e, outputError{err}
		}
	}
}

// sendInput sends what the program reads.
func sendInput(to *shareapi.Pieces, in io.Reader, room <-chan bool, ended <-chan struct{}) {
	buf := make([]byte, shareapi.PieceMax)
	for in != nil {
		n, err := in.Read(buf)
		if n > 0 {
			select {
			case <-room:
			case <-ended:
				return
			}
			if to.Write(shareapi.PartIn, buf[:n]) != nil {
				return // the connection has ended, which is seen where it is read
			}
		}
		if err != nil {
			break
		}
	}
	_ = to.Write(shareapi.PartIn, nil) // likewise
}

// sendSignals sends the signal that ends ctx, and the size of the terminal whenever that changes. A program that does not end by the
// signal, on a server that does not end it either, is left to its connection's end.
func (p *program) sendSignals(ctx context.Context, to *shareapi.Pieces, c net.Conn, in io.Reader, terminal bool, ended <-chan struct{}) {
	sizes := make(chan os.Signal, 1)
	if terminal {
		signal.Notify(sizes, unix.SIGWINCH)
		defer signal.Stop(sizes)
	}
	for {
		select {
		case <-ended:
			return
		case <-sizes:
			if s, err := sizeOf(in.(*os.File)); err == nil {
				_ = to.Write(shareapi.PartSize, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, s.Rows), s.Columns))
			}
		case <-ctx.Done():
			_ = to.Write(shareapi.PartSignal, []byte{byte(signalOf(ctx))}) // it may have ended
			select {
			case <-ended:
			case <-time.After(2 * programGrace):
				_ = c.Close()
			}
			return
		}
	}
}

// signalOf returns the signal that is the cause of a context's end.
func signalOf(ctx context.Context) syscall.Signal {
	var s interface{ Signal() syscall.Signal }
	if errors.As(context.Cause(ctx), &s) {
		return s.Signal()
	}
	return syscall.SIGTERM
}

// sizeOf returns the size of a terminal.
func sizeOf(f *os.File) (*shareapi.Size, error) {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil, fmt.Errorf("ask the terminal for its size: %w", err)
	}
	return &shareapi.Size{Rows: w.Row, Columns: w.Col}, nil
}

// takeTerminal has a terminal pass on each character as it is, until the returned function is called: what a character means, the
// terminal on the other server says.
func takeTerminal(f *os.File) (*shareapi.Size, func(), error) {
	size, err := sizeOf(f)
	if err != nil {
		return nil, func() {}, err
	}
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, func() {}, fmt.Errorf("set the terminal: %w", err)
	}
	return size, func() { _ = term.Restore(int(f.Fd()), old) }, nil
}
