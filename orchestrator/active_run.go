//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/traces"
)

// RunSocket is where the process of a run in virtual time is reached.
func (s *Store) RunSocket() string { return filepath.Join(s.Dir, "run.sock") }

// activeRun returns the connection to the run in virtual time that is under way, nil if there is none.
func (d runAccess) activeRun() (nodeapi.RunClient, func() error) {
	socket := d.Store.RunSocket()
	c, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil // no run, or what a killed one has left: the nodes answer themselves
	}
	_ = c.Close() // it was only to see whether a process listens
	x, err := dial("the run", socket, callWait)
	if err != nil {
		return nil, nil
	}
	return nodeapi.NewRunClient(x.conn), x.conn.Close
}

// lookAtRun asks the run in virtual time that is under way, if there is one.
func (d runAccess) lookAtRun(ctx context.Context) (reply *nodeapi.LookReply, states []counters.Node, err error) {
	run, end := d.activeRun()
	if run == nil {
		return nil, nil, nil
	}
	reply, err = run.Look(ctx, &nodeapi.InspectRequest{})
	if err = errors.Join(err, end()); err != nil {
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

// doInRun has the run in virtual time do something by hand.
func doInRun(ctx context.Context, run nodeapi.RunClient, end func() error, acts []*nodeapi.Act) error {
	for _, a := range acts {
		if _, err := run.Do(ctx, a); err != nil {
			return errors.Join(fmt.Errorf("act in the run: %w", err), end())
		}
	}
	return end()
}

// captureRun writes the frames of a port, as Deployed.Capture does, while a run in virtual time is under way.
func (d runAccess) captureRun(ctx context.Context, run nodeapi.RunClient, e topo.End, w io.Writer, count int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := run.Capture(ctx, &nodeapi.PortRef{Node: uint32(e.Node), Port: uint32(e.Port)})
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
