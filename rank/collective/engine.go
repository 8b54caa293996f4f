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
// with i instructions of one cycle each (F-22). With all fields zero receiving takes no time.
type engine struct {
	perChunk vtime.Duration // time of a worker
	issue    vtime.Duration // part of it that occupies the core
	copying  vtime.Duration // until a chunk is copied from staging to the user's buffer; other work goes on meanwhile
	cores    []vtime.Time   // when each core is free again
}

// Data path accelerator of BlueField-3 (§II-C and table I, AG-28): cores of 16 threads at 1.8
// GHz, with cycles and instructions per completion.
const (
	dpaClock   = 1.8e9
	dpaThreads = 16

	dpaCyclesUC, dpaInstructionsUC = 598, 66
	dpaCyclesUD, dpaInstructionsUD = 1084, 113
)

// EngineDPA names the engine of SmartNICs.
const EngineDPA = "dpa"

func newEngine(o Options, kind rank.MulticastKind) (e engine, err error) {
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
	e.copying = o.CopyTime
	e.cores = make([]vtime.Time, (o.Workers+dpaThreads-1)/dpaThreads)
	return e, nil
}

// spend lets the time of a completion pass for a worker.
func (e *engine) spend(r *rank.Rank, worker int) {
	if e.perChunk == 0 {
		return
	}
	now := r.Now()
	core := &e.cores[worker/dpaThreads]
	from := max(now, *core)
	*core = from.Add(e.issue)
	r.Sleep(max(now.Add(e.perChunk), *core).Sub(now))
}

// allowance returns how long the given number of workers take for the given number of chunks.
func (e *engine) allowance(chunks, workers int) vtime.Duration {
	each := max(e.perChunk/vtime.Duration(workers), e.issue/vtime.Duration(len(e.cores)))
	return min(each.Times(int64(chunks)), vtime.SpanMax) + e.copying
}
