// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Bounds of a run of a drawn lab. A lab whose faults keep it from ending within that many packet-hops
// is run without them, and must end then.
const (
	labHopsMax  = 150_000
	labLooksMax = 15               // of some ten thousand events each
	calmTimes   = 20               // as much may a step of a lab without faults take
	labWallMax  = 10 * time.Minute // of a machine that may have much else to do
	labBytesMax = 2 << 30
)

// LabsResult is the result of running random labs.
type LabsResult struct {
	From     uint64    `json:"from"`
	Labs     uint64    `json:"labs"`
	Faulty   uint64    `json:"faulty"` // of those, with faults
	Ended    uint64    `json:"ended"`  // that ended with an error, as they may
	Long     uint64    `json:"long"`   // that only their faults kept from ending
	Hops     uint64    `json:"packet_hops"`
	Findings []Finding `json:"findings"`
}

// Labs draws labs by seed and runs each of them twice with every invariant checked, once on one
// processor. It is a finding if a lab panics, ends with wrong data, hangs, or fails to end
// without a fault that explains it, or if its two runs differ in a bit.
func Labs(ctx context.Context, o Options) (*LabsResult, error) {
	res := &LabsResult{From: o.From, Findings: []Finding{}}
	dir, err := os.MkdirTemp("", "mcastlab-labs-")
	if err != nil {
		return res, fmt.Errorf("folder for runs: %w", err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder for temporary files
	for seed := o.From; seed < o.From+o.Seeds && len(res.Findings) < findingsMax; seed++ {
		if err := ctx.Err(); err != nil { // likewise
			return res, err
		}
		l, s, err := drawLab(seed)
		if err != nil {
			return res, err
		}
		out, err := TryLab(ctx, l, dir)
		if err != nil {
			return res, err
		}
		res.add(l, out)
		if v := out.Violation; v != nil {
			f := Finding{Drawn: true, Seed: seed, Class: v.Class, Text: v.Text, Faults: len(l.Faults), Lab: l}
			if f.Lab, err = shrinkLab(s, l, v, func(l *lab.Lab) (LabOutcome, error) { return TryLab(ctx, l, dir) }); err != nil {
				return res, err
			}
			f.Left = len(f.Lab.Faults)
			res.Findings = append(res.Findings, f)
			if v.Class == classHang {
				return res, nil // hung programs still hang, beside later ones
			}
		}
		if o.Seen != nil {
			o.Seen(seed)
		}
	}
	return res, nil
}

func (res *LabsResult) add(l *lab.Lab, out LabOutcome) {
	res.Labs++
	res.Hops += out.Hops
	if len(l.Faults) > 0 {
		res.Faulty++
	}
	if out.Ended != "" {
		res.Ended++
	}
	if out.Long {
		res.Long++
	}
}

// LabOutcome is the outcome of the two runs of a drawn lab.
type LabOutcome struct {
	Violation *Violation // nil: none
	Hops      uint64     // of one run
	Ended     string     // the error that it ended with, as it may
	Long      bool       // only its faults kept it from ending
}

// Classes of violations, beside those that name an invariant.
const (
	classPanic    = "panic"
	classBytes    = "wrong bytes"
	classRefused  = "refused after validation"
	classDeadlock = "deadlock"
	classEndless  = "endless"
	classHang     = "hang"
	classMemory   = "memory"
	classDigest   = "nondeterminism"
)

// TryLab runs a lab twice, with run folders in dir: packet by packet with every invariant checked, and then as it is run
// without that, on one processor.
func TryLab(ctx context.Context, l *lab.Lab, dir string) (out LabOutcome, err error) {
	budgets := 1
	if len(l.Faults) == 0 {
		budgets = calmTimes
	}
	first := runLab(ctx, l, dir, runtime.NumCPU(), budgets, true)
	if ctx.Err() != nil {
		return out, ctx.Err()
	}
	out.Hops, out.Ended, out.Violation = first.hops, first.text, first.judge(l)
	if first.long {
		out.Long = true
		last := first
		if len(l.Faults) > 0 {
			calm := *l
			calm.Faults = nil
			last = runLab(ctx, &calm, dir, 1, calmTimes, true)
		}
		if last.long {
			out.Violation = &Violation{classEndless, fmt.Sprintf("more than %d packet-hops in one step without its faults", calmTimes*labHopsMax)}
		}
		return out, ctx.Err()
	}
	if out.Violation != nil {
		return out, nil
	}
	second := runLab(ctx, l, dir, 1, 2*budgets, false) // another check handles it, and it ends nevertheless
	if first.digest != second.digest || first.text != second.text {
		out.Violation = &Violation{classDigest, fmt.Sprintf("packet by packet %s %s, on one processor with what repeats left out %s %s",
			first.digest, first.text, second.digest, second.text)}
	}
	return out, ctx.Err()
}

// labRun is the outcome of one run of a lab.
type labRun struct {
	err    error
	text   string // of the error
	digest string
	hops   uint64
	lost   uint64 // to faults on links
	long   bool   // it was stopped: it had more packet-hops or events than there may be
	hung   bool   // it did not answer
	fat    bool   // it took too much memory
	panics string
	report *runner.Report
}

// runLab runs a lab as the command does, on the given processors, within the given budgets; checked: packet by packet, with every
// invariant checked after every event.
func runLab(ctx context.Context, l *lab.Lab, dir string, processors, budgets int, checked bool) *labRun {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	base, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return &labRun{err: err}
	}
	defer os.RemoveAll(base) //nolint:errcheck // so is this
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := &labWatch{cancel: cancel, budgets: budgets}
	done := make(chan *labRun, 1)
	go func() {
		r := &labRun{}
		defer func() {
			if p := recover(); p != nil {
				r.panics = fmt.Sprintf("%v at %s", p, place(debug.Stack()))
			}
			done <- r
		}()
		r.report, r.err = runner.Simulate(ctx, l, runner.Options{Base: base, Check: checked, NoSkip: checked, Progress: watch})
	}()
	select {
	case r := <-done:
		r.long, r.fat = watch.long, watch.fat
		if r.report != nil {
			r.digest = r.report.Digest
			t, err := readTally(base)
			if r.hops, r.lost = t.Hops, t.Lost; r.err == nil {
				r.err = err
			}
		}
		if r.err != nil {
			r.text = strings.ReplaceAll(r.err.Error(), base, "")
		}
		return r
	case <-time.After(labWallMax):
		return &labRun{hung: true}
	}
}

// labWatch stops a run that takes too much: with faults all of it, without them a step of it, since any
// number of steps of large messages ends, however long they take together.
type labWatch struct {
	cancel    func()
	doing     string // the step
	before    uint64 // packet-hops when it began
	looks     int
	budgets   int
	long, fat bool
}

// Update implements runner.Progress.
func (w *labWatch) Update(s runner.ProgressState) {
	if w.budgets > 1 && s.Doing != w.doing {
		w.doing, w.before, w.looks = s.Doing, s.PacketHops, 0
	}
	if w.looks++; w.looks > w.budgets*labLooksMax || s.PacketHops-w.before > uint64(w.budgets)*labHopsMax {
		w.long = true
		w.cancel()
	}
	if heapBytes() > labBytesMax {
		runtime.GC() // left by earlier labs, not by this one
		if heapBytes() > labBytesMax {
			w.fat = true
			w.cancel()
		}
	}
}

// heapBytes returns the bytes of all objects that are in use or not yet collected.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Done implements runner.Progress.
func (w *labWatch) Done() {}

var frameOfModule = regexp.MustCompile(`\S*mcastlab/((?:[a-z0-9]+/)*[a-z0-9_]+\.go:\d+)`)

// place returns where in the module a panic came from.
func place(stack []byte) string {
	for _, m := range frameOfModule.FindAllSubmatch(stack, -1) {
		if p := string(m[1]); !strings.HasPrefix(p, "search/") {
			return p
		}
	}
	return "an unknown place"
}

// judge returns the promise that a run has broken, or nil.
func (r *labRun) judge(l *lab.Lab) *Violation {
	var labErr *lab.Error
	switch {
	case r.panics != "":
		return &Violation{classPanic + " " + r.panics[strings.LastIndex(r.panics, " at ")+4:], r.panics}
	case r.hung:
		return &Violation{classHang, fmt.Sprintf("no answer within %v", labWallMax)}
	case r.fat:
		return &Violation{classMemory, fmt.Sprintf("more than %d bytes", labBytesMax)}
	case r.long:
		return nil
	case errors.Is(r.err, sim.ErrInvariant):
		return &Violation{"invariant " + invariantNumber.FindString(r.text), r.text}
	case errors.As(r.err, &labErr), r.report == nil:
		return &Violation{classRefused, r.text}
	case errors.Is(r.err, rankhost.ErrDeadlock) && r.explained(l):
		return nil
	case errors.Is(r.err, rankhost.ErrDeadlock):
		return &Violation{classDeadlock, r.text}
	}
	for _, f := range r.report.Failures() {
		if !strings.HasSuffix(f, noReplica) {
			return &Violation{classBytes, f}
		}
	}
	return nil
}

// noReplica ends the error of a run whose storage has lost every replica to faults, which is allowed.
const noReplica = "no replica is left to be read back"
