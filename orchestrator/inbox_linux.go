package orchestrator

import (
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// inbox keeps the words of a node that have not been heard, however many one round says.
type inbox struct {
	mu    sync.Mutex
	words []*nodeapi.Word
	more  chan struct{} // has a value when words were put
	over  chan struct{} // closed when no more will come
}

func newInbox() *inbox { return &inbox{more: make(chan struct{}, 1), over: make(chan struct{})} }

func (b *inbox) close() { close(b.over) }

func (b *inbox) put(w *nodeapi.Word) {
	b.mu.Lock()
	b.words = append(b.words, w)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default: // a value is there
	}
}

// take returns the oldest word. It waits for one until no more will come, or for the given time.
func (b *inbox) take(patience time.Duration) (w *nodeapi.Word, ok bool) {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for last := false; ; {
		b.mu.Lock()
		if len(b.words) > 0 {
			w, b.words = b.words[0], b.words[1:]
			b.mu.Unlock()
			return w, true
		}
		b.mu.Unlock()
		if last {
			return nil, false
		}
		select {
		case <-b.more:
		case <-b.over:
			last = true // what was put before the end is there
		case <-limit.C:
			last = true
		}
	}
}
