// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"fmt"
	"math"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/external"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// The limits by which a row is judged, and the margins that dilation: auto leaves.
const (
	// lagShare is the largest part of a row's JCT that the lag of its links may come to.
	lagShare = 0.05
	// lagMargin is the factor by which a row's lag may exceed what calibration measured. A
	// row with more is measured again.
	lagMargin = 2
	// cpuShare is the part of the server the lab may keep busy.
	cpuShare = 0.5
	// carryShare is the largest part of the server that the lab may take where dilation must be 1.
	carryShare = 0.8
)

// fidelity computes how slow the clock must be for each row, and judges afterwards whether it was
// slow enough.
type fidelity struct {
	d     *orchestrator.Deployed
	reh   *runner.Rehearsal
	links []int     // by row: links that its last byte depends on, one after the other (see linksOf)
	rate  []float64 // by row: packet-hops per second of lab time

	fixed float64            // dilation that was asked for; 0: auto
	lagNs map[string]float64 // a link's, of wall time, by workload and scheme (lagKey)
	hopS  float64            // CPU seconds of one hop

	open int        // row that runs, or noRow
	lag  []live.Lag // by row
	dil  []float64  // by row
	past []int      // by row: how often it was measured before
	far  []float64  // by row: how far servers were apart, in ns of wall time (Deployed.apart)
	slow float64
}

func newFidelity(d *orchestrator.Deployed, reh *runner.Rehearsal) *fidelity {
	n := len(reh.Rows)
	f := &fidelity{
		d: d, reh: reh, open: noRow, slow: 1, lagNs: map[string]float64{},
		rate: make([]float64, n), lag: make([]live.Lag, n), dil: make([]float64, n), past: make([]int, n), far: make([]float64, n),
	}
	hops := make([]float64, n)
	for _, s := range reh.Steps {
		hops[s.Row] += float64(s.Hops)
	}
	for i, row := range reh.Rows {
		f.lag[i] = live.NewLag()
		f.links = append(f.links, criticalLinks(d, row))
		took := float64(row.Iterations) * row.Source.Avg
		if t, ok := row.Details.(apps.Timed); ok {
			took = t.TookUS()
		}
		if took > 0 {
			f.rate[i] = hops[i] / took * 1e6
		}
	}
	return f
}

// criticalLinks returns the links that a row's time depends on.
func criticalLinks(d *orchestrator.Deployed, row apps.Row) int {
	for i := range d.Lab.Workloads {
		if w := &d.Lab.Workloads[i]; w.Label() == row.Workload {
			return w.Chosen().Kind.Links(d.Graph, d.Lab.NICs.MTU, &row)
		}
	}
	return 0
}

// roundTripLinks returns the links whose lag a row waits for because its senders may have only
// as much under way as one round trip takes, or less (BDP flow control is that): the lag of
// each link, there and back, makes every round trip longer. 0: they may have twice that.
func roundTripLinks(d *orchestrator.Deployed, row apps.Row) int {
	s := labspec.Fabric(d.Lab, d.Graph)
	most := s.UnderWay(d.Lab.NICs.MTU)
	if most == 0 || most >= 2*s.BDP() || row.SizeBytes <= most {
		return 0
	}
	return 2 * s.Far() * int(row.JCT.P50/s.RTT().Microseconds())
}

func (f *fidelity) fix(dilation float64) { f.fixed = dilation }

func lagKey(workload, scheme string) string { return workload + "." + scheme }

// saw records the lag of a link, in nanoseconds of wall time, in a trial of a scheme. Of several
// trials the smallest counts.
func (f *fidelity) saw(workload, scheme string, lagNs int64) {
	k := lagKey(workload, scheme)
	if old, ok := f.lagNs[k]; !ok || float64(lagNs) < old {
		f.lagNs[k] = float64(lagNs)
	}
}

// expected returns the lag to be expected of a row: its scheme's, or if that was not tried
// (HPL's) the largest.
func (f *fidelity) expected(row apps.Row) (lagNs float64) {
	if v, ok := f.lagNs[lagKey(row.Workload, row.Scheme)]; ok {
		return v
	}
	for _, v := range f.lagNs { // the order does not matter
		lagNs = max(lagNs, v)
	}
	return lagNs
}

// seen returns the lags of all trials in microseconds of wall time.
func (f *fidelity) seen() map[string]float64 {
	all := map[string]float64{}
	for k, v := range f.lagNs {
		all[k] = v / 1000
	}
	return all
}

// calibrated records what the calibration measured: seconds of CPU time and frames sent.
func (f *fidelity) calibrated(busy float64, frames uint64, slower float64) {
	f.hopS = busy / float64(max(frames, 1))
	if slower > 0 {
		f.slow = slower
	}
}

// dilation returns the dilation that a row needs, at which the lag of its links is a small part of
// its time and the server is half idle.
func (f *fidelity) dilation(row int) float64 {
	if f.fixed > 0 {
		f.dil[row] = f.fixed
		return f.fixed
	}
	jctNs := f.reh.Rows[row].JCT.Min * 1000
	lag := 0.0
	if jctNs > 0 {
		lag = float64(f.linksOf(row, f.reh.Rows[row])) * f.expected(f.reh.Rows[row]) * lagMargin / (lagShare * jctNs)
	}
	load := f.rate[row] * f.hopS / (float64(f.d.Access.Cores()) * cpuShare)
	f.dil[row] = orchestrator.Round2(max(1, lag, load) * f.slow)
	return f.dil[row]
}

// need returns the part of the server that the busiest row takes at dilation 1 if a hop costs
// hopS seconds of CPU time.
func (f *fidelity) need(hopS float64) (share float64) {
	for _, rate := range f.rate {
		share = max(share, rate*hopS/float64(f.d.Access.Cores()))
	}
	return share
}

// took notes the lag that the open row had.
func (f *fidelity) took(lag live.Lag) {
	f.lag[f.open].Add(lag)
	f.far[f.open] = max(f.far[f.open], float64(f.d.Access.ClockUncertainty()))
}

// lagUS returns how late a link of a row was, in microseconds of lab time. Any link counts as one between servers.
func (f *fidelity) lagUS(row int) float64 {
	return (float64(f.lag[row].P99()) + f.far[row]) / 1000 / f.dil[row]
}

// forget clears the account of a row that is measured again, more slowly.
func (f *fidelity) forget(row int) {
	f.lag[row], f.far[row] = live.NewLag(), 0
	f.dil[row] = orchestrator.Round2(f.dil[row] * repeatSlower)
	f.past[row]++
}

// share returns which part of a row's time the lag of its links can make up, and the lag
// of one in microseconds of lab time.
func (f *fidelity) share(i int, row apps.Row) (share, lag float64) {
	lag = f.lagUS(i)
	return float64(f.linksOf(i, row)) * lag / max(row.JCT.P50, 1e-6), lag
}

// linksOf returns the links that a row depends on, given the time that it took. Where frames
// are lost that differs from the rehearsal's, and so do its round trips.
func (f *fidelity) linksOf(i int, row apps.Row) int { return max(f.links[i], roundTripLinks(f.d, row)) }

// judge returns whether the clock was slow enough for every row. lossFree tells that no fault was
// applied. Rows whose frames were too late are marked.
func (f *fidelity) judge(rows []apps.Row, now, before []counters.Node, lossFree bool) runner.Fidelity {
	v := runner.Fidelity{Verdict: "ok", Rows: []runner.RowFidelity{}}
	blame := func(format string, args ...any) {
		v.Verdict = "violated"
		v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
		v.Reason = v.Reasons[0]
	}
	if drops := counters.KernelDrops(now) - counters.KernelDrops(before); drops > 0 {
		blame("the kernel dropped %d frames of the lab: run with --slower 2 or more", drops)
	}
	if n := since(now, before, "timeouts"); n > 0 && lossFree {
		blame("%d retransmission timers fired although nothing was lost: run with --slower 2 or more", n)
	}
	if slices.ContainsFunc(rows, func(r apps.Row) bool { return len(r.External) > 0 }) {
		f.judgeDevices(now, before, lossFree, blame)
	}
	for i, row := range rows {
		if i >= len(f.links) {
			break
		}
		if f.dil[i] == 0 {
			continue // a part of the row before it: what a program measured of itself
		}
		if _, wall := row.Details.(apps.Unclocked); wall {
			v.Dilation = max(v.Dilation, f.dil[i])
			v.Rows = append(v.Rows, runner.RowFidelity{
				Workload: row.Workload, Scheme: row.Scheme, Dilation: f.dil[i], LagUS: f.lagUS(i), OK: true, External: true,
			})
			continue
		}
		share, lag := f.share(i, row)
		ok := share <= lagShare
		out := len(row.External) > 0
		rows[i].Late = !ok && !out
		if !ok && !out {
			blame("%s %s at %v: %d links x %.3g us lag is %.0f %% of its %.4g us, more than %.0f %%: run with --dilation %.0f or more", row.Workload, row.Scheme,
				lab.Size(row.SizeBytes), f.linksOf(i, row), lag, 100*share, row.JCT.P50, 100*lagShare, enough(f.dil[i], share))
		}
		v.Dilation, v.LagUS = max(v.Dilation, f.dil[i]), max(v.LagUS, lag)
		v.Rows = append(v.Rows, runner.RowFidelity{
			Workload: row.Workload, Scheme: row.Scheme, SizeBytes: row.SizeBytes, Dilation: f.dil[i],
			Links: f.linksOf(i, row), LagUS: lag, Share: share, OK: ok, External: out, Repeats: f.past[i],
		})
	}
	return v
}

// enough returns a dilation at which the lag of a row's links is small enough, with two digits that count: the share of the lag
// falls as the dilation rises.
func enough(dilation, share float64) float64 {
	need := dilation * share / lagShare
	unit := math.Pow(10, max(0, math.Floor(math.Log10(need))-1))
	return math.Ceil(need/unit) * unit
}

// since returns by how much a count over all nodes has grown.
func since(now, before []counters.Node, name string) uint64 {
	return counters.Total(now, name) - counters.Total(before, name)
}

// judgeDevices judges runs with external hosts. Nothing is claimed of their times, but packets
// that were sent twice, or found no room, are not results of the lab.
func (f *fidelity) judgeDevices(now, before []counters.Node, lossFree bool, blame func(string, ...any)) {
	// Where a switch has lost frames of its own accord, repeats are what the lab is about.
	if lost := counters.Dropped(now, lostBySwitches) - counters.Dropped(before, lostBySwitches); lossFree && lost == 0 {
		if n := since(now, before, "retransmitted"); n > 0 {
			blame("%d packets were sent again although the lab lost nothing: an external host was late, or lost them", n)
		}
		if n := since(now, before, "repeated_by_device"); n > 0 {
			blame("external hosts sent %d packets again although the lab lost nothing: is their timeout too short?", n)
		}
	}
	overrun := []string{external.DropOverrun.String()}
	if n := counters.Dropped(now, overrun) - counters.Dropped(before, overrun); n > 0 {
		blame("%d packets of external hosts found external.window full: they send faster than links.rate, slow them down or use a larger window", n)
	}
}

// lostBySwitches are the reasons for which switches drop frames that were in order.
var lostBySwitches = []string{
	virtswitch.DropBufferFull.String(), virtswitch.DropHeadroom.String(), virtswitch.DropWatchdog.String(),
	virtswitch.DropProcessorFull.String(), virtswitch.DropRestart.String(),
}
