// SPDX-License-Identifier: Apache-2.0

package simlab

import (
	"math/rand/v2"
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

// PauseSteps returns the frames that keep a class paused from one instant to another: XOFF, repeated
// before it runs out, and XON at the end. full is the duration of the longest pause on the link.
func PauseSteps(from, until vtime.Time, full vtime.Duration) (steps []PauseStep) {
	for at := from; at < until; at = at.Add(full / 2) {
		steps = append(steps, PauseStep{at, faults.PauseQuantaMax})
	}
	return append(steps, PauseStep{until, 0})
}

// DrawPauses draws when a host pauses its switch: up to twenty times, 30 us each at the most.
func DrawPauses(r *rand.Rand) (steps []PauseStep) {
	for at := vtime.Time(0); r.IntN(4) > 0 && len(steps) < 20; {
		at = at.Add(vtime.Duration(r.IntN(40_000)) * vtime.Nanosecond)
		until := at.Add(vtime.Duration(1+r.IntN(30_000)) * vtime.Nanosecond)
		steps = append(steps, PauseSteps(at, until, 5*vtime.Microsecond)...)
		at = until
	}
	return steps
}

// pauser is a lab in which a host can be made to pause its switch, as a sim.Net is.
type pauser interface {
	At(at vtime.Time, f func(now vtime.Time))
	Pause(node int, classes uint8, quanta uint16)
}

// SendPauses has a host send the frames, which pause class 3.
func SendPauses(n pauser, host int, steps []PauseStep) {
	for _, s := range steps {
		n.At(s.At, func(vtime.Time) { n.Pause(host, 1<<3, s.Quanta) })
	}
}

// LinkDown is a fault that cuts a link from an instant on for ever.
func LinkDown(link int, from vtime.Time) faults.Spec {
	return faults.Spec{ID: "down", Kind: faults.KindLinkDown, Links: []int{link}, Window: faults.Window{From: from, Probability: 1}}
}

// Observer is a link that calls a function for every frame.
type Observer func(now vtime.Time, f *wire.Frame)

// Arrive implements faults.Link.
func (o Observer) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	o(now, f)
	return faults.Verdict{}
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
	if f.Kind() != wire.KindRoCE || !f.OpCode().Info().RETH || !(wire.GroupRange{}).Has(f.SrcIP()) || !f.CheckICRC() {
		return faults.Verdict{}
	}
	h := f.RETH()
	if was, ok := o.seen[f.PSN()]; ok && was != h {
		o.t.Errorf("%s at %v: PSN %v has %+v, and had %+v", o.link, now, f.PSN(), h, was)
	}
	o.seen[f.PSN()] = h
	return faults.Verdict{}
}
