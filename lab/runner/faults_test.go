// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// faultRun is a lab with faults on the event clock, with every invariant checked.
type faultRun struct {
	t     *testing.T
	lab   *lab.Lab
	net   *sim.Net
	tl    *faults.Timeline
	works []Workload
}

func newFaultRun(t *testing.T, l *lab.Lab, faulty bool) *faultRun {
	t.Helper()
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	r := &faultRun{t: t, lab: l}
	if r.net, err = sim.New(sim.Config{Spec: labspec.Fabric(l, g), Check: true}); err != nil {
		t.Fatal(err)
	}
	if faulty {
		if r.tl, err = Inject(r.net, l); err != nil {
			t.Fatal(err)
		}
	}
	if r.works, err = Prepare(l, g, apps.Env{}); err != nil {
		t.Fatal(err)
	}
	return r
}

// work runs a workload and returns its rows.
func (r *faultRun) work(i int) ([]apps.Row, error) {
	w := r.works[i]
	records := make([][][]byte, len(w.Hosts))
	err := r.net.Run(sim.Job{
		Name: w.Label, Hosts: w.Hosts, Spare: w.Spare, Params: labspec.RankParams(r.lab),
		Program: func(k *rank.Rank) error { return w.App.Run(k, w.Params) },
		Emit:    func(i int, rec []byte) { records[i] = append(records[i], rec) },
	})
	rows, rerr := w.App.Reduce(w.Params, records)
	if err == nil {
		err = rerr
	}
	return rows, err
}

// wait lets nothing happen until an instant.
func (r *faultRun) wait(until vtime.Time) {
	r.t.Helper()
	err := r.net.Run(sim.Job{Name: "wait", Hosts: []int{0}, Params: labspec.RankParams(r.lab), Program: func(k *rank.Rank) error {
		k.Sleep(until.Sub(k.Now()))
		return nil
	}})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *faultRun) sw(name string) *virtswitch.Stats {
	n, _ := r.net.Graph().Find(name)
	return r.net.Switch(n).Stats()
}

func (r *faultRun) nic(name string) *virtrnic.Stats {
	n, _ := r.net.Graph().Find(name)
	return r.net.NIC(n).Stats()
}

func (r *faultRun) agent(name string) mrp.Stats {
	n, _ := r.net.Graph().Find(name)
	return r.net.Agent(n).Stats()
}

// toward returns the counters of faults on the way from one node to a neighbour.
func (r *faultRun) toward(from, to string) faults.Counts {
	g := r.net.Graph()
	a, _ := g.Find(from)
	for p := range g.Nodes[a].Links {
		if g.Nodes[g.Peer(a, p).Node].Name == to {
			return r.net.LinkStats(r.net.PortID(a, p))
		}
	}
	r.t.Fatalf("%s is no neighbour of %s", to, from)
	return faults.Counts{}
}

// effects lists the effects that each example must show besides hits, by its file's name.
var effects = map[string]struct {
	fails string // the run's error, if the fault is more than the transport heals
	check func(r *faultRun) error
}{
	"loss": {"", func(r *faultRun) error {
		// Of the acknowledgements of h3 the third is lost, and no other frame of that link.
		if a, b, c := r.toward("leaf0", "h1").Lost, r.toward("leaf0", "h2").Lost, r.toward("h3", "leaf0").Lost; a == 0 || b == 0 || c != 1 {
			return fmt.Errorf("%d, %d and %d frames were lost", a, b, c)
		}
		return unless(r.nic("h0").Retransmitted > 0, "nothing was sent again")
	}},
	"corrupt": {"", func(r *faultRun) error {
		return unless(r.nic("h1").Drops[virtrnic.DropICRC] > 0, "no packet was dropped for its ICRC")
	}},
	"truncate": {"", func(r *faultRun) error {
		return unless(r.toward("leaf0", "h1").Malformed > 0 && r.nic("h0").Retransmitted > 0, "no frame was cut, or none sent again")
	}},
	"duplicate": {"", func(r *faultRun) error {
		return unless(r.toward("leaf0", "h1").Copied > 0 && r.nic("h1").DuplicateRequest > 0, "the receiver saw no duplicate")
	}},
	"reorder": {"", func(r *faultRun) error {
		return unless(r.toward("leaf0", "h1").Held > 0 && r.nic("h1").OutOfSeqRequest > 0, "the receiver saw nothing out of order")
	}},
	"delay": {"", func(r *faultRun) error {
		return unless(r.toward("leaf0", "h1").Held > 10 && r.nic("h1").OutOfSeqRequest == 0, "no frame was held, or the order was lost")
	}},
	"rate-cut": {"", func(r *faultRun) error {
		return unless(r.nic("h0").Retransmitted == 0, "a slower link lost packets of a lossless class")
	}},
	"link-down": {"", func(r *faultRun) error {
		return unless(r.toward("leaf0", "spine1").Lost+r.toward("spine1", "leaf0").Lost > 0 && r.sw("spine0").Forwarded > 0, "nothing was lost, or nothing went round")
	}},
	"flap":        {"", func(*faultRun) error { return nil }},
	"pause":       {"", func(r *faultRun) error { return unless(r.sw("leaf0").PausesReceived >= 2, "the switch saw no pause") }},
	"pause-storm": {"", func(r *faultRun) error { return unless(r.sw("leaf0").PausesReceived >= 30, "the switch saw no storm") }},
	"crash": {"", func(r *faultRun) error {
		return unless(r.sw("spine0").Forwarded > 0 && r.nic("h0").Retransmitted > 0, "nothing was lost, or nothing went round")
	}},
	"agent-crash": {"host crashed: h2", func(r *faultRun) error {
		// The run has waited for the process that was started again.
		f := r.tl.List(r.net.Now())[0]
		return unless(!f.On && f.Over && r.net.Now() >= vtime.Time(100*vtime.Microsecond).Add(lab.AgentCrashDefault), "the agent has not come back")
	}},
	"host-crash": {"host crashed: h2", func(r *faultRun) error {
		return unless(r.nic("h0").RetryExceeded > 0, "the source did not give up")
	}},
	"restart": {"", func(r *faultRun) error {
		return unless(r.sw("leaf0").Drops[virtswitch.DropRestart] > 0 && r.nic("h0").Retransmitted > 0, "nothing was lost, or nothing sent again")
	}},
	"wipe-mft": {"transport retry counter exceeded", func(r *faultRun) error {
		return unless(r.sw("leaf0").Drops[virtswitch.DropUnknownGroup] > 0, "no packet came for an unknown group")
	}},
	"mft-full": {"no room in the multicast forwarding table", func(r *faultRun) error {
		return unless(r.sw("leaf0").Refused > 0, "no registration was refused")
	}},
	"fallback": {"", func(r *faultRun) error {
		a := r.agent("h0")
		return unless(a.Fallbacks == 2 && a.Returns == 2 && r.sw("leaf1").Refused > 0, fmt.Sprintf("the source fell back %d and returned %d times", a.Fallbacks, a.Returns))
	}},
	"fallback-partial": {"", func(r *faultRun) error {
		a := r.agent("h0")
		return unless(a.Fallbacks == 1 && a.Returns == 2 && a.MembersLost == 0, fmt.Sprintf("the source fell back %d and returned %d times", a.Fallbacks, a.Returns))
	}},
	"nic-stall": {"", func(r *faultRun) error { return unless(r.nic("h2").Waited > 0, "nothing waited") }},
	"slow-receiver": {"", func(r *faultRun) error {
		return unless(r.nic("h2").Waited > 100 && r.nic("h2").PausesSent >= 2 && r.nic("h0").Retransmitted == 0, "nothing waited, or packets were lost")
	}},
}

func unless(ok bool, what string) error {
	if ok {
		return nil
	}
	return errors.New(what)
}

// TestFaultExamples: each kind of fault has an example; it hits, it shows, every byte that
// is delivered is right, every invariant holds, and once it is over the fabric is as in a
// run without it: the same workload takes the same time.
func TestFaultExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	files, err := filepath.Glob("../../examples/faults/*.mcl.yml")
	if err != nil || len(files) != len(effects) {
		t.Fatalf("%d examples, %d have a test, %v", len(files), len(effects), err)
	}
	kinds := map[faults.Kind]bool{}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".mcl.yml")
		t.Run(name, func(t *testing.T) {
			l, err := lab.Read(f)
			if err != nil {
				t.Fatal(err)
			}
			want, known := effects[name]
			if !known {
				t.Fatalf("%s has no test", f)
			}
			for i := range l.Faults {
				kinds[l.Faults[i].Kind()] = true
			}
			r := newFaultRun(t, l, true)
			rows, err := r.work(0)
			if want.fails == "" && (err != nil || !verified(rows)) || want.fails != "" && (err == nil || !strings.Contains(err.Error(), want.fails)) {
				t.Errorf("during the fault: %v, %+v", err, rows)
			}
			for _, s := range r.tl.List(r.net.Now()) {
				if s.Hit == 0 || s.Seen == 0 {
					t.Errorf("fault %s: %d seen, %d hit", s.Text, s.Seen, s.Hit)
				}
			}
			if err := want.check(r); err != nil {
				t.Error(err)
			}
			r.after(want.fails != "")
		})
	}
	for _, k := range faults.Kinds() {
		if !kinds[k] && !k.OfControl() { // those are in examples/controllers.mcl.yml, and have no simulation
			t.Errorf("no example has %s", k)
		}
	}
}

// after runs the second workload, long after all faults, here and in a lab without them.
func (r *faultRun) after(failed bool) {
	t := r.t
	t.Helper()
	const late = vtime.Time(500 * vtime.Millisecond)
	for _, s := range r.tl.List(r.net.Now()) {
		if r.tl.Remove(r.net.Now(), s.ID); s.On && failed {
			t.Logf("%s was still on", s.Text)
		}
	}
	r.wait(late)
	rows, err := r.work(1)
	if err != nil || !verified(rows) {
		t.Fatalf("after the fault: %v, %+v", err, rows)
	}
	plain := newFaultRun(t, r.lab, false)
	if _, err := plain.work(0); err != nil {
		t.Fatal(err)
	}
	plain.wait(late)
	want, err := plain.work(1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := rows[0].JCT.P50, want[0].JCT.P50; math.Abs(got/want-1) > 0.005 {
		t.Errorf("after the fault the workload takes %.3f us, without it %.3f us", got, want)
	}
	for i := r.net.Graph().Hosts; i < len(r.net.Graph().Nodes); i++ {
		if n := r.net.Switch(i).Queued(); n != 0 {
			t.Errorf("%s holds %d frames", r.net.Graph().Nodes[i].Name, n)
		}
	}
}

func verified(rows []apps.Row) bool {
	for _, r := range rows {
		if r.Verified == nil || !*r.Verified {
			return false
		}
	}
	return len(rows) > 0
}

// TestNoRoute: when a leaf loses its links up, the switches at their other ends have no
// route to it at once, and all others once the routing has converged: the frames dropped
// for that are counted.
func TestNoRoute(t *testing.T) {
	l, err := lab.Parse("lab", []byte(`name: x
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}
nics: {timeout: 67us}
switches: {reconverge: 20us}
workloads:
  - bcast: {schemes: [unicast], sizes: [1MiB], ranks: [h0, h3], iterations: 2}
faults:
  - {in: run, at: 30us, for: 100us, link-down: {links: "leaf1-spine*"}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := newFaultRun(t, l, true)
	if rows, err := r.work(0); err != nil || !verified(rows) {
		t.Fatal(err)
	}
	leaf, spine := r.sw("leaf0").Drops[virtswitch.DropNoRoute], r.sw("spine0").Drops[virtswitch.DropNoRoute]+r.sw("spine1").Drops[virtswitch.DropNoRoute]
	if leaf == 0 || spine == 0 {
		t.Errorf("for lack of a route the spines dropped %d frames, and the other leaf %d", spine, leaf)
	}
}

// TestFaultRow: the report of a run has the counts of its faults.
func TestFaultRow(t *testing.T) {
	l, err := lab.Read("../../examples/faults/truncate.mcl.yml")
	if err != nil {
		t.Fatal(err)
	}
	rep, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(rep.Faults)
	if err != nil || len(rep.Faults) != 1 || rep.Faults[0].Hit == 0 || !strings.Contains(string(b), `"what":"{in: run, at: 20us, for: 200us, truncate:`) {
		t.Errorf("%s, %v", b, err)
	}
}
