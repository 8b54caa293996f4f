// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

const us = vtime.Time(vtime.Microsecond)

func setOf(t *testing.T, name string) *DCQCN {
	t.Helper()
	s, err := DCQCNByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantRates compares with figures worked out by hand with exact fractions, to which
// the integers come within a millionth.
func (r *reactionPoint) wantRates(t *testing.T, at vtime.Time, rate, target, alpha float64) {
	t.Helper()
	r.catchUp(at)
	for _, c := range []struct {
		name      string
		got, want float64
	}{{"rate", float64(r.rate), rate}, {"target", float64(r.target), target}, {"alpha", float64(r.alpha) / alphaOne, alpha}} {
		if math.Abs(c.got-c.want) > 1e-6*c.want {
			t.Errorf("at %v: %s %.10g, want %.10g", at, c.name, c.got, c.want)
		}
	}
}

// TestReactionPointPaper: the paper's algorithm at 40 Gb/s. Two CNPs halve the rate
// twice, since alpha begins at 1; then four rounds of fast recovery, then additive
// increase; then a third CNP.
func TestReactionPointPaper(t *testing.T) {
	r := newReactionPoint(setOf(t, "dcqcn").forLine(40e9), 40e9)
	r.wantRates(t, 0, 40e9, 40e9, 0)
	r.notified(100 * us)
	r.wantRates(t, 100*us, 20e9, 40e9, 1)
	r.notified(150 * us)
	r.wantRates(t, 150*us, 10e9, 20e9, 1)
	r.wantRates(t, 204*us, 10e9, 20e9, 1)
	r.wantRates(t, 205*us, 15e9, 20e9, 0.99609375)
	r.wantRates(t, 260*us, 17.5e9, 20e9, 0.9922027587890625)
	r.wantRates(t, 315*us, 18.75e9, 20e9, 0.9883269667625427)
	r.wantRates(t, 370*us, 19.375e9, 20e9, 0.9844663145486265)
	r.wantRates(t, 425*us, 19.7075e9, 20.04e9, 0.980620743007421)
	r.wantRates(t, 480*us, 19.89375e9, 20.08e9, 0.9767901932300482)
	r.notified(500 * us)
	r.wantRates(t, 500*us, 10177740046.714865, 19.89375e9, 0.9768808565377434)
}

// TestReactionPointBytes: the byte counter's rounds count like the timer's, and hyper
// increase begins when both have done F.
func TestReactionPointBytes(t *testing.T) {
	r := newReactionPoint(setOf(t, "dcqcn").forLine(40e9), 40e9)
	r.notified(0) // 20 of 40
	for range 4 * 10_000_000 / 4000 {
		r.sent(0, 4000)
	}
	r.wantRates(t, 0, 38.75e9, 40e9, 1)
	r.notified(0)
	r.wantRates(t, 0, 19.375e9, 38.75e9, 1)
	for i := range 5 {
		for range 10_000_000 / 4000 {
			r.sent(vtime.Time(i)*us, 4000)
		}
	}
	// Four times half way to 38.75, then additive.
	rate := ((19.375+38.75*15)/16 + 38.79) / 2
	r.wantRates(t, 10*us, rate*1e9, 38.79e9, 1)
	for k := 1; k <= 6; k++ {
		// Bytes are at 5: the timer's first four rounds are additive, at its fifth both
		// have done F and the target rises by 200 Mb/s a round, since low stays 5.
		target := 38.79 + 0.04*float64(min(k, 4)) + 0.2*float64(max(0, k-4))
		rate = (rate + target) / 2
		r.wantRates(t, vtime.Time(55*k)*us, rate*1e9, target*1e9, math.Pow(255./256, float64(k)))
	}
}

// TestReactionPointTicks: the sets of adapters cut at most once a period, at its end,
// and decay alpha on a clock of its own.
func TestReactionPointTicks(t *testing.T) {
	r := newReactionPoint(setOf(t, "dcqcn-hpcc").forLine(100e9), 100e9)
	a := func(n int) float64 { return math.Pow(255./256, float64(n)) }
	r.notified(10 * us)
	r.wantRates(t, 13*us, 100e9, 100e9, a(3))
	r.notified(13 * us) // in the same period
	// At 14 us alpha rises, then the cut is by it.
	alpha := a(3)*255/256 + 1./256
	r.wantRates(t, 14*us, 100e9*(1-alpha/2), 100e9, alpha)
	first := 100e9 * (1 - alpha/2)
	r.notified(16 * us)
	alpha = alpha*255/256*255/256*255/256 + 1./256
	alpha = alpha * 255 / 256
	r.wantRates(t, 18*us, first*(1-alpha/2), 100e9, alpha) // no timer round since: the target stays
	second := first * (1 - alpha/2)
	rate := (second + 100e9) / 2
	r.wantRates(t, 318*us, rate, 100e9, alpha*a(300)) // fast recovery
	rate = (rate + 100e9) / 2
	r.wantRates(t, 618*us, rate, 100e9, alpha*a(600)) // additive: the target is the line's already
	r.notified(619 * us)
	r.catchUp(622 * us)
	if math.Abs(float64(r.target)-rate) > 100 {
		t.Errorf("after a timer round the target is %d, want the rate before the cut, %.0f", r.target, rate)
	}
	r.catchUp(922 * us)
	was := r.target
	r.catchUp(1222 * us)
	if r.target != was+20e6 {
		t.Errorf("additive round adds %d, want 5 Mb/s for each 25 Gb/s of the line", r.target-was)
	}
	r.catchUp(1522 * us)
	if r.target != was+220e6 {
		t.Errorf("hyper round adds %d, want 200 Mb/s", r.target-was-20e6)
	}
}

// model is the algorithm as published, an event at a time, in floating point.
type model struct {
	s                       *DCQCN
	rate, target, alpha     float64
	line                    float64
	begun, alphaCNP, cutCNP bool
	alphaAt, cutAt, rateAt  vtime.Time
	bytes                   uint64
	byteStage, timeStage    int
}

func (m *model) to(now vtime.Time) {
	for m.begun {
		at := min(m.alphaAt, m.cutAt, m.rateAt)
		if at > now {
			return
		}
		g := float64(m.s.Gain) / 1024
		switch at {
		case m.alphaAt:
			m.alpha *= 1 - g
			if m.alphaCNP {
				m.alpha += g
			}
			m.alphaCNP = false
			m.alphaAt = at.Add(m.s.AlphaTimer)
		case m.cutAt:
			if m.cutCNP {
				m.cut(at)
			}
			m.cutCNP = false
			m.cutAt = at.Add(m.s.CutPeriod)
		default:
			m.timeStage++
			m.raise()
			m.rateAt = at.Add(m.s.RateTimer)
		}
	}
}

func (m *model) cut(at vtime.Time) {
	if m.s.ClampTarget || m.timeStage > 0 {
		m.target = m.rate
	}
	m.rate = max(float64(m.s.RateMin), m.rate*(1-m.alpha/2))
	m.bytes, m.byteStage, m.timeStage = 0, 0, 0
	m.rateAt = at.Add(m.s.RateTimer)
}

func (m *model) raise() {
	f, low, high := int(m.s.Threshold), min(m.byteStage, m.timeStage), max(m.byteStage, m.timeStage)
	if m.s.ByteCounter == 0 {
		switch stage := m.timeStage - 1; {
		case stage == f:
			m.target += float64(m.s.RateAI)
		case stage > f:
			m.target += float64(m.s.RateHAI)
		}
	} else if low >= f {
		m.target += float64(m.s.RateHAI) * float64(low-f+1)
	} else if high >= f {
		m.target += float64(m.s.RateAI)
	}
	m.target = min(m.target, m.line)
	m.rate = (m.rate + m.target) / 2
}

func (m *model) notified(now vtime.Time) {
	m.to(now)
	g := float64(m.s.Gain) / 1024
	first := !m.begun
	if first {
		m.begun, m.alpha, m.cutAt, m.rateAt = true, float64(m.s.InitialAlpha)/1024, vtime.Never, vtime.Never
		m.alphaAt = now.Add(m.s.AlphaTimer)
	}
	if m.s.CutPeriod == 0 {
		m.cut(now)
		m.alpha = m.alpha*(1-g) + g
		m.alphaAt = now.Add(m.s.AlphaTimer)
		return
	}
	m.cutCNP = true
	if first {
		m.cutAt = now.Add(m.s.CutPeriod)
	} else {
		m.alphaCNP = true
	}
}

func (m *model) sent(now vtime.Time, n int) {
	m.to(now)
	if m.s.ByteCounter == 0 || !m.begun {
		return
	}
	for m.bytes += uint64(n); m.bytes >= m.s.ByteCounter; m.bytes -= m.s.ByteCounter {
		m.byteStage++
		m.raise()
	}
}

// TestReactionPointModel compares the integer, lazy machine with the model over random
// CNPs and packets of every set, and with itself looked at more often: that must
// change nothing at all.
func TestReactionPointModel(t *testing.T) {
	for seed := *fromSeed; seed < *fromSeed+min(*seedCount, 300); seed++ {
		rnd := rand.New(rand.NewPCG(seed, 21))
		name := []string{"dcqcn", "dcqcn-connectx", "dcqcn-hpcc"}[rnd.IntN(3)]
		line := []uint64{10e9, 25e9, 40e9, 100e9, 400e9}[rnd.IntN(5)]
		set := setOf(t, name).forLine(line)
		a, b := newReactionPoint(set, line), newReactionPoint(set, line)
		m := model{s: set, rate: float64(line), target: float64(line), line: float64(line)}
		now := vtime.Time(0)
		for step := range 400 {
			gap := vtime.Time(rnd.ExpFloat64() * float64([]vtime.Duration{vtime.Microsecond, 60 * vtime.Microsecond, vtime.Millisecond}[rnd.IntN(3)]))
			for range 5 {
				b.notBefore(now + vtime.Time(rnd.Int64N(int64(gap)+1))/5)
				now += gap / 5
			}
			if rnd.IntN(4) == 0 {
				a.notified(now)
				b.notified(now)
				m.notified(now)
			} else {
				n := 64 + rnd.IntN(4200)*rnd.IntN(200)
				a.sent(now, n)
				b.sent(now, n)
				m.sent(now, n)
			}
			if x, y := a, b; x.rate != y.rate || x.target != y.target || x.alpha != y.alpha || x.notBefore(now) != y.notBefore(now) {
				t.Fatalf("seed %d step %d: looking changed something\n%+v\n%+v", seed, step, a, b)
			}
			if math.Abs(float64(a.rate)-m.rate) > 1e-6*m.rate || math.Abs(float64(a.target)-m.target) > 1e-6*m.target || math.Abs(float64(a.alpha)/alphaOne-m.alpha) > 1e-6 {
				t.Fatalf("%s seed %d step %d at %v: rate %d target %d alpha %.9f, model %.0f %.0f %.9f", name, seed, step, now, a.rate, a.target, float64(a.alpha)/alphaOne, m.rate, m.target, m.alpha)
			}
			if a.rate < set.RateMin || a.rate > line || a.target > line {
				t.Fatalf("seed %d: rate %d or target %d out of bounds", seed, a.rate, a.target)
			}
		}
	}
}

// TestPacing: between changes of the rate packets leave at exactly the rate, and a
// round of recovery ends a long wait.
func TestPacing(t *testing.T) {
	r := newReactionPoint(setOf(t, "dcqcn").forLine(100e9), 100e9)
	r.notified(0) // 50 Gb/s
	at, n := vtime.Time(0), 0
	for at < 55*us {
		r.sent(at, 1000+n%7)
		n++
		at = r.notBefore(at)
	}
	if want := 55e-6 * 50e9 / 8 / 1003; math.Abs(float64(n)-want) > 1.5 {
		t.Errorf("%d packets in 55us at 50 Gb/s, want %.1f", n, want)
	}
	slow := newReactionPoint(setOf(t, "dcqcn-connectx").forLine(100e9), 100e9)
	for i := range 4000 {
		slow.notified(vtime.Time(i) * 4 * us)
	}
	now := 4000 * 4 * us
	slow.catchUp(now)
	if slow.rate != 1e6 {
		t.Fatalf("rate %d after CNPs without end, want the least, 1 Mb/s", slow.rate)
	}
	slow.sent(now, 4000) // 32 ms at 1 Mb/s
	rounds := 0
	for now < slow.notBefore(now) {
		now = slow.notBefore(now)
		rounds++
	}
	if rounds < 2 || now > 4000*4*us+vtime.Time(20*vtime.Millisecond) {
		t.Errorf("waited to %v in %d steps: recovery should have ended it earlier", now, rounds)
	}
}

// TestPublishedSets: the parameter sets have the values of their sources.
func TestPublishedSets(t *testing.T) {
	const us = vtime.Microsecond
	for name, want := range map[string]*DCQCN{ // independent of each other
		"": nil, "none": nil,
		"dcqcn": {Gain: 4, InitialAlpha: 1024, AlphaTimer: 55 * us, CNPInterval: 50 * us, RateTimer: 55 * us, ByteCounter: 10e6, Threshold: 5,
			RateAI: 40e6, RateHAI: 200e6, RateMin: 100e6, ClampTarget: true},
		"dcqcn-connectx": {Gain: 5, InitialAlpha: 1023, AlphaTimer: us, CNPInterval: 4 * us, RateTimer: 300 * us, CutPeriod: 4 * us, ByteCounter: 32767,
			Threshold: 1, RateAI: 5e6, RateHAI: 50e6, RateMin: 1e6},
		"dcqcn-hpcc": {Gain: 4, InitialAlpha: 1024, AlphaTimer: us, RateTimer: 300 * us, CutPeriod: 4 * us, Threshold: 1,
			RateAI: 5e6, RateHAI: 50e6, RateMin: 1e9, PerLine: true},
	} {
		got, err := DCQCNByName(name)
		if err != nil || (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, %v; want %+v", name, got, err, want)
		}
	}
	if _, err := DCQCNByName("dcqcn-cx"); err == nil {
		t.Error("a set that is none")
	}
}

// TestAlphaEnds: without notifications alpha comes down to nothing, and stays there.
func TestAlphaEnds(t *testing.T) {
	set := setOf(t, "dcqcn")
	r := reactionPoint{set: set, alpha: 1000, alphaAt: us}
	for k := 0; r.alpha > 0; k++ {
		was, at := r.alpha, r.alphaAt
		if r.alphaTick(at); r.alpha >= was || r.alphaAt != at.Add(set.AlphaTimer) {
			t.Fatalf("after tick %d alpha is %d, before it was %d; the next tick is at %v", k, r.alpha, was, r.alphaAt)
		}
	}
}
