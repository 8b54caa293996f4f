// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/sweep"
)

// runSweep runs all points of a lab's sweep.
func (p *program) runSweep(c *cli.Context, l *lab.Lab, points []lab.Point, format string) error {
	if err := p.refuseForSweep(c); err != nil {
		return err
	}
	if c.IsSet("seed") {
		for i := range l.Sweep.Over {
			if l.Sweep.Over[i].Key == "seed" {
				return usageError{errors.New("--seed has no effect: the lab's sweep is over seed")}
			}
		}
		l.Seed = c.Uint64("seed")
		for i := range points {
			points[i].Lab.Seed = l.Seed
		}
	}
	dir := c.String("resume")
	if dir != "" && !sweep.Folder(dir) {
		return usageError{fmt.Errorf("--resume %s: it is no folder of a sweep: name one that an interrupted run has left", dir)}
	}
	o := sweep.Options{
		Base: c.String("runs"), Resume: dir, Jobs: c.Int("jobs"),
		Run: runner.Options{
			Check:   c.Bool("check"),
			Workers: workersOf(c), NoSkip: c.Bool("no-skip"), Say: p.say, Env: apps.Env{Delivered: p.hooks.bcast.Delivered, Programs: p.hooks.programs},
		},
	}
	if !c.Bool("quiet") {
		o.Say = func(format string, args ...any) { fmt.Fprintf(p.errOut, format+"\n", args...) }
	}
	r, err := sweep.Run(c.Context, l, points, o)
	if err != nil {
		if c.Context.Err() != nil { // of an interrupt nothing more is said than that
			p.say("%v", err)
		}
		return err
	}
	if err := p.writeSweep(r, format, c.Bool("quiet")); err != nil {
		return err
	}
	if len(r.Failures) > 0 {
		return failedError{errors.New(strings.Join(r.Failures, "\n"))}
	}
	return nil
}

// refuseForSweep refuses what goes with one run only.
func (p *program) refuseForSweep(c *cli.Context) error {
	if r := c.String("runtime"); r != "sim" {
		return usageError{fmt.Errorf("a sweep runs in the simulator: leave --runtime %s out, or run one of its points, "+
			"which mcastlab run writes to the folder points", r)}
	}
	if err := p.refuse("is for a single run: run a point of the sweep, from the folder points of an earlier run", "capture", "trace", "acts", "baseline"); err != nil {
		return err
	}
	return checkJobs(c)
}

func (p *program) writeSweep(r *sweep.Result, format string, quiet bool) error {
	switch format {
	case "json":
		return writeJSON(p.out, r)
	case "jsonl":
		e := json.NewEncoder(p.out)
		for i := range r.Rows {
			if err := e.Encode(&r.Rows[i]); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return r.WriteCSV(p.out)
	}
	if err := r.WriteTable(p.out); err != nil {
		return err
	}
	if quiet {
		return nil
	}
	for _, name := range r.Plots {
		fmt.Fprintf(p.errOut, "plot: %s\n", name)
	}
	fmt.Fprintf(p.errOut, "sweep folder: %s\n", r.Dir)
	return nil
}

// unswept refuses a lab with a sweep where only a single lab makes sense.
func unswept(c *cli.Context, l *lab.Lab) error {
	if l.Sweep == nil {
		return nil
	}
	return usageError{fmt.Errorf("lab %s has a sweep, which only run can do, in the simulator: %s takes a lab without one, "+
		"such as a point that run has written to the folder points", l.Name, verbOf(c))}
}

// runFolder refuses, where a run's folder is expected, one that does not exist and that of a sweep.
func runFolder(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return usageError{fmt.Errorf("%s: no such run folder", dir)}
	}
	if !sweep.Folder(dir) {
		return nil
	}
	return usageError{fmt.Errorf("%s is the folder of a sweep, not of a run: run one of its points, such as %s", dir, filepath.Join(dir, "points", "001.mcl.yml"))}
}
