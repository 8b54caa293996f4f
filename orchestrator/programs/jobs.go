// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

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
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// programsDir is the folder in a run's folder that has what programs of this server have written, by workload.
const programsDir = "programs"

// Causes that end programs because of others.
var (
	errOthers   = errors.New("another rank had failed")
	errNoneLeft = errors.New("all have ended")
)

// programJob is a job with where its programs run and write.
type programJob struct {
	*orchestrator.ProgramJob
	hosts []string // by rank
	dir   string   // in the run's folder, of what they write
}

// PrepareJob prepares a workload whose ranks are programs of this server. It is a ProgramPreparer. Exit codes are
// results, and what keeps programs from being started is an error.
func PrepareJob(job *orchestrator.ProgramJob) (run func(context.Context) error, err error) {
	j, x, err := newProgramJob(job)
	if err != nil {
		return nil, err
	}
	if x.tagged && !x.inTurns {
		return func(ctx context.Context) error { return j.mpirun(ctx, x) }, nil
	}
	return func(ctx context.Context) error { return j.each(ctx, x) }, nil
}

// newProgramJob makes the folder of a job's output, and returns what is to be executed.
func newProgramJob(job *orchestrator.ProgramJob) (j *programJob, x Execution, err error) {
	p := &job.Program
	j = &programJob{ProgramJob: job, dir: filepath.Join(programsDir, job.Workload.Label)}
	for _, h := range job.Workload.Hosts {
		j.hosts = append(j.hosts, job.Deployed.Graph.Nodes[h].Name)
	}
	if err := job.Folder.MkdirAll(j.dir); err != nil {
		return nil, x, fmt.Errorf("make a folder for what programs write: %w", err)
	}
	library, err := Library()
	x = NewExecution(p.Argv, library, p.MPI)
	x.tagged = p.MPI
	if job.InTurns {
		x.inTurns, x.Clock = true, ClockLab
	}
	return j, x, err
}

// each runs the program at each rank by itself. When one fails, the others have programGrace to end.
func (j *programJob) each(ctx context.Context, x Execution) error {
	found, err := j.Deployed.Options.Engine.Find(ctx, j.Deployed.Lab.Name)
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
	all, err := prepareAll(j.Deployed, at, &x)
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
			if j.Ended != nil {
				j.Ended(errs[i] != nil || exits[i].Failed())
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
	x = apps.Exit{Rank: i, Host: p.node, From: j.Now()}
	x.Code, err = p.run(ctx, nil, out, errOut)
	x.To = j.Now()
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
	e := apps.Exit{Rank: -1, Host: j.hosts[0], From: j.Now()}
	e.Code, err = MPIRun(ctx, j.Deployed, j.hosts, x)
	e.To = j.Now()
	if errors.Is(context.Cause(ctx), orchestrator.ErrTimeout) && err != nil { // which daemon was the first to end says nothing
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

// judge records why a program was ended, if it was, and the last output of one that failed.
func (j *programJob) judge(ctx context.Context, x *apps.Exit, errOut *outputFile) {
	if why := context.Cause(ctx); errors.Is(why, orchestrator.ErrTimeout) || errors.Is(why, errOthers) || errors.Is(why, orchestrator.ErrStuck) {
		x.Why = why.Error()
		if errors.Is(why, orchestrator.ErrTimeout) {
			x.Timeout = j.Program.Timeout
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
	j.Emit(rank, b)
	return nil
}

// keep opens a file for what a program writes.
func (j *programJob) keep(name string) (*outputFile, error) {
	f, err := j.Folder.Create(filepath.Join(j.dir, name))
	if err != nil {
		return nil, fmt.Errorf("keep what a program writes: %w", err)
	}
	return &outputFile{f: f, left: outputMax}, nil
}
