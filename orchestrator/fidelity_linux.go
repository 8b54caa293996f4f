package orchestrator

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/adapter"
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/live"
	"github.com/mcastlab/mcastlab/runner"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// What a row is judged by, and what auto leaves room for.
const (
	// lagShare is the largest part of a row's JCT that the lag of its links may come to.
	lagShare = 0.05
	// lagMargin is by how much more lag than calibration saw a row is prepared for. One
	// that sees more yet is measured again.
	lagMargin = 2
	// cpuShare is the part of the machine the lab may keep busy.
	cpuShare = 0.5
	// carryShare is what it may take at the most where dilation 1 is a must.
	carryShare = 0.8
)

// fidelity says how slow the clock must be for each row, and afterwards whether it was.
type fidelity struct {
	d     *Deployed
	reh   *runner.Rehearsal
	links []int     // by row: links that its last byte depends on, one after the other (see linksOf)
	rate  []float64 // by row: packet-hops per second of lab time

	fixed float64            // dilation, if not to be chosen
	lagNs map[string]float64 // a link's, of wall time, by workload and scheme (lagKey)
	hopS  float64            // CPU seconds of one hop

	open int        // row that runs, or noRow
	lag  []live.Lag // by row
	dil  []float64  // by row
	past []int      // by row: how often it was measured before
	slow float64
}

func newFidelity(d *Deployed, reh *runner.Rehearsal) *fidelity {
	n := len(reh.Rows)
	f := &fidelity{
		d: d, reh: reh, open: noRow, slow: 1, lagNs: map[string]float64{},
		rate: make([]float64, n), lag: make([]live.Lag, n), dil: make([]float64, n), past: make([]int, n),
	}
	hops := make([]float64, n)
	for _, s := range reh.Steps {
		hops[s.Row] += float64(s.Hops)
	}
	for i, row := range reh.Rows {
		f.lag[i] = live.NewLag()
		f.links = append(f.links, d.criticalLinks(row))
		took := float64(row.Iterations) * row.Source.Avg
		if row.IO != nil {
			took = row.IO.RuntimeUS
		}
		if took > 0 {
			f.rate[i] = hops[i] / took * 1e6
		}
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
		if w.ReduceScatter != nil {
			return d.reduceLinks(w.ReduceScatter, row)
		}
		if w.FSDP != nil {
			return d.overlapLinks(w.FSDP, row)
		}
		if w.Program != nil {
			return d.mostLinks(row)
		}
		if w.HPL != nil {
			return d.criticalHPL(w.HPL, row)
		}
		if w.Storage != nil {
			return d.storageLinks(w.Storage)
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

// roundTripLinks returns the links whose lag a row waits for because its senders may have only
// as much under way as one round trip takes, or less (BDP flow control is that): the lag of
// each link, there and back, makes every round trip longer. 0: they may have twice that.
func (d *Deployed) roundTripLinks(row apps.Row) int {
	s := d.Lab.Fabric(d.Graph)
	most := s.UnderWay(d.Lab.NICs.MTU)
	if most == 0 || most >= 2*s.BDP() || row.SizeBytes <= most {
		return 0
	}
	return 2 * s.Far() * int(row.JCT.P50/s.RTT().Microseconds())
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

// storageLinks returns the links that an IO depends on: there and back.
func (d *Deployed) storageLinks(s *lab.Storage) (far int) {
	hosts := s.Ranks.Resolve(d.Graph)
	client, _ := d.Graph.Find(s.Client)
	for _, h := range hosts {
		far = max(far, d.Graph.Hops(client, h))
	}
	return 2 * far
}

// reduceLinks is criticalLinks for a Reduce-scatter.
func (d *Deployed) reduceLinks(a *lab.ReduceScatter, row apps.Row) int {
	for _, s := range a.Schemes {
		if s.Label == row.Scheme {
			hosts := a.Ranks.Resolve(d.Graph)
			hops := func(a, b int) int { return d.Graph.Hops(hosts[a], hosts[b]) }
			return collective.ReduceScatterLinks(s.Name, len(hosts), row.SizeBytes, d.Lab.NICs.MTU, hops)
		}
	}
	return 0
}

// overlapLinks is criticalLinks for an Allgather and a Reduce-scatter at one time: those of
// the half with more.
func (d *Deployed) overlapLinks(f *lab.FSDP, row apps.Row) int {
	for _, x := range f.Schemes {
		if x.Label != row.Scheme {
			continue
		}
		hosts := f.Ranks.Resolve(d.Graph)
		hops := func(a, b int) int { return d.Graph.Hops(hosts[a], hosts[b]) }
		return max(collective.AllgatherLinks(x.Allgather.Name, x.Allgather.Options(len(hosts)), len(hosts), hops),
			collective.ReduceScatterLinks(x.ReduceScatter.Name, len(hosts), row.SizeBytes, d.Lab.NICs.MTU, hops))
	}
	return 0
}

// mostLinks returns how many links can have been crossed one after the other in a row's
// time: of a program of the user's own nothing else is known. A crossing takes the delay of
// a link and the time of the smallest frame at least.
func (d *Deployed) mostLinks(row apps.Row) int {
	least := math.Inf(1)
	for i := range d.Graph.Links {
		l := &d.Graph.Links[i]
		least = min(least, l.Delay.Microseconds()+smallestFrameBits/float64(l.Rate)*1e6)
	}
	return int(math.Ceil(row.JCT.Max / least))
}

// smallestFrameBits is the smallest frame with its preamble and gap.
const smallestFrameBits = 8 * 84

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

func lagKey(workload, scheme string) string { return workload + "." + scheme }

// saw takes the lag in nanoseconds of wall time that a link had in a trial of a scheme; of
// several trials the smallest counts.
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
	for _, v := range f.lagNs { // the order is all the same
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

// calibrated takes what the calibration saw: busy seconds of CPU and frames sent.
func (f *fidelity) calibrated(busy float64, frames uint64, slower float64) {
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
	lag := 0.0
	if jctNs > 0 {
		lag = float64(f.linksOf(row, f.reh.Rows[row])) * f.expected(f.reh.Rows[row]) * lagMargin / (lagShare * jctNs)
	}
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

// forget clears the account of a row that is measured again, more slowly.
func (f *fidelity) forget(row int) {
	f.lag[row] = live.NewLag()
	f.dil[row] = round2(f.dil[row] * againSlower)
	f.past[row]++
}

// share returns which part of a row's time the lag of its links can make up, and the lag
// of one in microseconds of lab time.
func (f *fidelity) share(i int, row apps.Row) (share, lag float64) {
	lag = lagUS(f.lag[i], f.dil[i])
	return float64(f.linksOf(i, row)) * lag / max(row.JCT.P50, 1e-6), lag
}

// linksOf returns the links that a row depends on, given the time that it took. Where frames
// are lost that differs from the rehearsal's, and so do its round trips.
func (f *fidelity) linksOf(i int, row apps.Row) int { return max(f.links[i], f.d.roundTripLinks(row)) }

// judge says whether the clock did justice to every row that is claimed. lossFree says
// that nothing was made to go wrong. Rows that came too late are marked.
func (f *fidelity) judge(rows []apps.Row, now, before []counters.Node, lossFree bool) runner.Fidelity {
	v := runner.Fidelity{Verdict: "ok", Rows: []runner.RowFidelity{}}
	blame := func(format string, args ...any) {
		v.Verdict = "violated"
		v.Reasons = append(v.Reasons, fmt.Sprintf(format, args...))
		v.Reason = v.Reasons[0]
	}
	if drops := counters.KernelDrops(now) - counters.KernelDrops(before); drops > 0 {
		blame("the kernel dropped %d frames of the lab", drops)
	}
	if n := since(now, before, "timeouts"); n > 0 && lossFree {
		blame("%d retransmission timers fired although nothing was lost", n)
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
		share, lag := f.share(i, row)
		ok := share <= lagShare
		out := len(row.External) > 0
		rows[i].Late = !ok && !out
		if !ok && !out {
			blame("%s %s at %v: %d links x %.3g us lag is %.0f %% of its %.4g us, more than %.0f %%", row.Workload, row.Scheme,
				lab.Size(row.SizeBytes), f.linksOf(i, row), lag, 100*share, row.JCT.P50, 100*lagShare)
		}
		v.Dilation, v.LagUS = max(v.Dilation, f.dil[i]), max(v.LagUS, lag)
		v.Rows = append(v.Rows, runner.RowFidelity{
			Workload: row.Workload, Scheme: row.Scheme, SizeBytes: row.SizeBytes, Dilation: f.dil[i],
			Links: f.linksOf(i, row), LagUS: lag, Share: share, OK: ok, External: out, Repeats: f.past[i],
		})
	}
	return v
}

// since returns by how much a count over all nodes has grown.
func since(now, before []counters.Node, name string) uint64 {
	return counters.Total(now, name) - counters.Total(before, name)
}

// judgeDevices is for rows with external hosts: of their times nothing is claimed, but what
// was sent twice, or found no room, was not what the lab is about.
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
	overrun := []string{adapter.DropOverrun.String()}
	if n := counters.Dropped(now, overrun) - counters.Dropped(before, overrun); n > 0 {
		blame("%d packets of external hosts found external.window full: they send faster than links.rate, slow them down or use a larger window", n)
	}
}

// lostBySwitches are the reasons for which switches drop frames that were in order.
var lostBySwitches = []string{
	virtswitch.DropBufferFull.String(), virtswitch.DropHeadroom.String(), virtswitch.DropWatchdog.String(),
	virtswitch.DropProcessorFull.String(), virtswitch.DropRestart.String(),
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
