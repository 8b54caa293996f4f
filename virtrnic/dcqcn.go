// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"fmt"
	"math/bits"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// DCQCN is a parameter set of the congestion control of Zhu et al., "Congestion Control
// for Large-Scale RDMA Deployments" (SIGCOMM 2015), for both ends of a flow. Rates are
// bits per second on the wire, all overhead included.
type DCQCN struct {
	Gain         uint32         // g, in 1/1024
	InitialAlpha uint32         // in 1/1024
	AlphaTimer   vtime.Duration // K: alpha decays after so long without a CNP
	CNPInterval  vtime.Duration // N: least time between two CNPs of a flow
	RateTimer    vtime.Duration // T: time between rate increases
	CutPeriod    vtime.Duration // the rate is cut at most once in a period, at its end; 0: on every CNP
	ByteCounter  uint64         // B: bytes between rate increases; 0: the timer alone counts
	Threshold    uint32         // F: rounds of fast recovery
	RateAI       uint64         // added to the target in additive increase
	RateHAI      uint64         // added to the target in hyper increase
	RateMin      uint64
	PerLine      bool // RateAI and RateHAI are for a line of 25 Gb/s and grow with it
	ClampTarget  bool // every cut lowers the target; if false, only a cut that follows a timer round does
}

const (
	mbps      = 1_000_000
	lineUnit  = 25_000 * mbps // the rate to which PerLine rates refer
	gainShift = 10            // Gain and InitialAlpha are in 1/1024
	alphaOne  = 1 << 32
)

// DCQCNByName returns the parameter set of the name, nil for none:
//
//	dcqcn           the paper's; hyper increase and least rate, which it does not give,
//	                as in its authors' simulator (ns3-rdma; docs/congestion.md says what differs)
//	dcqcn-connectx  the defaults of ConnectX adapters (NVIDIA, "DCQCN CC parameters")
//	dcqcn-hpcc      what the HPCC paper compares with (its simulator's set "dcqcn")
func DCQCNByName(name string) (*DCQCN, error) {
	const us = vtime.Microsecond
	switch name {
	case "", "none":
		return nil, nil
	case "dcqcn":
		return &DCQCN{
			Gain: 4, InitialAlpha: 1024, AlphaTimer: 55 * us, CNPInterval: 50 * us, RateTimer: 55 * us,
			ByteCounter: 10_000_000, Threshold: 5, RateAI: 40 * mbps, RateHAI: 200 * mbps, RateMin: 100 * mbps, ClampTarget: true,
		}, nil
	case "dcqcn-connectx":
		return &DCQCN{
			Gain: 5, InitialAlpha: 1023, AlphaTimer: us, CNPInterval: 4 * us, RateTimer: 300 * us, CutPeriod: 4 * us,
			ByteCounter: 32767, Threshold: 1, RateAI: 5 * mbps, RateHAI: 50 * mbps, RateMin: mbps,
		}, nil
	case "dcqcn-hpcc":
		return &DCQCN{
			Gain: 4, InitialAlpha: 1024, AlphaTimer: us, CNPInterval: 0, RateTimer: 300 * us, CutPeriod: 4 * us,
			Threshold: 1, RateAI: 5 * mbps, RateHAI: 50 * mbps, RateMin: 1000 * mbps, PerLine: true,
		}, nil
	}
	return nil, fmt.Errorf("no congestion control %q: use none, dcqcn, dcqcn-connectx or dcqcn-hpcc", name)
}

// forLine returns the set as it is on a line of the given rate.
func (p DCQCN) forLine(line uint64) *DCQCN {
	if p.PerLine {
		p.RateAI, p.RateHAI = scale(p.RateAI, line), scale(p.RateHAI, line)
	}
	p.RateMin = min(p.RateMin, line)
	return &p
}

func scale(rate, line uint64) uint64 {
	hi, lo := bits.Mul64(rate, line)
	q, _ := bits.Div64(hi, lo, lineUnit)
	return q
}

// reactionPoint is the sender's half of DCQCN for one queue pair.
//
// All of it is integer arithmetic, so that a run is the same on every platform: rates in
// bits per second, alpha in 1/2^32, g in 1/1024 (which all published sets are multiples
// of). A cut rounds in favour of the flow, alpha rounds down, a mean of rates rounds up;
// without that the rate would stay one below its target for ever.
//
// No timer runs. The effect of the timers is computed when the state is next used: on a CNP,
// when a packet is sent, and to find out when one may be. To use it more often changes nothing.
type reactionPoint struct {
	set     *DCQCN
	line    uint64
	limited bool // a CNP has come and the rate has been below the line's since
	begun   bool // a CNP has come
	rate    uint64
	target  uint64
	alpha   uint64
	bytes   uint64 // sent since the last byte round

	byteStage, timeStage uint32
	alphaCNP, cutCNP     bool // a CNP has come in this period
	alphaAt              vtime.Time
	cutAt                vtime.Time
	rateAt               vtime.Time

	// owed is the part of the sent bytes that the rate has not yet covered, in bits times picoseconds
	// per second.
	owed  uint64
	since vtime.Time
}

const psPerSecond = uint64(vtime.Second)

func newReactionPoint(set *DCQCN, line uint64) reactionPoint {
	return reactionPoint{
		set: set, line: line, rate: line, target: line,
		alphaAt: vtime.Never, cutAt: vtime.Never, rateAt: vtime.Never,
	}
}

// notified handles a CNP.
func (r *reactionPoint) notified(now vtime.Time) {
	r.catchUp(now)
	first := !r.begun
	if first {
		r.begun = true
		r.alpha = uint64(r.set.InitialAlpha) << (32 - gainShift)
		r.alphaAt = now.Add(r.set.AlphaTimer)
	}
	if r.set.CutPeriod == 0 {
		r.cut(now)
		r.raiseAlpha() // after the cut, which uses the old alpha as in the paper
		r.alphaAt = now.Add(r.set.AlphaTimer)
		return
	}
	r.cutCNP = true
	if first {
		r.cutAt = now.Add(r.set.CutPeriod)
		return // alpha already includes this CNP
	}
	r.alphaCNP = true
}

func (r *reactionPoint) decayAlpha() {
	r.alpha = r.alpha * (1<<gainShift - uint64(r.set.Gain)) >> gainShift
}

func (r *reactionPoint) raiseAlpha() {
	r.decayAlpha()
	r.alpha += uint64(r.set.Gain) << (32 - gainShift)
}

// cut lowers the rate by half of alpha and starts recovery over.
func (r *reactionPoint) cut(now vtime.Time) {
	r.pay(now)
	if r.set.ClampTarget || r.timeStage > 0 {
		r.target = r.rate
	}
	hi, lo := bits.Mul64(r.rate, r.alpha)
	r.rate = max(r.set.RateMin, r.rate-(hi<<31|lo>>33))
	r.limited = r.rate < r.line
	r.bytes, r.byteStage, r.timeStage = 0, 0, 0
	r.rateAt = now.Add(r.set.RateTimer)
}

// increase runs one round of recovery, after the stage counter has been increased.
func (r *reactionPoint) increase(at vtime.Time) {
	if !r.limited {
		return
	}
	r.pay(at)
	f := r.set.Threshold
	low, high := min(r.byteStage, r.timeStage), max(r.byteStage, r.timeStage)
	switch {
	case r.set.ByteCounter == 0: // timer rounds alone: F of fast recovery, one additive, then hyper
		if r.timeStage > f+1 {
			r.target += r.set.RateHAI
		} else if r.timeStage == f+1 {
			r.target += r.set.RateAI
		}
	case high < f: // fast recovery
	case low >= f: // both counters agree: hyper increase, faster each round
		r.target += uint64(low-f+1) * r.set.RateHAI
	default:
		r.target += r.set.RateAI
	}
	r.target = min(r.target, r.line)
	r.rate = (r.rate + r.target + 1) / 2
	r.limited = r.rate < r.line
}

// catchUp runs the timers that were due up to and including now. At one instant the timer of alpha
// comes first, then cuts, then increases.
func (r *reactionPoint) catchUp(now vtime.Time) {
	for {
		at := min(r.alphaAt, r.cutAt, r.rateAt)
		if at > now || at == vtime.Never {
			return
		}
		switch at {
		case r.alphaAt:
			r.alphaTick(now)
		case r.cutAt:
			if r.cutCNP {
				r.cutCNP = false
				r.cut(at)
			}
			r.cutAt = at.Add(r.set.CutPeriod)
			if !r.cutCNP {
				r.cutAt, _ = skip(r.cutAt, r.set.CutPeriod, now)
			}
		default:
			r.rateTick(at, now)
		}
	}
}

func (r *reactionPoint) alphaTick(now vtime.Time) {
	switch {
	case r.alphaCNP:
		r.raiseAlpha()
		r.alphaCNP = false
	case r.alpha == 0:
		r.alphaAt, _ = skip(r.alphaAt, r.set.AlphaTimer, now)
		return
	default:
		r.decayAlpha()
	}
	r.alphaAt = r.alphaAt.Add(r.set.AlphaTimer)
}

func (r *reactionPoint) rateTick(at, now vtime.Time) {
	if !r.limited { // at line rate only the stage counter goes up
		var n int64
		r.rateAt, n = skip(at, r.set.RateTimer, now)
		r.timeStage = uint32(min(int64(r.timeStage)+n, stageMax))
		return
	}
	r.timeStage = min(r.timeStage+1, stageMax)
	r.increase(at)
	r.rateAt = at.Add(r.set.RateTimer)
}

// stageMax bounds the stage counters, which only a cut resets, so that they never overflow.
const stageMax = 1 << 20

// skip returns the first instant of a timer after now, and the number of instants before it.
func skip(at vtime.Time, period vtime.Duration, now vtime.Time) (next vtime.Time, n int64) {
	if at > now {
		return at, 0
	}
	n = int64(now.Sub(at))/int64(period) + 1
	return at.Add(vtime.Duration(n) * period), n
}

// sent records a packet of size bytes on the wire that starts now.
func (r *reactionPoint) sent(now vtime.Time, size int) {
	if !r.begun {
		return
	}
	r.catchUp(now)
	if b := r.set.ByteCounter; b > 0 {
		for r.bytes += uint64(size); r.bytes >= b; r.bytes -= b {
			r.byteStage = min(r.byteStage+1, stageMax)
			r.increase(now)
		}
	}
	if !r.limited {
		r.owed = 0
		return
	}
	r.pay(now)
	r.owed += uint64(size) * 8 * psPerSecond
}

// pay reduces owed by the bits that the rate has covered since the last call. It is called before every
// change of the rate.
func (r *reactionPoint) pay(now vtime.Time) {
	if hi, paid := bits.Mul64(r.rate, uint64(now.Sub(r.since))); hi == 0 && paid < r.owed {
		r.owed -= paid
	} else {
		r.owed = 0
	}
	r.since = now
}

// notBefore returns when the next packet may start, as far as is known now: when the present rate has
// covered the owed bits, but no later than the next round of recovery, which may raise the rate.
func (r *reactionPoint) notBefore(now vtime.Time) vtime.Time {
	if !r.limited {
		return now
	}
	r.catchUp(now)
	if !r.limited {
		return now
	}
	at := r.since.Add(vtime.Duration((r.owed + r.rate - 1) / r.rate))
	return min(at, r.rateAt)
}
