// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// wordQueue keeps the words of a node that have not been heard, however many one round says.
type wordQueue struct {
	mu    sync.Mutex
	words []*nodeapi.Word
	more  chan struct{} // has a value when words were put
	over  chan struct{} // closed when no more will come
}

func newWordQueue() *wordQueue {
	return &wordQueue{more: make(chan struct{}, 1), over: make(chan struct{})}
}

func (b *wordQueue) close() { close(b.over) }

func (b *wordQueue) put(w *nodeapi.Word) {
	b.mu.Lock()
	b.words = append(b.words, w)
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default: // a value is there
	}
}

// take returns the oldest word. It waits for one until no more will come, or for the given time.
func (b *wordQueue) take(patience time.Duration) (w *nodeapi.Word, ok bool) {
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
