//go:build linux

package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// programsDir is the folder in a run's folder that has what programs of this machine have written, by workload.
const programsDir = "programs"

// What ends programs before they have ended themselves.
var (
	errTimeout  = errors.New("its timeout was over")
	errOthers   = errors.New("another rank had failed")
	errNoneLeft = errors.New("all have ended")
	errStuck    = errors.New("nothing that it waited for could happen any more")
)

// programJob is a workload whose ranks are programs of this machine.
type programJob struct {
	d      *Deployed
	now    func() vtime.Time
	p      apps.HostProgram
	hosts  []string       // by rank
	folder *runner.Folder // of the run
	dir    string         // in it, of what they write
	emit   func(rank int, record []byte)
	over   func(failed bool) // called, if not nil, when the program of a rank has ended
}

// hostPrograms runs a program of this machine at each rank of a workload. Their exit codes are results, and
// what keeps them from being started is an error.
func (r *dilatedRun) hostPrograms(ctx context.Context, w runner.Workload, p apps.HostProgram, emit func(int, []byte)) error {
	defer r.showProgress(ctx)()
	if err := r.step(ctx, w.Label); err != nil {
		return err
	}
	j, x, err := r.d.newProgramJob(r.Folder, w, p)
	if err != nil {
		return err
	}
	j.now, j.emit = r.clock.now, func(rank int, record []byte) {
		if ctx.Err() == nil { // how programs of an interrupted run have ended says nothing of them
			emit(rank, record)
		}
	}
	timed, over := context.WithTimeoutCause(ctx, time.Duration(p.Timeout/1000), errTimeout)
	defer over()
	if p.MPI {
		err = j.mpirun(timed, x)
	} else {
		err = j.each(timed, x)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// newProgramJob returns a workload whose ranks are programs of this machine, and what is to be executed.
func (d *Deployed) newProgramJob(run *runner.Folder, w runner.Workload, p apps.HostProgram) (j *programJob, x Execution, err error) {
	j = &programJob{d: d, p: p, folder: run, dir: filepath.Join(programsDir, w.Label)}
	for _, h := range w.Hosts {
		j.hosts = append(j.hosts, d.Graph.Nodes[h].Name)
	}
	if err := run.MkdirAll(j.dir); err != nil {
		return nil, x, fmt.Errorf("make a folder for what programs write: %w", err)
	}
	library, err := Library()
	x = NewExecution(p.Argv, library, p.MPI)
	x.tagged = p.MPI
	return j, x, err
}

// each runs the program at each rank by itself. When one fails, the others have programGrace to end.
func (j *programJob) each(ctx context.Context, x Execution) error {
	found, err := j.d.o.Engine.Find(ctx, j.d.Lab.Name)
	if err != nil {
		return err
	}
	var at []engine.Running
	for i, h := range j.hosts {
		for _, n := range found {
			if n.Name == h && n.PID > 0 {
				at = append(at, n)
			}
		}
		if len(at) == i {
			return fmt.Errorf("run %s: the node %s of rank %d does not run", x.Argv[0], h, i)
		}
	}
	all, err := j.d.programs(at, &x)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(errNoneLeft)
	var running sync.WaitGroup
	exits, errs := make([]apps.Exit, len(all)), make([]error, len(all))
	for i, p := range all {
		p.start.Env = append(p.start.Env, fmt.Sprintf("MCASTLAB_RANK=%d", i), fmt.Sprintf("MCASTLAB_RANKS=%d", len(all)), "MCASTLAB_HOSTS="+strings.Join(j.hosts, ","))
		if x.inTurns {
			p.start.Turns = true
			p.start.Rank = uint32(i)
			p.start.Env = append(p.start.Env, fmt.Sprintf("MCASTLAB_TURNS=%d", i))
		}
		running.Go(func() {
			exits[i], errs[i] = j.one(ctx, i, p)
			if errs[i] != nil || exits[i].Failed() {
				time.AfterFunc(programGrace, func() { stop(errOthers) })
			}
			if j.over != nil {
				j.over(errs[i] != nil || exits[i].Failed())
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range exits {
		if err := j.record(i, &exits[i]); err != nil {
			return err
		}
	}
	return nil
}

// one runs the program of a rank.
func (j *programJob) one(ctx context.Context, i int, p *program) (x apps.Exit, err error) {
	out, err := j.keep(fmt.Sprintf("%d.out", i))
	if err != nil {
		return x, err
	}
	errOut, err := j.keep(fmt.Sprintf("%d.err", i))
	if err != nil {
		return x, errors.Join(err, out.close())
	}
	x = apps.Exit{Rank: i, Host: p.node, From: j.now()}
	x.Code, err = p.run(ctx, nil, out, errOut)
	x.To = j.now()
	j.judge(ctx, &x, errOut)
	return x, errors.Join(err, out.close(), errOut.close())
}

// mpirun runs the program by Open MPI, which has one exit code for all ranks.
func (j *programJob) mpirun(ctx context.Context, x Execution) error {
	split := newRankOutput(len(j.hosts), j.keep)
	errOut, err := split.file(mpirunErr) // what mpirun says itself, by either way
	if err != nil {
		return err
	}
	x.Out, x.ErrOut = split, errOut
	e := apps.Exit{Rank: -1, Host: j.hosts[0], From: j.now()}
	e.Code, err = j.d.MPIRun(ctx, j.hosts, x)
	e.To = j.now()
	if errors.Is(context.Cause(ctx), errTimeout) && err != nil { // which daemon was the first to end says nothing
		e.Code, err = signalBase+int(syscall.SIGTERM), nil
	}
	j.judge(ctx, &e, errOut)
	for i := range j.hosts {
		if k := split.files[fmt.Sprintf("%d.err", i)]; e.Failed() && k != nil { // which says more than mpirun
			e.Last = fmt.Sprintf("rank %d: %s", i, k.lastLine())
			break
		}
	}
	if err = errors.Join(err, split.close()); err != nil {
		return err
	}
	return j.record(0, &e)
}

// judge says of a program that has ended why it was ended, if it was, and of one that has failed what it said last.
func (j *programJob) judge(ctx context.Context, x *apps.Exit, errOut *outputFile) {
	if why := context.Cause(ctx); errors.Is(why, errTimeout) || errors.Is(why, errOthers) || errors.Is(why, errStuck) {
		x.Why = why.Error()
		if errors.Is(why, errTimeout) {
			x.Timeout = j.p.Timeout
		}
	}
	if x.Failed() {
		x.Last = errOut.lastLine()
	}
}

// record hands on how the program of a rank has ended.
func (j *programJob) record(rank int, x *apps.Exit) error {
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Errorf("write how rank %d has ended: %w", rank, err)
	}
	j.emit(rank, b)
	return nil
}

// keep opens a file for what a program writes.
func (j *programJob) keep(name string) (*outputFile, error) {
	f, err := j.folder.Create(filepath.Join(j.dir, name))
	if err != nil {
		return nil, fmt.Errorf("keep what a program writes: %w", err)
	}
	return &outputFile{f: f, left: outputMax}, nil
}
