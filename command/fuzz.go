// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/search"
)

func (p *program) fuzzCommand() *cli.Command {
	const name = "fuzz"
	return &cli.Command{
		Name: name, Usage: "search fault timelines for one that breaks a promise", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: "Each seed draws faults and runs the lab's workloads, made small, on the event clock with every invariant checked: first with the\n" +
			"faults, when workloads may fail but nothing may be wrong, then without, when everything must be right. What fails is made as small\n" +
			"as it can and written to a lab file.\n" +
			"With --labs each seed draws a whole lab, which is run twice: packet by packet with every invariant checked, and as run has it.",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "seeds", Value: 200, Usage: "number of timelines", EnvVars: envOf(name, "seeds")},
			&cli.Uint64Flag{Name: "labs", Usage: "draw this many random labs, instead of fault timelines of one lab", DefaultText: "none", EnvVars: envOf(name, "labs")},
			&cli.Uint64Flag{Name: "from", Usage: "the first seed", DefaultText: "0", EnvVars: envOf(name, "from")},
			&cli.StringFlag{Name: "out", Value: "runs", Usage: "directory for labs that fail", EnvVars: envOf(name, "out")},
			&cli.BoolFlag{Name: "replay", Usage: "apply the faults of the lab in both phases", EnvVars: envOf(name, "replay")},
			formatFlag(name),
		},
		Action: p.fuzzAction,
	}
}

func (p *program) fuzzAction(c *cli.Context) error {
	if err := oneOf(c, "format", "table", "json"); err != nil {
		return err
	}
	if c.IsSet("labs") {
		return p.fuzzLabs(c)
	}
	if c.Bool("replay") {
		if err := p.refuse("is for a search: --replay runs the lab's own faults once", "seeds", "from", "out", "format"); err != nil {
			return err
		}
	}
	l, err := p.labArg(c)
	if err != nil {
		return err
	}
	if err := unswept(c, l); err != nil {
		return err
	}
	if c.Bool("replay") {
		out, err := search.Try(c.Context, l, nil)
		if err != nil {
			return err
		}
		if out.Violation != nil {
			return failedError{fmt.Errorf("lab %s: %w", l.Name, out.Violation)}
		}
		fmt.Fprintf(p.out, "%s breaks no promise (%d packet-hops)\n", l.Name, out.Hops)
		return nil
	}
	res, err := search.Run(c.Context, l, search.Options{From: c.Uint64("from"), Seeds: c.Uint64("seeds")})
	if c.Context.Err() != nil {
		p.came("seeds", res.Seeds, c.Uint64("seeds"), res.From, res.Findings)
	}
	if werr := writeFindings(c, res.Findings); werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	if c.String("format") == "json" {
		err = writeJSON(p.out, map[string]any{"schema": "mcastlab/fuzz/v1", "lab": l.Name, "result": res})
	} else {
		p.writeSearch(res)
	}
	if err == nil && len(res.Findings) > 0 {
		err = failedError{fmt.Errorf("%d seeds broke a promise", len(res.Findings))}
	}
	return err
}

// came reports how far a search had run when a signal ended it.
func (p *program) came(what string, done, of, from uint64, found []search.Finding) {
	p.say("%d of %d %s from seed %d on were run, %d broke a promise; continue with --from %d", done, of, what, from, len(found), from+done)
	for i := range found {
		p.say("seed %d: %s: %s", found[i].Seed, found[i].Class, found[i].Text)
	}
}

func writeFindings(c *cli.Context, all []search.Finding) error {
	for i := range all {
		if _, err := search.Write(c.String("out"), &all[i]); err != nil {
			return err
		}
	}
	return nil
}

// fuzzLabs draws labs and runs them.
func (p *program) fuzzLabs(c *cli.Context) error {
	if c.Args().Present() || c.Bool("replay") || c.IsSet("seeds") {
		return usageError{fmt.Errorf("fuzz --labs draws its labs itself: give no lab, --seeds or --replay")}
	}
	res, err := search.Labs(c.Context, search.Options{From: c.Uint64("from"), Seeds: c.Uint64("labs")})
	if c.Context.Err() != nil {
		p.came("labs", res.Labs, c.Uint64("labs"), res.From, res.Findings)
	}
	if werr := writeFindings(c, res.Findings); werr != nil {
		return werr
	}
	if err != nil {
		return err
	}
	if c.String("format") == "json" {
		err = writeJSON(p.out, map[string]any{"schema": "mcastlab/fuzz-labs/v1", "result": res})
	} else {
		fmt.Fprintf(p.out, "%d labs from seed %d on: %d with faults, %d ended with an error, %d that their faults kept from ending, %d packet-hops, %d broke a promise\n",
			res.Labs, res.From, res.Faulty, res.Ended, res.Long, res.Hops, len(res.Findings))
		for _, f := range res.Findings {
			fmt.Fprintf(p.out, "seed %d: %s: %s\n  replay: mcastlab %s\n  drawn again: mcastlab fuzz --labs 1 --from %d\n",
				f.Seed, f.Class, f.Text, f.Replay(f.File), f.Seed)
		}
	}
	if err == nil && len(res.Findings) > 0 {
		err = failedError{fmt.Errorf("%d labs broke a promise", len(res.Findings))}
	}
	return err
}

func (p *program) writeSearch(res *search.Result) {
	fmt.Fprintf(p.out, "%d seeds from %d on: %d with kinds that overlap, %d in which a workload ended with an error, %d packet-hops, %d broke a promise\n",
		res.Seeds, res.From, res.Overlap, res.Failed, res.Hops, len(res.Findings))
	for _, f := range res.Findings {
		fmt.Fprintf(p.out, "seed %d: %s: %s\n  %d faults of %d are left: %s\n  replay: mcastlab fuzz --replay %s\n",
			f.Seed, f.Class, f.Text, f.Left, f.Faults, f.File, f.File)
	}
}
