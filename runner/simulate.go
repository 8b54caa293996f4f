// Package runner runs the workloads of a lab and leaves their results in a folder of
// the run's own: the resolved lab, what the run was made of, events, captures and the
// summary. What is there is valid at any time, also after an interrupt.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/sim"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/traces"
	"github.com/mcastlab/mcastlab/vtime"
)

// Options are the choices of a run that are not the lab's.
type Options struct {
	Base         string   // run folders go there
	Captures     []string // patterns of port names: h0:0, leaf*:*
	CaptureBytes int64    // all capture files together; 0: CaptureBytesDefault
	Check        bool     // verify the invariants after every event
	Progress     Progress // may be nil
	Bcast        bcast.App
}

// CaptureBytesDefault is how many bytes a run's captures may have together.
const CaptureBytesDefault = 1 << 30

// Progress is told how a run comes along, a few times per second at the least while
// packets move.
type Progress interface {
	Update(ProgressState)
	Done()
}

// ProgressState is how far a run has come.
type ProgressState struct {
	Doing       string
	Step, Steps int // iterations begun, and in all
	LabTime     vtime.Time
	PacketHops  uint64
	Waiting     string // what most ranks wait on
}

// run is one run under way.
type run struct {
	ctx    context.Context
	lab    *lab.Lab
	o      Options
	net    *sim.Net
	report *Report
	meta   Meta
	events *traces.Events
	caps   captures
	before int // iterations of the workloads that have ended
	steps  int // iterations of all workloads
	closes []func() error
}

// Simulate runs a lab's workloads on the event clock. The report holds what was
// measured even if the run ends with an error; it is nil if nothing was begun.
func Simulate(ctx context.Context, l *lab.Lab, o Options) (*Report, error) {
	g, err := l.Graph()
	if err != nil {
		return nil, fmt.Errorf("build topology: %w", err)
	}
	ends, err := matchPorts(g, o.Captures)
	if err != nil {
		return nil, err
	}
	dir, err := newFolder(o.Base, l.Name)
	if err != nil {
		return nil, err
	}
	r := &run{ctx: ctx, lab: l, o: o, meta: newMeta(l.Name, "sim", l.Seed)}
	r.report = &Report{
		Schema: ReportSchema, Lab: l.Name, Runtime: "sim", Seed: l.Seed, RunDir: dir, Fidelity: virtualClock(),
		Results: []apps.Row{}, Expect: []Expectation{},
	}
	err = r.start(g, ends)
	if err == nil {
		err = r.workloads(g)
	}
	if o.Progress != nil {
		o.Progress.Done()
	}
	return r.report, r.finish(err)
}

// start builds the network and opens the folder's files.
func (r *run) start(g *topo.Graph, ends []topo.End) error {
	dir := r.report.RunDir
	if err := writeFile(filepath.Join(dir, "lab.resolved.yml"), r.lab.Resolved()); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "meta.json"), &r.meta); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		return fmt.Errorf("write events: %w", err)
	}
	r.events = traces.NewEvents(f)
	r.closes = append(r.closes, r.events.Close, f.Close, r.caps.close)
	r.net, err = sim.New(sim.Config{
		Spec: r.lab.Fabric(g), Check: r.o.Check,
		Trace: func(node int) machine.Tracer { return r.events.Node(g.Nodes[node].Name) },
	})
	if err != nil {
		return fmt.Errorf("build lab: %w", err)
	}
	if r.caps.budget.Left = r.o.CaptureBytes; r.o.CaptureBytes == 0 {
		r.caps.budget.Left = CaptureBytesDefault
	}
	if err := r.caps.start(r.net, dir, ends); err != nil {
		return err
	}
	setFaults(r.net, r.lab)
	r.net.Observe = r.observe
	return nil
}

// observe is called while events are handled: it is where an interrupt is noticed.
func (r *run) observe() error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.o.Progress != nil {
		doing, done := r.net.Doing()
		r.o.Progress.Update(ProgressState{
			Doing: doing, Step: r.before + done, Steps: r.steps, LabTime: r.net.Now(), PacketHops: r.net.Stats().Hops, Waiting: r.net.Waiting(),
		})
	}
	return nil
}

// workload is a workload made ready to run.
type workload struct {
	label  string
	app    apps.App
	params []byte
	hosts  []int
	steps  int
}

// prepare turns the lab file's workload into parameters of its app.
func (r *run) prepare(w *lab.Bcast, g *topo.Graph, seed uint64) (workload, error) {
	hosts := w.Ranks.Resolve(g)
	p := bcast.Params{Workload: w.Label, Iterations: int(w.Iterations), Seed: seed}
	if w.Memory != "auto" {
		p.Memory = rank.MemoryKind(w.Memory)
	}
	for i, h := range hosts {
		if g.Nodes[h].Name == w.Root {
			p.Root = i
		}
	}
	for _, s := range w.Schemes {
		p.Schemes = append(p.Schemes, bcast.Scheme{Label: s.Label, Name: s.Name, Options: collective.Options{Slices: int(s.Slices)}})
	}
	steps := 0
	for _, size := range w.Sizes {
		p.Sizes = append(p.Sizes, int(size))
		steps += len(p.Schemes) * bcast.Iterations(p.Iterations, int(size))
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return workload{}, fmt.Errorf("write parameters of %s: %w", w.Label, err)
	}
	return workload{w.Label, r.o.Bcast, raw, hosts, steps}, nil
}

// workloads runs one workload after the other on the same fabric.
func (r *run) workloads(g *topo.Graph) error {
	seeds := prng.New(r.lab.Seed)
	var all []workload
	for i := range r.lab.Workloads {
		b := r.lab.Workloads[i].Bcast
		s := seeds.Derive("workload/" + b.Label)
		w, err := r.prepare(b, g, s.Uint64())
		if err != nil {
			return err
		}
		all = append(all, w)
		r.steps += w.steps
	}
	for _, w := range all {
		if err := r.workload(w); err != nil {
			return err
		}
		r.before += w.steps
	}
	return nil
}

func (r *run) workload(w workload) error {
	records := make([][][]byte, len(w.hosts))
	r.events.Note(r.net.Now(), "workload", map[string]any{"workload": w.label, "ranks": len(w.hosts)})
	err := r.net.Run(sim.Job{
		Name: w.label, Hosts: w.hosts, Params: r.lab.RankParams(),
		Program: func(k *rank.Rank) error { return w.app.Run(k, w.params) },
		Emit:    func(i int, record []byte) { records[i] = append(records[i], record) },
	})
	rows, rerr := w.app.Reduce(w.params, records)
	for _, row := range rows {
		r.events.Note(r.net.Now(), "result", row)
	}
	r.report.Results = append(r.report.Results, rows...)
	if err == nil {
		err = rerr
	}
	if err == nil {
		err = r.net.Leftover()
	}
	return err
}

// finish closes all files and says in them how the run ended. It returns the run's
// error, or what went wrong here.
func (r *run) finish(runErr error) error {
	var errs []error
	if r.net != nil {
		r.report.Digest = fmt.Sprintf("%016x", r.net.Digest())
		s := r.net.Stats()
		r.meta.LabUS, r.meta.Events, r.meta.PacketHops, r.meta.AckHops, r.meta.FramesLost = r.net.Now().Microseconds(), s.Events, s.Hops, s.AckHops, s.Lost
	}
	for _, c := range r.closes {
		errs = append(errs, c())
	}
	if r.events != nil {
		r.meta.EventsNotIn = r.events.Cut()
	}
	r.report.CaptureCut = r.caps.budget.Cut
	r.meta.CaptureCut, r.meta.CaptureFiles = r.caps.budget.Cut, len(r.caps.files)
	r.meta.WallSeconds = time.Since(r.meta.Started).Seconds()
	if runErr == nil {
		r.report.Expect = evaluate(r.lab.Expect, r.report.Results)
	}
	switch {
	case r.ctx.Err() != nil:
		r.meta.Status = StatusInterrupted
	case runErr != nil:
		r.meta.Status, r.meta.Error = StatusError, runErr.Error()
	case len(r.report.Failures()) > 0:
		r.meta.Status = StatusFailed
	default:
		r.meta.Status = StatusOK
	}
	errs = append(errs,
		writeJSON(filepath.Join(r.report.RunDir, "summary.json"), r.report),
		writeJSON(filepath.Join(r.report.RunDir, "meta.json"), &r.meta))
	if runErr != nil {
		return runErr
	}
	return errors.Join(errs...)
}
