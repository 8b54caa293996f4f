package orchestrator

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/counters"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/live"
	"github.com/mcastlab/mcastlab/runner"
)

// What a row is judged by, and what auto leaves room for.
const (
	// lagShare is the largest part of a row's JCT that the lag of its links may come to.
	lagShare = 0.05
	// lagMargin is by how much more lag than calibration saw a row is prepared for.
	lagMargin = 3.5
	// cpuShare is the part of the machine the lab may keep busy.
	cpuShare = 0.5
	// carryShare is what it may take at the most where dilation 1 is a must.
	carryShare = 0.8
)

// fidelity says how slow the clock must be for each row, and afterwards whether it was.
type fidelity struct {
	d     *Deployed
	reh   *runner.Rehearsal
	links []int     // by row: links that its last byte depends on, one after the other
	rate  []float64 // by row: packet-hops per second of lab time

	fixed float64 // dilation, if not to be chosen
	lagNs float64 // a link's, of wall time
	hopS  float64 // CPU seconds of one hop

	open int        // row that runs, or -1
	lag  []live.Lag // by row
	dil  []float64  // by row
	slow float64
}

func newFidelity(d *Deployed, reh *runner.Rehearsal) *fidelity {
	n := len(reh.Rows)
	f := &fidelity{d: d, reh: reh, open: -1, lag: make([]live.Lag, n), dil: make([]float64, n), rate: make([]float64, n), slow: 1}
	hops := make([]float64, n)
	for _, s := range reh.Steps {
		hops[s.Row] += float64(s.Hops)
	}
	for i, row := range reh.Rows {
		f.lag[i] = live.NewLag()
		f.links = append(f.links, d.criticalLinks(row))
		f.rate[i] = hops[i] / (float64(row.Iterations) * row.Source.Avg) * 1e6
	}
	return f
}

// criticalLinks returns the links that a row's time depends on.
func (d *Deployed) criticalLinks(row apps.Row) int {
	for _, w := range d.Lab.Workloads {
		if a := w.Allgather; a != nil {
			if links := d.allgatherLinks(a, row); links > 0 {
				return links
			}
			continue
		}
		if w.Label() != row.Workload {
			continue
		}
		if w.HPL != nil {
			return d.criticalHPL(w.HPL, row)
		}
		b := w.Bcast
		for _, s := range b.Schemes {
			if s.Label != row.Scheme {
				continue
			}
			hosts := b.Ranks.Resolve(d.Graph)
			root := 0
			for i, h := range hosts {
				if d.Graph.Nodes[h].Name == b.Root {
					root = i
				}
			}
			at := func(i int) int { return hosts[(root+i)%len(hosts)] }
			hops := func(a, b int) int { return d.Graph.Hops(at(a), at(b)) }
			return collective.CriticalLinks(s.Name, s.Options(len(hosts)), len(hosts), row.SizeBytes, d.Lab.NICs.MTU, hops)
		}
	}
	return 0
}

// allgatherLinks is criticalLinks for an Allgather; 0: the row is of another workload.
func (d *Deployed) allgatherLinks(a *lab.Allgather, row apps.Row) int {
	for _, s := range a.Schemes {
		if a.Label == row.Workload && s.Label == row.Scheme {
			hosts := a.Ranks.Resolve(d.Graph)
			hops := func(a, b int) int { return d.Graph.Hops(hosts[a], hosts[b]) }
			return collective.AllgatherLinks(s.Name, s.Options(len(hosts)), len(hosts), hops)
		}
	}
	return 0
}

// criticalHPL returns the links of a test of HPL: of its messages that follow each other,
// each over as many links as there are between any two of its ranks at the most.
func (d *Deployed) criticalHPL(h *lab.HPL, row apps.Row) (links int) {
	p, hosts, err := h.Program(d.Graph)
	if err != nil {
		return 0
	}
	far := 0
	for _, a := range hosts {
		for _, b := range hosts {
			far = max(far, d.Graph.Hops(a, b))
		}
	}
	for i := range p.Tests {
		if t := &p.Tests[i]; t.Label == row.Scheme {
			links = max(links, t.SerialMessages()*far)
		}
	}
	return links
}

func (f *fidelity) fix(dilation float64) { f.fixed = dilation }

// calibrated takes what the calibration saw: lag, busy seconds of CPU and frames sent.
func (f *fidelity) calibrated(lag live.Lag, busy float64, frames uint64, slower float64) {
	f.lagNs = float64(lag.P99())
	f.hopS = busy / float64(max(frames, 1))
	if slower > 0 {
		f.slow = slower
	}
}

// dilation returns what a row needs: so slow that the lag of its links is a small part
// of its time, and that the machine is half idle.
func (f *fidelity) dilation(row int) float64 {
	if f.fixed > 0 {
		f.dil[row] = f.fixed
		return f.fixed
	}
	jctNs := f.reh.Rows[row].JCT.Min * 1000
	lag := float64(f.links[row]) * f.lagNs * lagMargin / (lagShare * jctNs)
	load := f.rate[row] * f.hopS / (float64(runtime.NumCPU()) * cpuShare)
	f.dil[row] = round2(max(1, lag, load) * f.slow)
	return f.dil[row]
}

// need returns the part of the machine that the busiest row takes at dilation 1 if a hop
// costs so many seconds of CPU time.
func (f *fidelity) need(hopS float64) (share float64) {
	for _, rate := range f.rate {
		share = max(share, rate*hopS/float64(runtime.NumCPU()))
	}
	return share
}

// took notes the lag that the open row had.
func (f *fidelity) took(lag live.Lag) { f.lag[f.open].Add(lag) }

// judge says whether the clock did justice to every row that is claimed. lossFree says
// that nothing was made to go wrong.
func (f *fidelity) judge(rows []apps.Row, now, before []counters.Node, lossFree bool) runner.Fidelity {
	v := runner.Fidelity{Verdict: "ok", Rows: []runner.RowFidelity{}}
	blame := func(format string, args ...any) {
		v.Verdict = "violated"
		if v.Reason == "" {
			v.Reason = fmt.Sprintf(format, args...)
		}
	}
	if drops := counters.KernelDrops(now) - counters.KernelDrops(before); drops > 0 {
		blame("the kernel dropped %d frames of the lab", drops)
	}
	claimed := slices.ContainsFunc(rows, func(r apps.Row) bool { return len(r.External) == 0 })
	if n := counters.Total(now, "timeouts") - counters.Total(before, "timeouts"); n > 0 && lossFree && claimed {
		blame("%d retransmission timers fired although nothing was lost", n)
	}
	for i, row := range rows {
		if i >= len(f.links) {
			break
		}
		lag := lagUS(f.lag[i], f.dil[i])
		share := float64(f.links[i]) * lag / max(row.JCT.P50, 1e-6)
		ok := share <= lagShare
		out := len(row.External) > 0
		if !ok && !out {
			blame("%s %s at %v: %d links x %.3g us lag is %.0f %% of its %.4g us, more than %.0f %%", row.Workload, row.Scheme,
				lab.Size(row.SizeBytes), f.links[i], lag, 100*share, row.JCT.P50, 100*lagShare)
		}
		v.Dilation, v.LagUS = max(v.Dilation, f.dil[i]), max(v.LagUS, lag)
		v.Rows = append(v.Rows, runner.RowFidelity{
			Workload: row.Workload, Scheme: row.Scheme, SizeBytes: row.SizeBytes, Dilation: f.dil[i], Links: f.links[i], LagUS: lag, Share: share, OK: ok, External: out,
		})
	}
	return v
}

// busySeconds returns the CPU time that the lab's processes have had, and this one, to
// 10 ms. What else the host does is not in it.
func busySeconds(pids []int) float64 {
	total := 0.0
	for _, pid := range append([]int{os.Getpid()}, pids...) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // a node that has died is noticed elsewhere
		}
		_, after, _ := bytes.Cut(b, []byte(") ")) // the name may have blanks
		if f := bytes.Fields(after); len(f) > 12 {
			for _, ticks := range f[11:13] { // utime, stime
				v, err := strconv.ParseFloat(string(ticks), 64)
				if err == nil {
					total += v
				}
			}
		}
	}
	return total / 100 // USER_HZ
}
