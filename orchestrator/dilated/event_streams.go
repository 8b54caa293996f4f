// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/traces"
)

// eventStreams merges the events of all nodes, in the order of lab time, into a run's events.
type eventStreams struct {
	mu    sync.Mutex
	out   *traces.Events
	trace *traces.Lines // nil: none is asked for
	merge eventMerger
	all   sync.WaitGroup
	stop  context.CancelFunc
}

func isCancel(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// startStreams starts to collect.
func startStreams(ctx context.Context, d *orchestrator.Deployed, out *traces.Events, trace *traces.Lines) (*eventStreams, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &eventStreams{out: out, trace: trace, merge: newEventMerger(len(d.Nodes)), stop: stop}
	for i, c := range d.Nodes {
		w.merge.nodes[i].name = c.Name
	}
	for i, c := range d.Nodes {
		s, err := c.Watch(ctx, &nodeapi.WatchRequest{})
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch node %s: %w", c.Name, err)
		}
		w.all.Go(func() { w.follow(ctx, i, c, s) })
	}
	return w, nil
}

// follow receives one node's batches. If the node dies, the gap is recorded. A process that ends in
// order, for its successor to take its place, sends all its events, and the successor continues.
func (w *eventStreams) follow(ctx context.Context, i int, c nodeapi.NodeClient, s nodeapi.Node_WatchClient) {
	n := &w.merge.nodes[i]
	for {
		b, err := s.Recv()
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			if s, err = c.Watch(ctx, &nodeapi.WatchRequest{}); err == nil {
				continue
			}
		}
		w.mu.Lock()
		switch {
		case err == nil:
			w.merge.take(i, b)
			if w.trace != nil {
				for _, line := range b.Trace {
					w.trace.Raw(line)
				}
			}
		case errors.Is(err, io.EOF) || isCancel(err):
			w.merge.end(i)
		default:
			w.out.Note(n.until, "gap", map[string]string{"node": n.name, "text": "no more events: " + status.Convert(err).Message()})
			if w.trace != nil {
				w.trace.Write(&traces.Line{Kind: traces.LineGap, Node: n.name, At: int64(n.until), Text: status.Convert(err).Message()})
			}
			w.merge.end(i)
		}
		w.flush()
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// flush writes the events that are due (merge). The lock is held.
func (w *eventStreams) flush() {
	w.merge.flush(func(node string, e *nodeapi.Event) {
		if at, ev, ok := e.Machine(); ok {
			w.out.Node(node).Trace(at, ev)
		}
	})
	w.out.Flush() // readable while the run continues
	if w.trace != nil {
		w.trace.Flush()
	}
}

// end stops collecting and writes what is left. It returns the number of events that nodes had no
// room for, and of those written out of order.
func (w *eventStreams) end() (missing, late uint64) {
	w.stop()
	w.all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.merge.nodes {
		w.merge.end(i)
	}
	w.flush()
	for i := range w.merge.nodes {
		n := &w.merge.nodes[i]
		if cut := n.events.lost(); cut > 0 {
			missing += cut
			w.out.Note(w.merge.last, "missing", map[string]any{"node": n.name, "events": cut, "text": "the node had no room for them until they could be sent"})
		}
		if cut := n.lines.lost(); cut > 0 && w.trace != nil {
			w.trace.Write(&traces.Line{Kind: traces.LineCut, Node: n.name, Count: int(cut)})
		}
	}
	if late = w.merge.late; late > 0 {
		w.out.Note(w.merge.last, "disorder", map[string]any{"events": late, "text": "their nodes were so late that earlier places in this file had been written"})
	}
	return missing, late
}
