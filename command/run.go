// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
)

func (p *program) runCommand() *cli.Command {
	const name = "run"
	return &cli.Command{
		Name: name, Usage: "run the workloads of a lab and print the results", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: labText + "\nThe run's files go to a folder of their own, runs/<lab>-<n>. For example\n" +
			"  mcastlab run examples/quickstart.mcl.yml                 on the event clock, as a table\n" +
			"  mcastlab run examples/star.mcl.yml --format json -q      for a program to read\n" +
			"  sudo mcastlab run -r netns examples/star.mcl.yml         on real interfaces, as processes\n" +
			"  mcastlab run examples/sweep.mcl.yml --jobs 2             a sweep: all its points, with plots\n" +
			"docs/lab-file.md says what a lab file may have, docs/running.md how labs run outside the simulator.",
		Flags: []cli.Flag{
			exampleFlag(name),
			&cli.StringFlag{Name: "format", Value: "table", Usage: "table, json, jsonl or csv", EnvVars: envOf(name, "format")},
			&cli.StringFlag{
				Name: "runtime", Aliases: []string{"r"}, Value: "sim", EnvVars: envOf(name, "runtime"),
				Usage: "sim: event clock; docker: containers; netns: processes in network namespaces; hosts: containers on several servers",
			},
			attachFlag(name),
			&cli.Float64Flag{Name: "dilation", Usage: "wall time per lab time (running labs)", DefaultText: "what the lab says", EnvVars: envOf(name, "dilation")},
			&cli.Float64Flag{Name: "slower", Value: 1, Usage: "multiply the automatic dilation by this factor (running labs)", EnvVars: envOf(name, "slower")},
			&cli.Uint64Flag{Name: "seed", Usage: "seed of every random draw", DefaultText: "the lab's", EnvVars: envOf(name, "seed")},
			&cli.StringFlag{Name: "runs", Value: "runs", Usage: "directory for the run folders", EnvVars: envOf(name, "runs")},
			&cli.StringSliceFlag{
				Name: "capture", EnvVars: envOf(name, "capture"),
				Usage: "write pcapng files of these ports: h0:0, leaf*:* (repeat, or separate by commas)",
			},
			&cli.StringFlag{Name: "capture-limit", Value: "1GiB", Usage: "bytes that all captures may have together", EnvVars: envOf(name, "capture-limit")},
			&cli.StringFlag{
				Name: "trace", EnvVars: envOf(name, "trace"),
				Usage: "none, or messages: record what mcastlab trace needs", DefaultText: "what the lab says",
			},
			&cli.BoolFlag{
				Name: "baseline", EnvVars: envOf(name, "baseline"),
				Usage: "first run the lab without its faults, then compare: in a table, and in report.html (simulations)",
			},
			&cli.BoolFlag{
				Name: "check", Usage: "verify the invariants after every event (slow), then compare with a run without the checks", EnvVars: envOf(name, "check"),
			},
			&cli.BoolFlag{
				Name: "check-digest", EnvVars: envOf(name, "check-digest"),
				Usage: "compare every frame with the simulation of the same lab (running labs in virtual time)",
			},
			&cli.StringFlag{
				Name: "acts", EnvVars: envOf(name, "acts"), TakesFile: true,
				Usage: "replay the manual faults of another run, at the same instants: its acts.jsonl",
			},
			jobsFlag(name),
			workersFlag(name),
			&cli.BoolFlag{Name: "no-skip", Usage: "simulate every packet of long messages; the results are identical, only slower", EnvVars: envOf(name, "no-skip")},
			&cli.StringFlag{Name: "resume", EnvVars: envOf(name, "resume"), TakesFile: true, Usage: "continue an interrupted sweep: its folder"},
			&cli.BoolFlag{
				Name: "allow-programs", EnvVars: envOf(name, "allow-programs"),
				Usage: "allow the lab file to run programs of this server, as you (workloads of the kind command)",
			},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print the results and errors only", EnvVars: envOf(name, "quiet")},
		},
		Action: p.runAction,
	}
}

func (p *program) runAction(c *cli.Context) error {
	format := c.String("format")
	if err := cmp.Or(oneOf(c, "format", "table", "json", "jsonl", "csv"), p.refuseForRun(c), checkWorkers(c)); err != nil {
		return err
	}
	limit, err := lab.ParseSize(c.String("capture-limit"))
	if err != nil {
		return usageError{fmt.Errorf("capture-limit: %w", err)}
	}
	l, points, err := p.labToRun(c)
	if err != nil {
		return err
	}
	if len(l.Workloads) == 0 {
		return &lab.Error{File: c.Args().First(), Text: "there is nothing to run: add workloads"}
	}
	if l.Sweep != nil {
		return p.runSweep(c, l, points, format)
	}
	if err := p.refuse("is for a lab with a sweep, and this one has none", "jobs", "resume"); err != nil {
		return err
	}
	if c.IsSet("seed") {
		l.Seed = c.Uint64("seed")
	}
	switch v := c.String("trace"); v {
	case "":
	case "none", lab.TraceMessages:
		l.Trace = v
	default:
		return usageError{fmt.Errorf("no trace %q: use none or messages", v)}
	}
	if c.String("runtime") != "sim" && (l.Runtime.Clock == lab.ClockDilated || dilates(c)) {
		if err := p.refuse("is for runs in virtual time (runtime.clock: lockstep), and for simulations", "check-digest", "acts"); err != nil {
			return err
		}
	}
	if err := checkPorts(l, c.StringSlice("capture")); err != nil {
		return err
	}
	var acts []faults.Act
	if file := c.String("acts"); file != "" {
		var whole bool
		if acts, whole, err = runner.ReadActs(file, l); err != nil {
			return usageError{err}
		}
		if !whole {
			p.say("%s has no end with a checksum: if a run wrote it, an act may be missing", file)
		}
	}
	var without *runner.Report
	if c.Bool("baseline") {
		if without, err = p.runWithoutFaults(c, l, int64(limit)); err != nil {
			return err
		}
	}
	report, err := p.runIn(c, l, int64(limit), acts)
	if report == nil {
		return err
	}
	p.pageOf(report, without)
	return p.conclude(c, report, without, err)
}

// conclude prints what a run has measured, and returns its error or else why its exit code is not 0.
func (p *program) conclude(c *cli.Context, report, without *runner.Report, err error) error {
	if err == nil || len(report.Results) > 0 {
		if werr := p.writeReport(report, without, c.String("format"), c.Bool("quiet")); werr != nil {
			return errors.Join(err, werr)
		}
	}
	if err != nil {
		return err
	}
	if f := report.Failures(); len(f) > 0 {
		return failedError{errors.New(strings.Join(f, "\n"))}
	}
	if f := report.Fidelity; f.Verdict != "ok" {
		return fidelityError{fmt.Errorf("fidelity %s: %s", f.Verdict, f.Reason)}
	}
	return nil
}

// dilates reports whether the command line asks for a run that follows the wall clock.
func dilates(c *cli.Context) bool { return c.IsSet("dilation") || c.IsSet("slower") }

// refuseForRun refuses flags of the command line that have no effect on this run.
func (p *program) refuseForRun(c *cli.Context) (err error) {
	if c.String("runtime") == "sim" {
		err = p.refuse("is for running labs: it goes with --runtime docker or netns", "dilation", "slower", "attach", "check-digest")
	} else {
		err = p.refuse("is for simulations: it goes with --runtime sim", "check", "workers", "no-skip", "baseline")
	}
	if err == nil && c.Bool("baseline") {
		err = p.refuse("has faults of another run: leave --baseline out", "acts")
		if f := c.String("format"); err == nil && f != "table" {
			err = usageError{fmt.Errorf("--baseline prints a table: leave --format %s out, and read summary.json in the folders of the two runs", f)}
		}
	}
	if err == nil && !c.IsSet("capture") {
		err = p.refuse("goes with --capture", "capture-limit")
	}
	return err
}

// checkPorts finds ports to capture that the lab has not.
func checkPorts(l *lab.Lab, patterns []string) error {
	if len(patterns) == 0 {
		return nil
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return err
	}
	if _, err := runner.MatchPorts(g, patterns); err != nil {
		return usageError{err}
	}
	return nil
}

// runIn runs the lab in the runtime asked for.
func (p *program) runIn(c *cli.Context, l *lab.Lab, limit int64, acts []faults.Act) (*runner.Report, error) {
	var progress runner.Progress
	if !c.Bool("quiet") {
		progress = newProgress(p.errOut)
	}
	if c.String("runtime") != "sim" {
		return p.runLive(c, l, progress, limit, acts)
	}
	return runner.Simulate(c.Context, l, runner.Options{
		Base: c.String("runs"), Captures: c.StringSlice("capture"), CaptureBytes: limit, Check: c.Bool("check"),
		Progress: progress, Say: p.say, Env: apps.Env{Delivered: p.hooks.bcast.Delivered, Programs: p.hooks.programs}, Acts: acts,
		Workers: workersOf(c), NoSkip: c.Bool("no-skip"),
	})
}

// runWithoutFaults runs a lab as if it had no faults, for a comparison. What it expects is of the run with them.
func (p *program) runWithoutFaults(c *cli.Context, l *lab.Lab, limit int64) (*runner.Report, error) {
	if len(l.Faults) == 0 {
		return nil, usageError{errors.New("--baseline compares with a run without faults, and the lab has none: add faults, or leave it out")}
	}
	base := *l
	base.Faults, base.Expect = nil, nil
	r, err := p.runIn(c, &base, limit, nil)
	if err != nil {
		return nil, fmt.Errorf("without the faults: %w", err)
	}
	p.pageOf(r, nil)
	return r, nil
}

// say tells the user something at once.
func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.errOut, "mcastlab: "+format+"\n", args...)
}

// writeReport prints a run and, as a table, how it compares with the run without faults, unless that is nil.
func (p *program) writeReport(r, without *runner.Report, format string, quiet bool) error {
	switch format {
	case "json":
		return writeJSON(p.out, r)
	case "jsonl":
		e := json.NewEncoder(p.out)
		for _, row := range r.Results {
			if err := e.Encode(row); err != nil {
				return err
			}
		}
		return nil
	case "csv":
		return r.WriteCSV(p.out)
	}
	if err := r.WriteTableFor(p.out, terminalColumns(p.out)); err != nil {
		return err
	}
	if without != nil {
		if err := r.WriteBaseline(p.out, without); err != nil {
			return err
		}
	}
	if r.CaptureCut > 0 {
		fmt.Fprintf(p.errOut, "captures: %d frames beyond the limit were left out\n", r.CaptureCut)
	}
	if r.EventsCut > 0 {
		fmt.Fprintf(p.errOut, "events: %d are missing: nodes had no room to keep them until they could be sent\n", r.EventsCut)
	}
	if quiet {
		return nil
	}
	for _, name := range r.Plots {
		fmt.Fprintf(p.errOut, "plot: %s\n", name)
	}
	fmt.Fprintf(p.errOut, "run folder: %s\n", r.RunDir)
	return nil
}

func workersFlag(command string) cli.Flag {
	return &cli.IntFlag{
		Name: "workers", EnvVars: envOf(command, "workers"),
		Usage: "threads of a simulation; the results are the same for any number; 0: all cores if that is faster",
	}
}

// workersOf returns what a run's options say of workers.
func workersOf(c *cli.Context) int {
	if n := c.Int("workers"); n > 0 {
		return n
	}
	return runner.WorkersAuto
}

func checkWorkers(c *cli.Context) error {
	if n := c.Int("workers"); n < 0 || n > runner.WorkersMax {
		return usageError{fmt.Errorf("--workers %d: use 0 to %d", n, runner.WorkersMax)}
	}
	return nil
}

func attachFlag(command string) cli.Flag {
	return &cli.StringSliceFlag{
		Name: "attach", EnvVars: envOf(command, "attach"),
		Usage: "HOST=INTERFACE, or HOST=SERVER/INTERFACE in a lab over several: behind it is the external host (repeat, or separate by commas)",
	}
}
