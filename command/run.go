package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/runner"
)

func (p *program) runCommand() *cli.Command {
	const name = "run"
	return &cli.Command{
		Name: name, Usage: "run a lab's workloads and report what they show", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: "LAB is a lab file, a folder that holds one, or - for standard input.\nThe run's files go to a folder of their own, runs/<lab>-<n>.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Value: "table", Usage: "table, json, jsonl or csv", EnvVars: envOf(name, "format")},
			&cli.StringFlag{
				Name: "runtime", Aliases: []string{"r"}, Value: "sim", EnvVars: envOf(name, "runtime"),
				Usage: "sim: event clock; docker: containers; netns: processes in namespaces of their own",
			},
			attachFlag(name),
			&cli.Float64Flag{Name: "dilation", Usage: "of a running lab: wall time per lab time; 0: what the lab says", EnvVars: envOf(name, "dilation")},
			&cli.Float64Flag{Name: "slower", Value: 1, Usage: "times what dilation auto chooses", EnvVars: envOf(name, "slower")},
			&cli.Uint64Flag{Name: "seed", Usage: "use this seed and not the lab's", EnvVars: envOf(name, "seed")},
			&cli.StringFlag{Name: "runs", Value: "runs", Usage: "folder that run folders go to", EnvVars: envOf(name, "runs")},
			&cli.StringSliceFlag{
				Name: "capture", EnvVars: envOf(name, "capture"),
				Usage: "write pcapng files of these ports: h0:0, leaf*:* (repeat, or separate by commas)",
			},
			&cli.StringFlag{Name: "capture-limit", Value: "1GiB", Usage: "bytes that all captures may have together", EnvVars: envOf(name, "capture-limit")},
			&cli.StringFlag{
				Name: "trace", EnvVars: envOf(name, "trace"),
				Usage: "none, or messages: record what mcastlab trace needs, whatever the lab says",
			},
			&cli.BoolFlag{Name: "check", Usage: "verify the invariants after every event (slow)", EnvVars: envOf(name, "check")},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress", EnvVars: envOf(name, "quiet")},
		},
		Action: p.runAction,
	}
}

func (p *program) runAction(c *cli.Context) error {
	format := c.String("format")
	switch format {
	case "table", "json", "jsonl", "csv":
	default:
		return usageError{fmt.Errorf("no format %q: use table, json, jsonl or csv", format)}
	}
	limit, err := lab.ParseSize(c.String("capture-limit"))
	if err != nil {
		return usageError{fmt.Errorf("capture-limit: %w", err)}
	}
	l, err := p.labToRun(c)
	if err != nil {
		return err
	}
	if len(l.Workloads) == 0 {
		return &lab.Error{File: c.Args().First(), Text: "there is nothing to run: add workloads"}
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
	report, err := p.runIn(c, l, int64(limit))
	if report != nil && (err == nil || len(report.Results) > 0) {
		if werr := p.writeReport(report, format); werr != nil {
			return errors.Join(err, werr)
		}
	}
	if err != nil {
		return err
	}
	if f := report.Failures(); len(f) > 0 {
		return failedError{errors.New(strings.Join(f, "\nmcastlab: "))}
	}
	if f := report.Fidelity; f.Verdict != "ok" {
		return fidelityError{fmt.Errorf("fidelity %s: %s", f.Verdict, f.Reason)}
	}
	return nil
}

// runIn runs the lab in the runtime asked for.
func (p *program) runIn(c *cli.Context, l *lab.Lab, limit int64) (*runner.Report, error) {
	var progress runner.Progress
	if !c.Bool("quiet") {
		progress = newProgress(p.errOut)
	}
	if c.String("runtime") != "sim" {
		return p.runLive(c, l, progress, limit)
	}
	return runner.Simulate(c.Context, l, runner.Options{
		Base: c.String("runs"), Captures: c.StringSlice("capture"), CaptureBytes: limit, Check: c.Bool("check"),
		Progress: progress, Say: p.say, Apps: runner.Apps{Bcast: p.hooks.bcast, Programs: p.hooks.programs},
	})
}

// say tells the user something at once.
func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.errOut, "mcastlab: "+format+"\n", args...)
}

func (p *program) writeReport(r *runner.Report, format string) error {
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
	if err := r.WriteTable(p.out); err != nil {
		return err
	}
	if r.CaptureCut > 0 {
		fmt.Fprintf(p.errOut, "captures: %d frames beyond the limit were left out\n", r.CaptureCut)
	}
	if r.EventsCut > 0 {
		fmt.Fprintf(p.errOut, "events: %d are missing, which nodes had no room for until they could be sent\n", r.EventsCut)
	}
	fmt.Fprintf(p.errOut, "run folder: %s\n", r.RunDir)
	return nil
}

func attachFlag(command string) cli.Flag {
	return &cli.StringSliceFlag{
		Name: "attach", EnvVars: envOf(command, "attach"),
		Usage: "HOST=INTERFACE: behind that interface of this machine is the external host (repeat, or separate by commas)",
	}
}
