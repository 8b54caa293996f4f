// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces"
)

// tap captures the frames of one interface of a running lab, in both directions, through its own
// socket, without the nodes.
type tap struct {
	FrameSource
	out  *traces.Capture
	lab  func(mono int64) vtime.Time
	mu   *sync.Mutex // of the budget that taps share, and of from
	from *vtime.Time // frames before it are not written
}

// tapIntervalMs bounds how long a tap sleeps, in milliseconds.
const tapIntervalMs = 100

// FrameSource delivers frames to a capture, each with the instant of CLOCK_MONOTONIC at which it was seen.
type FrameSource interface {
	// Receive takes what has come, and after Stop all that comes; n is 0 when nothing has.
	Receive(take func(mono int64, b []byte)) (n int, err error)
	// Wait returns when something may have come, or after 100 ms.
	Wait()
	// Stop ends the capture: Receive then returns what was seen until now.
	Stop() error
	Close() error
}

// localTap is a source on this server.
type localTap struct {
	p    live.IO
	f    *os.File
	mono *live.Monotonic
}

// Receive takes what the socket has.
func (t *localTap) Receive(take func(mono int64, b []byte)) (n int, err error) {
	offset := t.mono.Wall()
	return t.p.Receive(func(wall int64, b []byte) { take(wall-offset, b) })
}

// Wait polls the socket.
func (t *localTap) Wait() {
	// An interrupted or timed-out wait only looks again.
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(t.p.FD()), Events: unix.POLLIN}}, tapIntervalMs)
}

// Stop does nothing: the socket has all frames that were seen.
func (t *localTap) Stop() error { return nil }

// Close closes the socket.
func (t *localTap) Close() error { return t.f.Close() }

// newTap opens a capture of a port; it is written to w.
func (d *Deployed) newTap(ctx context.Context, e topo.End, w io.Writer, lab func(mono int64) vtime.Time, budget *traces.Budget, mu *sync.Mutex) (*tap, error) {
	port := d.Graph.PortName(e)
	from, err := d.Access.Tap(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("capture %s: %w", port, err)
	}
	c, err := traces.NewCapture(w, port, 0, budget)
	if err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return &tap{FrameSource: from, out: c, lab: lab, mu: mu, from: new(vtime.Time)}, nil
}

// Tap opens the socket of a capture on this server.
func (l *localNodes) Tap(ctx context.Context, e topo.End) (FrameSource, error) {
	found, err := l.d.Options.Engine.Find(ctx, l.d.Lab.Name)
	if err != nil {
		return nil, err
	}
	pid := 0
	for _, n := range found {
		if n.Name == l.d.Graph.Nodes[e.Node].Name {
			pid = n.PID
		}
	}
	if pid == 0 {
		return nil, errors.New("the node is not running")
	}
	space, err := netdev.Open(pid)
	if err != nil {
		return nil, err
	}
	files, err := space.Taps([]netdev.End{{NS: space, Port: e.Port, Alias: l.d.Graph.PortName(e)}}, l.d.trains())
	if err = errors.Join(err, space.Close()); err != nil {
		return nil, err
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		return nil, errors.Join(err, files[0].Close())
	}
	return &localTap{p: live.NewIO(int(files[0].Fd()), l.d.trains()), f: files[0], mono: mono}, nil
}

// run captures until ctx ends or more frames than max have been taken, if max is not 0.
func (t *tap) run(ctx context.Context, max int) error {
	seen := 0
	for {
		last := ctx.Err() != nil
		if last {
			if err := t.Stop(); err != nil {
				return err
			}
		}
		t.mu.Lock()
		n, err := t.Receive(func(mono int64, b []byte) {
			if seen++; max == 0 || seen <= max {
				if at := t.lab(mono); at >= *t.from {
					t.out.Bytes(at, at, b)
				}
			}
		})
		if n == 0 {
			err = errors.Join(err, t.out.Flush())
		}
		t.mu.Unlock()
		switch {
		case err != nil:
			return err
		case max > 0 && seen >= max, last && n == 0:
			return nil
		}
		if n == 0 {
			t.Wait()
		}
	}
}

// Close writes what is left.
func (t *tap) Close() error { return errors.Join(t.out.Close(), t.FrameSource.Close()) }

// Captures are the taps of a run.
type Captures struct {
	mu     sync.Mutex
	Budget traces.Budget
	from   vtime.Time
	Taps   []*tap
	bufs   []*bufio.Writer
	files  []*os.File
	all    sync.WaitGroup
	errs   []error
	stop   context.CancelFunc
}

// StartCaptures opens captures of ports in files of the run's folder. Nothing is written
// before begin: what a capture costs is part of what the calibration sees.
func (d *Deployed) StartCaptures(ctx context.Context, folder *runner.Folder, ends []topo.End, bytes int64, lab func(mono int64) vtime.Time) (*Captures, error) {
	k := &Captures{Budget: traces.Budget{Left: bytes}, from: vtime.Never, errs: make([]error, len(ends))}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	k.stop = stop
	for i, e := range ends {
		f, err := folder.Create(strings.ReplaceAll(d.Graph.PortName(e), ":", "_") + ".pcapng")
		if err != nil {
			return k, fmt.Errorf("capture: %w", err)
		}
		buf := bufio.NewWriter(f)
		t, err := d.newTap(ctx, e, buf, lab, &k.Budget, &k.mu)
		if err != nil {
			return k, errors.Join(err, f.Close())
		}
		t.from = &k.from
		k.Taps, k.bufs, k.files = append(k.Taps, t), append(k.bufs, buf), append(k.files, f)
		k.all.Go(func() { k.errs[i] = t.run(run, 0) })
	}
	return k, nil
}

// Begin records frames from a lab time on.
func (k *Captures) Begin(at vtime.Time) {
	k.mu.Lock()
	k.from = at
	k.mu.Unlock()
}

// Close ends all captures. What was captured is complete.
func (k *Captures) Close() error {
	k.stop()
	k.all.Wait()
	errs := k.errs
	for i, t := range k.Taps {
		errs = append(errs, t.Close(), k.bufs[i].Flush(), k.files[i].Close())
	}
	return errors.Join(errs...)
}

// Capture writes the frames of a port as pcapng until ctx ends or count frames have
// passed; 0 is no limit. A capture that begins while a run in virtual time is under way ends with it.
func (d *Deployed) Capture(ctx context.Context, e topo.End, w io.Writer, count int) error {
	var states *nodeapi.InspectReply
	var err error
	for begin := time.Now(); ; {
		if run, ok := d.activeRun(); ok {
			return errors.Join(run.Capture(ctx, e, w, count), run.Close())
		}
		states, err = d.Nodes[e.Node].Inspect(ctx, nil)
		if status.Code(err) != codes.FailedPrecondition || time.Since(begin) > RestoreWait {
			break // else a run is about to begin, or has ended a moment ago
		}
	}
	if err != nil {
		return fmt.Errorf("inspect node %s: %w", d.Nodes[e.Node].Name, err)
	}
	s, err := states.Decode()
	if err != nil {
		return err
	}
	p, err := NewLabClock(ctx, d, s.Node, *s.Rate)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	t, err := d.newTap(ctx, e, w, p.Lab, &traces.Budget{Left: 1 << 62}, &mu)
	if err != nil {
		return err
	}
	return errors.Join(t.run(ctx, count), t.Close())
}
