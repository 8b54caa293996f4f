// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/traces"
)

// TraceFile is the file of a run folder that mcastlab trace reads.
const TraceFile = "trace.jsonl"

// beginTrace opens the run's trace.
func (r *Record) beginTrace() error {
	f, err := r.Folder.Create(TraceFile)
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	r.Trace = traces.NewLines(f)
	r.closes = append(r.closes, r.Trace.Close, f.Close)
	return nil
}

// TraceFabric writes the lab's hosts and links into the trace.
func (r *Record) TraceFabric(g *topo.Graph, s *fabric.Spec) {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		r.names = append(r.names, n.Name)
		if n.Kind == topo.Host {
			r.Trace.Write(&traces.Line{Kind: traces.LineHost, Node: n.Name, Src: wire.AddrOf(n.IP).String()})
		}
		for p := range n.Links {
			far, c := g.Peer(i, p), s.Port(i, p)
			r.Trace.Write(&traces.Line{
				Kind: traces.LineLink, Node: n.Name, Port: p, To: g.Nodes[far.Node].Name, ToPort: far.Port,
				Lands: int64(c.Delay), Gap: int64(c.Serialize(wire.PauseQuantumBits / 8)),
			})
		}
	}
}

// traceNodes returns the tracer and watcher of each node of a simulation.
func (r *Record) traceNodes(g *topo.Graph) (func(int) machine.Tracer, func(int) machine.Watcher) {
	all := make([]*traces.Recorder, len(g.Nodes))
	for i := range all {
		all[i] = traces.NewRecorder(g.Nodes[i].Name, r.Events.Node(g.Nodes[i].Name), r.Trace.Write)
	}
	flush := func() error {
		for _, t := range all {
			t.Flush()
		}
		return nil
	}
	r.closes = append([]func() error{flush}, r.closes...)
	return func(i int) machine.Tracer { return all[i] }, func(i int) machine.Watcher { return all[i] }
}

// traceWorkload notes that a workload begins.
func (r *Record) traceWorkload(now vtime.Time, label string) {
	if r.Trace != nil {
		r.Trace.Write(&traces.Line{Kind: traces.LineWorkload, At: int64(now), Workload: label})
	}
}

// traceMessages writes the iterations of a workload that reports them.
func (r *Record) traceMessages(w *Workload, records [][][]byte) error {
	m, tells := w.App.(apps.Messenger)
	if r.Trace == nil || !tells {
		return nil
	}
	all, err := m.Messages(w.Params, records)
	if err != nil {
		return err
	}
	for _, m := range all {
		l := traces.Line{
			Kind: traces.LineMessage, At: int64(m.Start), Workload: m.Workload, Scheme: m.Scheme, Bytes: int64(m.Bytes), Iteration: m.Iteration,
			Source: int64(m.Done), Ended: int64(m.Ended),
		}
		for i, at := range m.Received {
			// Of external ranks nothing is known, not even that they are there.
			if at >= 0 || i == m.Source {
				l.Hosts, l.Received = append(l.Hosts, r.names[w.Hosts[i]]), append(l.Received, int64(at))
			}
		}
		r.Trace.Write(&l)
	}
	return nil
}

// OpenTrace opens the trace of a run.
func OpenTrace(dir string) (*os.File, error) {
	if s, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no run folder %s", dir)
	} else if err == nil && !s.IsDir() {
		return nil, fmt.Errorf("%s is not a run folder", dir)
	}
	f, err := os.Open(filepath.Join(dir, TraceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: write trace: messages into the lab file, or run with --trace messages", dir, TraceFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read trace: %w", err)
	}
	return f, nil
}
