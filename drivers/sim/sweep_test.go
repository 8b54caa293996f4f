// SPDX-License-Identifier: Apache-2.0

package sim

// The simulator's promises in whole labs: one seed is one run, and the checker finds no broken
// invariant. The flows beside the ranks outlive them; only a test of this package can exempt them from
// the check for leftover objects.

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

var sweepOnce = flag.Bool("once", false, "run each seed of the seed sweep once instead of twice")

// trial is everything a seed of the sweep decides.
type trial struct {
	seed                     uint64
	graph                    *topo.Graph
	rate                     int64
	shape                    string
	hosts                    []int
	root                     int
	sizes                    []int
	schemes                  []string
	mtu, ack                 int
	psn                      wire.PSN
	loss, dup, late, corrupt float64
	irn                      *virtrnic.IRN

	// The fabric, and the traffic beside the broadcasts.
	sw     fabric.Switch
	nic    virtrnic.Settings
	set    string // of congestion control
	tight  bool   // buffers are hardly larger than PFC's reserve
	vlan   uint16
	pauses map[int][]simlab.PauseStep // by host
	writes *simlab.GroupWrites        // nil: none
	flows  []sideFlow
}

func (v trial) String() string {
	w := "none"
	if v.writes != nil {
		w = string(v.writes.Mode)
	}
	s := &v.sw
	return fmt.Sprintf("seed %d: %s, %d ranks, root %d, sizes %v, %v, mtu %d, ack every %d, first PSN %v, loss %.4f, duplication %.4f, reordering %.4f, corruption %.4f, "+
		"cut-through %v, IRN %v, congestion control %q, XOFF %d, alpha %v, buffer %d, ECN %v, marking %v, CNP window %v, watchdog %+v, weights %v, feedback delay %v, accelerator %+v, "+
		"window %d, IPv6 %v, VLAN %d, %d hosts pause, group WRITEs %s, %d flows beside",
		v.seed, v.shape, len(v.hosts), v.root, v.sizes, v.schemes, v.mtu, v.ack, v.psn, v.loss, v.dup, v.late, v.corrupt,
		s.CutThrough, v.irn != nil, v.set, s.PFC.XOFF, s.PFC.Alpha, s.Buffer, s.ECN, s.Marking, s.CNPWindow, s.Watchdog, s.Weights, s.FeedbackDelay, s.LookAside,
		v.nic.Window, v.graph.IPv6, v.vlan, len(v.pauses), w, len(v.flows))
}

func drawTrial(t testing.TB, seed uint64) trial {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 5))
	link := topo.LinkParams{Rate: []int64{25e9, 100e9, 200e9}[r.IntN(3)], Delay: vtime.Duration(100+r.IntN(2000)) * vtime.Nanosecond}
	v := trial{seed: seed, rate: link.Rate, mtu: 256 << r.IntN(5), ack: 1 + r.IntN(17)}
	cut := r.IntN(4) == 0
	var err error
	switch r.IntN(4) {
	case 0:
		n := 2 + r.IntN(9)
		v.shape = fmt.Sprintf("star of %d", n)
		v.graph, err = topo.Star(n, link)
	case 1:
		v.shape = "k=4"
		v.graph, err = topo.FatTree(4, link)
	case 2:
		v.shape = "k=6"
		v.graph, err = topo.FatTree(6, link)
	default:
		s := topo.LeafSpineSpec{Leaves: 2 + r.IntN(4), Spines: 1 + r.IntN(3), Hosts: 1 + r.IntN(4), Parallel: 1 + r.IntN(2)}
		v.shape = fmt.Sprintf("leaf-spine %+v", s)
		v.graph, err = topo.LeafSpine(s, link)
	}
	if err != nil {
		t.Fatal(err)
	}
	n := min(v.graph.Hosts, 2+r.IntN(14))
	v.hosts = r.Perm(v.graph.Hosts)[:n]
	v.root = r.IntN(n)
	v.schemes = []string{"cepheus"}
	if r.IntN(2) == 0 {
		v.schemes = append(v.schemes, []string{"binomial", "chain", "unicast"}[r.IntN(3)])
	}
	// Sizes are drawn so that a run stays below about 50,000 hops.
	budget := 45000 / (len(v.schemes) * 10 * n) * v.mtu
	v.sizes = []int{r.IntN(v.mtu + 2), r.IntN(budget)}
	v.psn = wire.PSN(r.Uint32()) & wire.PSNMask
	if r.IntN(2) == 0 {
		v.psn = wire.PSN(0).Add(-r.IntN(60)) // the wrap comes soon
	}
	if r.IntN(5) > 0 {
		v.loss = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.dup = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.late = 0.01 * r.Float64()
	}
	if r.IntN(2) == 0 {
		v.irn = &virtrnic.IRN{RTOLow: virtrnic.RTOLowDefault, RTOHigh: virtrnic.RTOHighDefault}
		if r.IntN(2) == 0 {
			v.irn.Cap = 1 + r.IntN(50_000)
		}
	}
	r = rand.New(rand.NewPCG(seed, 6)) // later additions leave the draws above as they were
	v.sw = fabric.Switch{
		Latency: 300 * vtime.Nanosecond, MTU: v.mtu, CutThrough: cut,
		Settings: virtswitch.Settings{PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
	}
	v.vlan = simlab.Framing(v.graph, seed)
	v.drawSwitches(r)
	v.drawNICs(t, r)
	if r.IntN(3) == 0 {
		v.pauses = map[int][]simlab.PauseStep{}
		for range 1 + r.IntN(3) {
			v.pauses[r.IntN(v.graph.Hosts)] = simlab.DrawPauses(r)
		}
	}
	if r.IntN(3) == 0 {
		v.writes = &simlab.GroupWrites{Mode: simlab.MRModes()[r.IntN(len(simlab.MRModes()))], Ranks: len(v.hosts), MTU: v.mtu, Size: 1 + r.IntN(12*v.mtu)}
		v.writes.Draw(r)
	}
	v.drawSides(r)
	return v
}

// drawSwitches draws buffers, thresholds, marking, scheduling and the units that serve groups.
func (v *trial) drawSwitches(r *rand.Rand) {
	sw := &v.sw
	sw.Buffer = 16 << 20
	if v.tight = r.IntN(2) == 0; v.tight {
		if r.IntN(2) == 0 {
			sw.PFC.XOFF = 1 + r.IntN(3*v.mtu)
		} else {
			sw.PFC.Alpha = []float64{1. / 16, 1. / 4, 1, 8}[r.IntN(4)]
		}
		// What lossy classes share must hold a confirmation of each member at once: ACTIVATE is
		// repeated to all of them, and the same ones would be dropped every time.
		sw.Buffer = simlab.Reserved(fabric.Spec{Graph: v.graph, Switch: *sw}) + 4096 + r.IntN(8*v.mtu)
		// Headroom is for links that deliver in time and once. A frame that a fault holds
		// back or doubles may come when the pause that its sender obeys has long begun.
		v.dup, v.late = 0, 0
	}
	if r.IntN(3) == 0 {
		sw.PFC.Quanta = virtswitch.PauseQuantaMin + r.IntN(3000)
	}
	if r.IntN(2) == 0 {
		kmin := 1 + r.IntN(6*v.mtu)
		sw.ECN.Classes = []uint8{0xff, 1 << 3}[r.IntN(2)]
		sw.Marking = fabric.Marking{Kmin: kmin, Kmax: kmin + r.IntN(8*v.mtu), Rate: v.rate}
		sw.ECN.Pmax = r.Float64()
	}
	if r.IntN(4) == 0 {
		sw.Weights = [8]uint8{0: 1, 3: uint8(1 + r.IntN(4)), 4: uint8(r.IntN(3)), 6: uint8(r.IntN(2))}
	}
	if r.IntN(4) == 0 {
		sw.Watchdog = virtswitch.WatchdogConfig{
			Detect: vtime.Duration(5+r.IntN(40)) * vtime.Microsecond, Restore: vtime.Duration(5+r.IntN(40)) * vtime.Microsecond,
			// One that forwards overruns the headroom of a switch that has paused this one.
			Forward: r.IntN(2) == 0 && !v.tight,
		}
	}
	if r.IntN(4) == 0 {
		sw.FeedbackDelay = vtime.Duration(1+r.IntN(300)) * vtime.Nanosecond
	}
	if r.IntN(8) == 0 && !v.tight {
		sw.LookAside = virtswitch.LookAsideConfig{Links: 1 + r.IntN(4), Rate: v.rate, Delay: 300 * vtime.Nanosecond}
	}
}

// drawNICs draws the NICs' reactions to congestion and loss.
func (v *trial) drawNICs(t testing.TB, r *rand.Rand) {
	t.Helper()
	v.nic = virtrnic.Settings{AckEvery: v.ack, IRN: v.irn}
	if r.IntN(4) == 0 {
		v.nic.Window = v.ack + r.IntN(64)
	}
	if r.IntN(2) == 0 {
		v.set = []string{"dcqcn", "dcqcn-connectx", "dcqcn-hpcc"}[r.IntN(3)]
		var err error
		if v.nic.Congestion, err = virtrnic.DCQCNByName(v.set); err != nil {
			t.Fatal(err)
		}
		if r.IntN(2) == 0 {
			v.sw.CNPWindow = vtime.Duration(1+r.IntN(100)) * vtime.Microsecond
		}
	}
	if r.IntN(2) == 0 {
		v.corrupt = 0.005 * r.Float64()
	}
}

// outcome is the result of a trial.
type outcome struct {
	digest        uint64
	hops, packets uint64
	gaveUp        int // flows that ran out of retries
	err           error
}

// aLab is a lab that is whole or in parts.
type aLab interface {
	Run(Job) error
	Of(node int) *Net
	Ports() int
	Digest() uint64
	Stats() Stats
}

// run runs the trial; check verifies all invariants after every event. What the machines
// counted is added to seen.
func (v trial) run(check bool, seen *sightings) outcome {
	cfg := v.config()
	cfg.Check = check
	if *traceEvents {
		cfg.Trace = printEvents(v.graph)
	}
	n, err := New(cfg)
	if err != nil {
		return outcome{err: err}
	}
	return v.runOn(n, []*Net{n}, seen)
}

// config describes the trial's lab.
func (v trial) config() Config {
	return Config{RetryAfter: 200 * vtime.Microsecond, RetriesMax: 50, Spec: fabric.Spec{
		Graph: v.graph, Seed: v.seed, NIC: v.nic, VLAN: v.vlan, Switch: v.sw,
	}}
}

// runOn runs the trial on its lab, which consists of nets.
func (v trial) runOn(n aLab, nets []*Net, seen *sightings) (o outcome) {
	for id := range n.Ports() {
		for _, part := range nets {
			part.SetFault(id, &faults.Impairment{
				Loss: v.loss, Duplicate: v.dup, Reorder: v.late, Corrupt: v.corrupt, Delay: 5 * vtime.Microsecond,
				Random: part.random.Derive(fmt.Sprintf("fault/%d", id)),
			})
		}
	}
	for h := range v.graph.Hosts {
		simlab.SendPauses(n.Of(h), h, v.pauses[h])
	}
	beside, err := v.startSides(n)
	if err == nil {
		err = v.broadcast(n)
	}
	if err == nil {
		o.gaveUp, err = beside.verify()
	}
	o.digest, o.hops, o.packets, o.err = n.Digest(), n.Stats().Hops, seen.take(n, v.graph), err
	return o
}

// broadcast runs the ranks: the broadcasts, then the WRITEs to a group.
func (v trial) broadcast(n aLab) error {
	p := bcast.Params{Workload: "sweep", Root: v.root, Sizes: v.sizes, Iterations: 2, Seed: v.seed}
	for _, s := range v.schemes {
		p.Schemes = append(p.Schemes, bcast.Scheme{Label: s, Name: s})
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	params := simlab.Params()
	params.MTU, params.FirstPSN = v.mtu, &v.psn
	records := make([][][]byte, len(v.hosts))
	err = n.Run(Job{
		Name: "sweep", Hosts: v.hosts, Params: params,
		Program: func(r *rank.Rank) error {
			if err := (bcast.App{}).Run(r, raw); err != nil || v.writes == nil {
				return err
			}
			return v.writes.Program(r)
		},
		Emit: func(rank int, rec []byte) { records[rank] = append(records[rank], rec) },
	})
	if err != nil {
		return err
	}
	rows, err := bcast.App{}.Reduce(raw, records)
	for _, row := range rows {
		if err == nil && (row.Verified == nil || !*row.Verified) {
			err = fmt.Errorf("%s at %d bytes: a receiver got wrong bytes", row.Scheme, row.SizeBytes)
		}
	}
	if want := len(v.schemes) * len(v.sizes); err == nil && len(rows) != want {
		err = fmt.Errorf("%d rows, want %d", len(rows), want)
	}
	return err
}

// sightings counts the actions of the machines of a sweep, to see that it reaches everything.
type sightings struct {
	nic   virtrnic.Stats
	sw    virtswitch.Stats
	drops map[string]uint64
	lost  uint64
	// uneven are the switches whose ports together counted other than the switch.
	uneven []string
}

// take adds the counters of a lab and returns its packets: those that NICs made, and the copies that
// switches made. Pauses and registrations of switches are not counted.
func (s *sightings) take(n aLab, g *topo.Graph) (packets uint64) {
	if s.drops == nil {
		s.drops = map[string]uint64{}
	}
	s.lost += n.Stats().Lost
	for i := range g.Nodes {
		if nic := n.Of(i).NIC(i); nic != nil {
			st := nic.Stats()
			packets += st.Made
			s.addNIC(st)
			continue
		}
		sw := n.Of(i).Switch(i)
		st := sw.Stats()
		packets += st.Cloned
		s.addSwitch(st)
		byPort := virtswitch.PortStats{}
		for p := range sw.Ports() {
			x := sw.PortStats(p)
			byPort.AcksIn, byPort.NaksIn, byPort.CNPsIn, byPort.Filtered = byPort.AcksIn+x.AcksIn, byPort.NaksIn+x.NaksIn, byPort.CNPsIn+x.CNPsIn, byPort.Filtered+x.Filtered
		}
		if byPort != (virtswitch.PortStats{AcksIn: st.AcksIn, NaksIn: st.NaksIn, CNPsIn: st.CNPsIn, Filtered: st.Filtered}) {
			s.uneven = append(s.uneven, g.Nodes[i].Name)
		}
	}
	return packets
}

func (s *sightings) addNIC(st *virtrnic.Stats) {
	for _, why := range virtrnic.DropReasons() {
		s.drops["NIC: "+why.String()] += st.Drops[why]
	}
	a := &s.nic
	a.Retransmitted += st.Retransmitted
	a.SendRNR += st.SendRNR
	a.CompleterRetry += st.CompleterRetry
	a.Timeouts += st.Timeouts
	a.ImpliedNAK += st.ImpliedNAK
	a.ResponsesSent += st.ResponsesSent
	a.Replayed += st.Replayed
	a.AtomicsExecuted += st.AtomicsExecuted
	a.CNPSent += st.CNPSent
	a.CNPHandled += st.CNPHandled
	a.PausesSent += st.PausesSent
	a.PausesReceived += st.PausesReceived
}

func (s *sightings) addSwitch(st *virtswitch.Stats) {
	for _, why := range virtswitch.DropReasons() {
		s.drops["switch: "+why.String()] += st.Drops[why]
	}
	a := &s.sw
	a.Cloned += st.Cloned
	a.PausesSent += st.PausesSent
	a.PausesReceived += st.PausesReceived
	a.NaksIn += st.NaksIn
	a.AcksRepeated += st.AcksRepeated
	a.Filtered += st.Filtered
	a.SourceSwitches += st.SourceSwitches
	a.Marked += st.Marked
	a.PauseStorms += st.PauseStorms
	a.MRUpdates += st.MRUpdates
	a.RETHsRewritten += st.RETHsRewritten
	a.CNPsIn += st.CNPsIn
	a.CNPsOut += st.CNPsOut
}

// missing names the events that a sweep of some size must have met and has not.
func (s *sightings) missing() (names []string) {
	a, b := &s.nic, &s.sw
	for _, x := range []struct {
		name string
		n    uint64
	}{
		{"lost frames", s.lost}, {"damaged frames", s.drops["NIC: icrc"]}, {"repeats", a.Retransmitted}, {"RNR NAKs", a.SendRNR},
		{"go-backs", a.CompleterRetry}, {"timeouts", a.Timeouts}, {"lost answers", a.ImpliedNAK}, {"answers to READs and atomics", a.ResponsesSent},
		{"answers given again", a.Replayed}, {"atomics", a.AtomicsExecuted}, {"CNPs sent", a.CNPSent}, {"CNPs taken", a.CNPHandled},
		{"pauses by hosts", a.PausesSent}, {"pauses of hosts", a.PausesReceived}, {"copies", b.Cloned}, {"pauses by switches", b.PausesSent},
		{"NAKs merged", b.NaksIn}, {"acknowledgements repeated", b.AcksRepeated}, {"copies filtered", b.Filtered}, {"source switches", b.SourceSwitches},
		{"marks", b.Marked}, {"pause storms", b.PauseStorms}, {"announcements of regions", b.MRUpdates}, {"WRITEs rewritten", b.RETHsRewritten},
		{"CNPs of groups", b.CNPsIn}, {"CNPs filtered", b.CNPsIn - b.CNPsOut}, {"datagrams with a wrong key", s.drops["NIC: qkey"]},
		{"messages of UC and UD without a receive", s.drops["NIC: no-receive"]}, {"multicast datagrams for nobody", s.drops["NIC: no-group"]},
		{"frames a watchdog dropped", s.drops["switch: watchdog"]}, {"lossy frames without room", s.drops["switch: buffer-full"]},
	} {
		if x.n == 0 {
			names = append(names, x.name)
		}
	}
	return names
}

// sweepSeeds is the number of seeds that cover sweepPackets and some to spare.
const (
	sweepSeeds   = 600
	sweepPackets = 5_000_000
)

// TestSeedSweep runs random labs that use all of the endpoint and the fabric, under loss,
// duplication, reordering, corruption and pauses, with every invariant checked after
// every event. A second run without checks and with another number of processors must
// give the same digest.
func TestSeedSweep(t *testing.T) {
	from, count := simlab.DaySeeds(t, sweepSeeds)
	var seen, again sightings
	var hops, packets, all uint64
	gaveUp := 0
	for seed := from; seed < from+count; seed++ {
		v := drawTrial(t, seed)
		o := v.run(true, &seen)
		hops += o.hops
		packets += o.packets
		gaveUp += o.gaveUp
		all = wire.MixWord(all, o.digest)
		if o.err != nil {
			t.Errorf("%v\n%v\nreplay: go test ./drivers/sim -run SeedSweep -from %d -seeds 1", v, o.err, seed)
			continue
		}
		if *sweepOnce {
			continue
		}
		procs := runtime.GOMAXPROCS(1 + int(seed%4))
		second := v.run(false, &again)
		runtime.GOMAXPROCS(procs)
		if o.digest != second.digest || second.err != nil {
			t.Errorf("%v\ntwo runs, two digests: %016x and %016x (%v)\nreplay: go test ./drivers/sim -run SeedSweep -from %d -seeds 1", v, o.digest, second.digest, second.err, seed)
		}
	}
	t.Logf("seeds %d..%d: %d packets, %d packet-hops, digest %016x", from, from+count-1, packets, hops, all)
	t.Logf("%d flows gave up; drops: %v", gaveUp, seen.drops)
	if uint64(gaveUp) > 1+count/100 {
		t.Errorf("%d flows ran out of retries in %d seeds: at this loss that is for one in a hundred", gaveUp, count)
	}
	if len(seen.uneven) > 0 {
		t.Errorf("%d switches counted other than their ports, the first is %s", len(seen.uneven), seen.uneven[0])
	}
	if count < sweepSeeds/sweeps.Parts {
		return
	}
	if want := sweepPackets * count / sweepSeeds; packets < want {
		t.Errorf("%d packets, %d seeds are to cover %d: run more seeds", packets, count, want)
	}
	if m := seen.missing(); len(m) > 0 {
		t.Errorf("the sweep has not met: %v", m)
	}
}
