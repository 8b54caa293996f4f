// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// engine models the hardware that receives (AG-30). Each worker spends a time on each
// completion, and for a part of that time it occupies its core, which it shares with other
// workers. Chunks of C bytes, c cycles each, at a clock f give
//
//	rate = min(link, W f C / c, cores f C / i)
//
// with i instructions of one cycle each (F-22). A worker begins when a chunk has arrived and takes nothing of
// its core before, as a thread that a completion starts (AG-28). With all fields zero receiving takes no time.
type engine struct {
	perChunk vtime.Duration // time of a worker
	issue    vtime.Duration // part of it that occupies the core
	copying  vtime.Duration // until a chunk is copied from staging to the user's buffer; other work continues meanwhile
	flag     vtime.Duration // until the host sees that the last worker is done

	nic    *smartNIC // nil: workers share nothing
	cores  []int     // core of each worker
	bitmap int       // bytes of the cache that the bitmap of the current operation has
}

// Cycles and instructions for a completion (§II-C and table I, AG-28).
const (
	dpaClock = 1.8e9

	dpaCyclesUC, dpaInstructionsUC = 598, 66
	dpaCyclesUD, dpaInstructionsUD = 1084, 113
)

// EngineDPA names the engine of SmartNICs.
const EngineDPA = "dpa"

func newEngine(r *rank.Rank, o *Options, kind rank.MulticastKind) (e engine, err error) {
	cycles := func(n float64) vtime.Duration { return vtime.Duration(n / dpaClock * float64(vtime.Second)) }
	switch {
	case o.Engine == EngineDPA && kind == rank.Writes:
		e.perChunk, e.issue = cycles(dpaCyclesUC), cycles(dpaInstructionsUC)
	case o.Engine == EngineDPA:
		e.perChunk, e.issue = cycles(dpaCyclesUD), cycles(dpaInstructionsUD)
	case o.Engine != "":
		return e, fmt.Errorf("no receive engine %q: use %s", o.Engine, EngineDPA)
	}
	if o.PerChunk > 0 {
		e.perChunk, e.issue = o.PerChunk, 0
	}
	e.copying, e.flag = o.CopyTime, o.FlagTime
	if o.Engine == EngineDPA {
		e.nic = smartNICOf(r)
		e.cores, err = e.nic.take(o.Workers)
	}
	return e, err
}

// begin makes room for the bitmap of an operation. It is the only state that grows with the buffer (AG-20).
func (e *engine) begin(chunks int) error {
	if e.nic == nil {
		return nil
	}
	e.nic.memory -= e.bitmap
	e.bitmap = 0
	n := (chunks + 7) / 8
	if err := e.nic.hold(n); err != nil {
		return err
	}
	e.bitmap = n
	return nil
}

// close releases the communicator's part of the accelerator.
func (e *engine) close() {
	if e.nic != nil {
		e.nic.release(e.cores, e.bitmap)
	}
}

// spend lets the time of a completion pass for a worker.
func (e *engine) spend(r *rank.Rank, worker int) {
	if e.perChunk == 0 {
		return
	}
	now := r.Now()
	until := now.Add(e.perChunk)
	if e.issue > 0 {
		busy := &e.nic.busy[e.cores[worker]]
		*busy = max(now, *busy).Add(e.issue)
		until = max(until, *busy)
	}
	r.Sleep(until.Sub(now))
}

// allowance returns how long the given number of workers take for the given number of chunks.
func (e *engine) allowance(chunks, workers int) vtime.Duration {
	each := e.perChunk / vtime.Duration(workers)
	if e.issue > 0 {
		each = max(each, vtime.Duration(float64(e.issue)/e.nic.share(e.cores)))
	}
	return min(each.Times(int64(chunks)), vtime.SpanMax) + e.copying + e.flag
}
