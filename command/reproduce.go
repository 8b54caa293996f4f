// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/lab/batch"
	"github.com/mcastlab/mcastlab/lab/reproduce"
)

func (p *program) reproduceCommand() *cli.Command {
	const name = "reproduce"
	return &cli.Command{
		Name: name, Usage: "compare the papers' results with the measurements of this version", ArgsUsage: "[RESULT|FIGURE]...", OnUsageError: onUsage,
		Description: "Runs the labs of examples/papers on the event clock and writes a page with what each paper says, the parameters, bands and verdicts,\n" +
			"and the papers' figures with their points. What the folder holds of an earlier run of the same program is not run again,\n" +
			"so an interrupted reproduction continues where it stopped. For example\n" +
			"  mcastlab reproduce                    all results whose labs take seconds\n" +
			"  mcastlab reproduce R-C9 cyclic-fig-17 one result, and the one with that figure\n" +
			"  mcastlab reproduce --full -o results  the papers' scale: forty minutes of a core\n" +
			"  mcastlab reproduce --list             what there is",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "list", Usage: "list the results and figures, and run nothing", EnvVars: envOf(name, "list")},
			&cli.BoolFlag{Name: "quick", Usage: "skip labs that take more than a few seconds (default)", EnvVars: envOf(name, "quick")},
			&cli.BoolFlag{Name: "full", Usage: "run the slow labs, too", EnvVars: envOf(name, "full")},
			&cli.StringFlag{
				Name: "out", Aliases: []string{"o"}, Value: "reproduction", EnvVars: envOf(name, "out"),
				Usage: "directory for the page, its figures and the measurements",
			},
			jobsFlag(name),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print no progress", EnvVars: envOf(name, "quiet")},
		},
		Action: p.reproduceAction,
	}
}

func (p *program) reproduceAction(c *cli.Context) error {
	all, err := reproduce.Load()
	if err != nil {
		return err
	}
	if c.Bool("quick") && c.Bool("full") {
		return usageError{errors.New("reproduce takes --quick or --full, not both")}
	}
	if err := checkJobs(c); err != nil {
		return err
	}
	chosen, err := chooseResults(all, c.Args().Slice())
	if err != nil {
		return err
	}
	if c.Bool("list") {
		p.listResults(chosen)
		return nil
	}
	say := func(format string, args ...any) { fmt.Fprintf(p.errOut, format+"\n", args...) }
	if c.Bool("quiet") {
		say = nil
	}
	dir := c.String("out")
	begun, busy := time.Now(), processorTime()
	measured, runErr := reproduce.Run(c.Context, chosen, reproduce.Options{Dir: dir, Full: c.Bool("full"), Jobs: c.Int("jobs"), Say: say})
	if len(measured) == 0 && runErr != nil {
		return runErr
	}
	if say != nil {
		say("%d labs took %.0f s, and %.0f s of processor time", len(measured), time.Since(begun).Seconds(), (processorTime() - busy).Seconds())
	}
	outcomes := reproduce.Judge(chosen, measured)
	page, err := reproduce.Write(dir, outcomes, measured)
	if err = errors.Join(runErr, err); err != nil {
		return err
	}
	p.writeOutcomes(outcomes, page)
	return amiss(outcomes, measured.Failures())
}

func jobsFlag(command string) cli.Flag {
	return &cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Value: 1, Usage: "labs that run at the same time", EnvVars: envOf(command, "jobs")}
}

func checkJobs(c *cli.Context) error {
	if jobs := c.Int("jobs"); jobs < 1 || jobs > batch.JobsMax {
		return usageError{fmt.Errorf("--jobs %d: use 1 to %d", jobs, batch.JobsMax)}
	}
	return nil
}

// chooseResults returns the results that the arguments name, by id or by a figure of theirs, in the order of the
// papers; without arguments all.
func chooseResults(all []*reproduce.Result, args []string) ([]*reproduce.Result, error) {
	if len(args) == 0 {
		return all, nil
	}
	named := map[*reproduce.Result]bool{}
	for _, arg := range args {
		i := slices.IndexFunc(all, func(r *reproduce.Result) bool {
			return strings.EqualFold(r.ID, arg) || slices.ContainsFunc(r.Figures, func(f reproduce.Figure) bool { return f.Name == arg })
		})
		if i < 0 {
			return nil, usageError{fmt.Errorf("no result or figure is called %q%s: see mcastlab reproduce --list", arg, setting.Suggest(arg, resultNames(all)))}
		}
		named[all[i]] = true
	}
	return slices.DeleteFunc(all, func(r *reproduce.Result) bool { return !named[r] }), nil
}

// resultNames returns the ids of results and the names of their figures.
func resultNames(all []*reproduce.Result) (names []string) {
	for _, r := range all {
		names = append(names, r.ID)
		for i := range r.Figures {
			names = append(names, r.Figures[i].Name)
		}
	}
	return names
}

func (p *program) listResults(all []*reproduce.Result) {
	slow := reproduce.Slow()
	for _, r := range all {
		var figures, labs []string
		for i := range r.Figures {
			figures = append(figures, r.Figures[i].Name)
		}
		for _, name := range r.Labs() {
			if takes := slow[name]; takes > 0 {
				name = fmt.Sprintf("%s (%g s)", name, takes)
			}
			labs = append(labs, name)
		}
		fmt.Fprintf(p.out, "%-6s %s: %s, %s\n", r.ID, r.Title, r.Paper.Name, r.Source)
		if len(labs) > 0 {
			fmt.Fprintf(p.out, "       labs: %s\n", strings.Join(labs, ", "))
		}
		if len(figures) > 0 {
			fmt.Fprintf(p.out, "       figures: %s\n", strings.Join(figures, ", "))
		}
	}
}

func (p *program) writeOutcomes(all []reproduce.Outcome, page string) {
	for i := range all {
		fmt.Fprintf(p.out, "%-6s %-20s %s\n", all[i].ID, all[i].Verdict, all[i].Title)
	}
	c := reproduce.Tally(all)
	fmt.Fprintf(p.out, "%s\n%s\n", c.Sentence(), page)
}

// amiss returns an error if a line is out of its band and its result does not say why, or if a lab failed.
func amiss(all []reproduce.Outcome, failures []string) error {
	for i := range all {
		if all[i].Verdict == reproduce.Amiss {
			failures = append(failures, all[i].ID+" is out of band without a reason")
		}
	}
	if len(failures) > 0 {
		return failedError{errors.New(strings.Join(failures, "; "))}
	}
	return nil
}
