package simlab

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// PauseStep is one PFC frame of a pause.
type PauseStep struct {
	At     vtime.Time
	Quanta uint16
}

// PauseSteps returns the frames that keep a class paused from one instant to another: XOFF,
// repeated before it runs out, and XON at the end. full is how long the longest pause lasts
// on the link.
func PauseSteps(from, until vtime.Time, full vtime.Duration) (steps []PauseStep) {
	for at := from; at < until; at = at.Add(full / 2) {
		steps = append(steps, PauseStep{at, faults.PauseQuantaMax})
	}
	return append(steps, PauseStep{until, 0})
}

// OneRETH watches the link to a member: every WRITE of a PSN, however often it comes, must
// carry one address and key, or a stale region has been used.
type OneRETH struct {
	t    testing.TB
	link string
	seen map[wire.PSN]wire.RETH
}

// NewOneRETH returns a watcher of a link, which is named in the failures of the test.
func NewOneRETH(t testing.TB, link string) *OneRETH {
	return &OneRETH{t, link, map[wire.PSN]wire.RETH{}}
}

// Arrive implements faults.Link.
func (o *OneRETH) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	if f.Kind() != wire.KindRoCE || !f.OpCode().Info().RETH || !wire.IsGroup(f.SrcIP()) || !f.CheckICRC() {
		return faults.Verdict{}
	}
	h := f.RETH()
	if was, ok := o.seen[f.PSN()]; ok && was != h {
		o.t.Errorf("%s at %v: PSN %v has %+v, and had %+v", o.link, now, f.PSN(), h, was)
	}
	o.seen[f.PSN()] = h
	return faults.Verdict{}
}
