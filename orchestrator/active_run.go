// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/traces"
)

// RunSocket returns the path of the socket of a run in virtual time.
func (s *Store) RunSocket() string { return filepath.Join(s.Dir, "run.sock") }

// activeRun is the run in virtual time that is under way: nodes answer its process alone.
type activeRun interface {
	// Look returns what the run knows of lab time and faults, and the state of each node, in node order.
	Look(ctx context.Context) (*nodeapi.LookReply, []counters.Node, error)
	// Do has the run do something by hand, between two of its rounds.
	Do(ctx context.Context, acts []*nodeapi.Act) error
	// Capture writes the frames of a port as pcapng until ctx or the run ends or count frames have passed; 0 is no limit.
	Capture(ctx context.Context, e topo.End, w io.Writer, count int) error
	// Close closes the connection and leaves the run as it is.
	Close() error
}

// activeRun connects to the run in virtual time that is under way; ok is false if there is none.
func (d *Deployed) activeRun() (run activeRun, ok bool) {
	socket := d.Store.RunSocket()
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, false // no run, or what a killed one has left: the nodes answer themselves
	}
	_ = c.Close() // it was only to see whether a process listens
	x, err := dial("the run", socket, callWait)
	if err != nil {
		return nil, false
	}
	return &runProcess{d: d, conn: x.conn, client: nodeapi.NewRunClient(x.conn)}, true
}

// lookAtRun looks at the run in virtual time that is under way; ok is false if there is none.
func (d *Deployed) lookAtRun(ctx context.Context) (reply *nodeapi.LookReply, states []counters.Node, ok bool, err error) {
	run, ok := d.activeRun()
	if !ok {
		return nil, nil, false, nil
	}
	reply, states, err = run.Look(ctx)
	return reply, states, true, errors.Join(err, run.Close())
}

// runProcess is an activeRun in another process.
type runProcess struct {
	d      *Deployed
	conn   *grpc.ClientConn
	client nodeapi.RunClient
}

// Look asks the process.
func (r *runProcess) Look(ctx context.Context) (reply *nodeapi.LookReply, states []counters.Node, err error) {
	if reply, err = r.client.Look(ctx, &nodeapi.InspectRequest{}); err != nil {
		return nil, nil, fmt.Errorf("look at the run: %w", err)
	}
	for _, b := range reply.States {
		s, err := (&nodeapi.InspectReply{State: b}).Decode()
		if err != nil {
			return nil, nil, err
		}
		states = append(states, s)
	}
	return reply, states, nil
}

// Do calls the process for each act.
func (r *runProcess) Do(ctx context.Context, acts []*nodeapi.Act) error {
	for _, a := range acts {
		if _, err := r.client.Do(ctx, a); err != nil {
			return fmt.Errorf("act in the run: %w", err)
		}
	}
	return nil
}

// Close closes the connection.
func (r *runProcess) Close() error { return r.conn.Close() }

// Capture has the process send the frames of the port.
func (r *runProcess) Capture(ctx context.Context, e topo.End, w io.Writer, count int) error {
	d := r.d
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := r.client.Capture(ctx, &nodeapi.PortRef{Node: uint32(e.Node), Port: uint32(e.Port)})
	if err != nil {
		return fmt.Errorf("capture %s: %w", d.Graph.PortName(e), err)
	}
	slack := vtime.Duration(0)
	for _, l := range d.Graph.Links {
		slack = max(slack, l.Delay)
	}
	spec := labspec.Fabric(d.Lab, d.Graph)
	slack += spec.Switch.Latency // a frame arrives behind a switch's pipeline
	c, err := traces.NewCapture(w, d.Graph.PortName(e), slack, &traces.Budget{Left: 1 << 62})
	if err != nil {
		return err
	}
	if _, err = s.Recv(); err == nil {
		err = c.Flush() // its reader may see that it has begun
	}
	for n := 0; err == nil && (count == 0 || n < count); n++ {
		var f *nodeapi.CapturedFrame
		if f, err = s.Recv(); err == nil {
			c.Bytes(vtime.Time(f.Now), vtime.Time(f.At), f.Frame)
			err = c.Flush()
		}
	}
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		err = nil // the run has ended, or the user has had enough
	}
	if err != nil {
		err = fmt.Errorf("capture %s: %w", d.Graph.PortName(e), err)
	}
	return errors.Join(err, c.Close())
}
