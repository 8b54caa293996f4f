// SPDX-License-Identifier: Apache-2.0

// Package heap keeps the memory of a large simulation small and near. It has the kernel back the heap
// with huge pages: a lab of a thousand hosts uses some tens of megabytes at random, many times more
// than the processor has addresses of small pages for. And it has garbage collected sooner, since
// almost all of a large heap is the lab itself, which stays.
//
// It decides nothing: a kernel without huge pages, and any other operating system, changes the
// speed and nothing else.
package heap

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

// Keeper watches the heap of this process while it grows. The zero value has seen none.
type Keeper struct {
	sample  [1]metrics.Sample
	began   time.Time // when it was first measured
	seen    uint64    // bytes of the heap when it was last moved
	percent int       // of the used heap: the garbage that is kept, if less than usual; 0: as usual

	mover   sync.WaitGroup // moves the heap aside: the kernel takes seconds for a gigabyte
	moving  atomic.Bool
	refused atomic.Bool // the kernel has no huge pages
	over    atomic.Bool // Done was called
}

// hugeFrom is the smallest heap that is worth the move: a smaller one fits the caches. usualPercent is the collector's own choice.
const (
	hugeFrom     = 24 << 20
	usualPercent = 100
)

// levels are the garbage that a heap may have from some size on, in percent of the used heap. The larger it is, the less of it is
// garbage, and the less often it fills: HPL on 128 x 128 processes has 30 collections in all.
var levels = [...]struct {
	from    uint64 // bytes
	percent int
}{{256 << 20, 40}, {640 << 20, 20}}

// pays is the time that a simulation must have run for each byte of its heap before the heap is moved. Of 16,384 hosts that broadcast 1 MiB, a process of
// 0.88 GB, the kernel took 2.4 to 3.1 s for it, of 9 to 10 s: 3 ns a byte. Huge pages saved a tenth to a quarter of the time elsewhere (a permutation of 1,024
// hosts is 1.31 times as fast), so some 25 ns a byte pass until that has been won: no run loses more by either choice than about its time so far.
const pays = 25 * time.Nanosecond

// Grown looks whether the heap has grown by a quarter since it was last looked after. It is cheap
// otherwise, and is to be called now and then. Done must be called at the end.
func (k *Keeper) Grown() {
	k.sample[0].Name = "/memory/classes/heap/objects:bytes"
	metrics.Read(k.sample[:])
	if k.sample[0].Value.Kind() != metrics.KindUint64 {
		return
	}
	bytes := k.sample[0].Value.Uint64()
	if k.began.IsZero() {
		k.began = time.Now()
	}
	for _, l := range levels {
		if bytes >= l.from && (k.percent == 0 || k.percent > l.percent) && os.Getenv("GOGC") == "" {
			k.percent = l.percent
			debug.SetGCPercent(l.percent)
		}
	}
	if k.moving.Load() || k.refused.Load() || bytes < hugeFrom || bytes < k.seen+k.seen/4 || time.Since(k.began) < time.Duration(bytes)*pays {
		return
	}
	k.seen = bytes
	k.moving.Store(true)
	k.mover.Go(func() {
		k.refused.Store(!collapse(k.over.Load))
		k.moving.Store(false)
	})
}

// Done collects the lab, if nothing refers to it any more, and leaves the collector as it was. Of several simulations in one process the
// last one does.
func (k *Keeper) Done() {
	k.over.Store(true)
	k.mover.Wait()
	k.over.Store(false)
	if k.percent != 0 {
		k.percent = 0
		runtime.GC() // else the heap may grow to twice the lab
		debug.SetGCPercent(usualPercent)
	}
}
