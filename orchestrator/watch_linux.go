package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/vtime"
)

// watch merges the events of all nodes, in the order of lab time, into a run's events.
type watch struct {
	mu    sync.Mutex
	out   *traces.Events
	trace *traces.Lines // nil: none is asked for
	cut   []uint64      // by node: lines of the trace it had no room for
	names []string
	held  [][]*control.Event // by node, in order
	until []vtime.Time       // by node: no event before it comes any more
	all   sync.WaitGroup
	stop  context.CancelFunc
}

func isCancel(err error) bool {
	return errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled
}

// startWatch starts to collect.
func (d *Deployed) startWatch(ctx context.Context, out *traces.Events, trace *traces.Lines) (*watch, error) {
	ctx, stop := context.WithCancel(ctx)
	n := len(d.nodes)
	w := &watch{out: out, trace: trace, cut: make([]uint64, n), held: make([][]*control.Event, n), until: make([]vtime.Time, n), stop: stop}
	for i, c := range d.nodes {
		w.names = append(w.names, c.name)
		s, err := c.Watch(ctx, &control.WatchRequest{})
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch node %s: %w", c.name, err)
		}
		w.all.Go(func() { w.follow(i, s) })
	}
	return w, nil
}

// follow takes one node's batches. If the node goes, the gap is named.
func (w *watch) follow(i int, s control.Node_WatchClient) {
	for {
		b, err := s.Recv()
		w.mu.Lock()
		switch {
		case err == nil:
			w.held[i] = append(w.held[i], b.Events...)
			w.until[i] = vtime.Time(b.Until)
			w.take(i, b)
		case errors.Is(err, io.EOF) || isCancel(err):
			w.until[i] = vtime.Never
		default:
			w.out.Note(w.until[i], "gap", map[string]string{"node": w.names[i], "text": "no more events: " + status.Convert(err).Message()})
			if w.trace != nil {
				w.trace.Write(&traces.Line{Kind: traces.LineGap, Node: w.names[i], At: int64(w.until[i]), Text: status.Convert(err).Message()})
			}
			w.until[i] = vtime.Never
		}
		w.flush()
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// take takes lines of the trace. The lock is held.
func (w *watch) take(i int, b *control.EventBatch) {
	if w.trace == nil {
		return
	}
	for _, line := range b.Trace {
		w.trace.Raw(line)
	}
	w.cut[i] = max(w.cut[i], b.TraceCut)
}

// flush writes what no earlier event can come before. The lock is held.
func (w *watch) flush() {
	limit := vtime.Never
	for _, t := range w.until {
		limit = min(limit, t)
	}
	for {
		first := -1
		for i, h := range w.held {
			if len(h) > 0 && vtime.Time(h[0].Lab) < limit && (first < 0 || h[0].Lab < w.held[first][0].Lab) {
				first = i
			}
		}
		if first < 0 {
			w.out.Flush() // readable while the run goes on
			if w.trace != nil {
				w.trace.Flush()
			}
			return
		}
		if at, ev, ok := w.held[first][0].Machine(); ok {
			w.out.Node(w.names[first]).Trace(at, ev)
		}
		w.held[first] = w.held[first][1:]
	}
}

// end stops collecting and writes what is left.
func (w *watch) end() {
	w.stop()
	w.all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.until {
		w.until[i] = vtime.Never
	}
	w.flush()
	for i, cut := range w.cut {
		if cut > 0 {
			w.trace.Write(&traces.Line{Kind: traces.LineCut, Node: w.names[i], Count: int(cut)})
		}
	}
}
