package nodeagent

import (
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
)

// Bounds of a node's events.
const (
	eventsHeld  = 1 << 16                // that wait to be sent
	eventsEvery = 200 * time.Millisecond // between batches: what a kill can lose at the most
)

// events collects what the machine reports until it is sent.
type events struct {
	mu  sync.Mutex
	all []*control.Event
	cut uint64
}

// Trace implements machine.Tracer.
func (e *events) Trace(now vtime.Time, ev machine.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) >= eventsHeld {
		e.cut++
		return
	}
	e.all = append(e.all, control.EventOf(now, ev))
}

// take returns what is collected and starts anew.
func (e *events) take() (all []*control.Event, cut uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all, e.all = e.all, nil
	return all, e.cut
}

// stream sends batches until the watcher goes or the node is stopped, which has a last
// batch.
func (e *events) stream(s control.Node_WatchServer, now func() vtime.Time, done <-chan struct{}) error {
	tick := time.NewTicker(eventsEvery)
	defer tick.Stop()
	for last := false; ; {
		// Inputs have lab times from before the clock's, so what is traced after this
		// reading may be earlier by what the loop was late. The watcher's merge allows
		// for that.
		until := now()
		all, cut := e.take()
		if err := s.Send(&control.EventBatch{Events: all, Until: int64(until), Cut: cut}); err != nil {
			return err
		}
		if last {
			return nil
		}
		select {
		case <-s.Context().Done():
			return nil
		case <-done:
			last = true
		case <-tick.C:
		}
	}
}
