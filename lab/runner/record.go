// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/traces"
)

// Record is the folder of a run that is under way, whatever clock it runs on.
type Record struct {
	Report *Report
	Folder *Folder
	Meta   Meta
	Events *traces.Events
	Trace  *traces.Lines // trace.jsonl; nil: the lab asks for none
	names  []string      // of the lab's nodes, for the trace
	times  *times        // nil: the lab asks for none
	met    *meeting      // nil: the run has no use for it
	slow   []slowRow     // rows with an outlier, so far
	lock   *os.File      // on the folder; nil: there is none

	closes []func() error
}

// Begin makes the folder of a run and opens its files.
func Begin(base string, l *lab.Lab, runtimeName string) (*Record, error) {
	folder, err := makeFolder(base, l.Name)
	if err != nil {
		return nil, err
	}
	dir := folder.Path()
	r := &Record{Folder: folder, Meta: newMeta(l.Name, runtimeName, l.Seed)}
	r.Report = &Report{
		Schema: ReportSchema, Lab: l.Name, Runtime: runtimeName, Seed: l.Seed, RunDir: dir, Fidelity: virtualClock(),
		Results: []apps.Row{}, Expect: []Expectation{}, folder: folder,
	}
	r.lock = hold(dir)
	r.Meta.Locked = r.lock != nil
	if err := r.open(l); err != nil {
		for _, c := range r.closes {
			_ = c() // the first error is the one that counts
		}
		r.Meta.Status, r.Meta.Error, r.Meta.Locked = StatusError, err.Error(), false
		_ = folder.writeJSON("meta.json", &r.Meta) // likewise
		if r.lock != nil {
			_ = r.lock.Close() // likewise
		}
		return nil, err
	}
	r.flushing()
	return r, nil
}

// open writes the first files of a run and opens those that it adds to.
func (r *Record) open(l *lab.Lab) (err error) {
	if err := r.Folder.WriteFile(LabFile, checksum.Comment(l.Resolved())); err != nil {
		return err
	}
	if err := r.Folder.writeJSON("meta.json", &r.Meta); err != nil {
		return err
	}
	if r.times, err = newTimes(l); err != nil {
		return err
	}
	files := &eventFiles{folder: r.Folder}
	if err := files.open(); err != nil {
		return err
	}
	r.Events = traces.NewEvents(files.f)
	r.Events.Rotate = files.rotate
	r.closes = append(r.closes, r.Events.Close, files.close)
	if l.Trace == lab.TraceMessages {
		return r.beginTrace()
	}
	return nil
}

// flushEvery is the interval after which output of a run becomes readable while it is running.
const flushEvery = time.Second

// flushing has the files of the run written as far as they are, until it ends.
func (r *Record) flushing() {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(flushEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			r.Events.Flush()
			if r.Trace != nil {
				r.Trace.Flush()
			}
		}
	}()
	r.closes = append([]func() error{func() error {
		close(stop)
		<-ended
		return nil
	}}, r.closes...)
}

// OnClose has f called when the run ends, before the summary is written.
func (r *Record) OnClose(f func() error) { r.closes = append(r.closes, f) }

// Measure runs one workload and enters its results into the report, also those of an interrupted
// run. run gets the function that takes the ranks' records.
func (r *Record) Measure(w Workload, now func() vtime.Time, run func(emit func(rank int, record []byte)) error) error {
	rows, records, err := r.Rows(w, now, run)
	r.Report.Results = append(r.Report.Results, rows...)
	if t, tells := w.App.(apps.Teller); tells {
		text, terr := t.Lines(records)
		if text != "" {
			r.Report.Texts = append(r.Report.Texts, text)
		}
		if err == nil {
			err = terr
		}
	}
	if p, prints := w.App.(apps.Printer); prints && len(rows) > 0 {
		text, perr := p.Print(w.Params, rows)
		r.Report.Texts = append(r.Report.Texts, text)
		if err == nil {
			err = perr
		}
	}
	return err
}

// Rows runs one workload and returns its results, which the report does not have yet, and the records
// of the ranks.
func (r *Record) Rows(w Workload, now func() vtime.Time, run func(emit func(rank int, record []byte)) error) ([]apps.Row, [][][]byte, error) {
	records := make([][][]byte, len(w.Hosts))
	r.Events.Note(now(), "workload", map[string]any{"workload": w.Label, "ranks": len(w.Hosts)})
	r.traceWorkload(now(), w.Label)
	err := run(func(i int, record []byte) { records[i] = append(records[i], record) })
	rows, rerr := w.App.Reduce(w.Params, records)
	if merr := r.met.enter(&w, rows, records, now()); rerr == nil {
		rerr = merr
	}
	if serr := r.enterSlow(&w, rows, records); rerr == nil {
		rerr = serr
	}
	for _, row := range rows {
		r.Events.Note(now(), "result", row)
	}
	if err == nil {
		err = rerr
	}
	if terr := r.times.enter(&w, records); err == nil {
		err = terr
	}
	if terr := r.traceMessages(&w, records); err == nil {
		err = terr
	}
	return rows, records, err
}

// Counters writes the nodes' counters of the run.
func (r *Record) Counters(all []counters.Node) error {
	r.Report.Counters, r.Report.Nodes = counters.Sum(all), all
	b, err := countersText(all)
	if err != nil {
		return fmt.Errorf("write counters: %w", err)
	}
	return r.Folder.WriteFile("counters.json", b)
}

// Finish closes all files and writes the outcome of the run into them. It returns the run's error, or
// else the first error of closing.
func (r *Record) Finish(ctx context.Context, l *lab.Lab, runErr error) error {
	var errs []error
	for _, c := range r.closes {
		errs = append(errs, c())
	}
	errs = append(errs, r.endActs())
	r.Meta.EventsNotIn = r.Events.Cut()
	if r.Trace != nil {
		r.Meta.TraceNotIn = r.Trace.Cut()
	}
	r.Meta.MemoryBytes = memoryBytes()
	r.Meta.WallSeconds = time.Since(r.Meta.Started).Seconds()
	r.Report.Outliers = r.outliers()
	if runErr == nil {
		r.Report.Expect = Evaluate(l.Expect, r.Report.Quantity)
		r.Report.remark(l)
		errs = append(errs, r.plots(l))
	}
	errs = append(errs, r.times.write(r.Folder), r.Folder.writeJSON("summary.json", r.Report))
	written := errors.Join(errs...)
	switch {
	case ctx.Err() != nil:
		r.Meta.Status = StatusInterrupted
	case runErr != nil:
		r.Meta.Status, r.Meta.Error = StatusError, runErr.Error()
	case written != nil: // what was measured is not all there
		r.Meta.Status, r.Meta.Error = StatusError, written.Error()
	case len(r.Report.Failures()) > 0:
		r.Meta.Status = StatusFailed
	default:
		r.Meta.Status = StatusOK
	}
	r.Meta.Locked = false
	written = errors.Join(written, r.Folder.writeJSON("meta.json", &r.Meta))
	if r.lock != nil {
		written = errors.Join(written, r.lock.Close())
	}
	if runErr != nil {
		return runErr
	}
	return written
}
