// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/traces/explain"
)

func (p *program) traceCommand() *cli.Command {
	const name = "trace"
	return &cli.Command{
		Name: name, Usage: "list the messages of a run, and explain where their time went", ArgsUsage: "RUN", OnUsageError: onUsage,
		Description: "RUN is the folder of a run that recorded a trace (trace: messages in the lab file, or run --trace messages).\n" +
			"Without more it lists the messages: the iterations of broadcasts and the like, of other programs each work request.\n" +
			"  mcastlab trace RUN --slowest 10            those that took longest\n" +
			"  mcastlab trace RUN --message 42            the story of one: hops, losses, NAKs, repeats, pauses, completions\n" +
			"  mcastlab trace RUN --explain               where the time went, by scheme and size\n" +
			"  mcastlab trace RUN --explain --message 42  and of one message, with its critical path\n" +
			"  mcastlab trace RUN --perfetto -o FILE      all of it for https://ui.perfetto.dev\n" +
			"docs/traces.md says what each word means.",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "message", Aliases: []string{"m"}, Usage: "number of a message, as the list has it", DefaultText: "all", EnvVars: envOf(name, "message")},
			&cli.IntFlag{Name: "slowest", Usage: "list this many messages, the slowest first; from 1 on", DefaultText: "all, as sent", EnvVars: envOf(name, "slowest")},
			&cli.BoolFlag{
				Name: "explain", Aliases: []string{"e"}, EnvVars: envOf(name, "explain"),
				Usage: "split times into serialisation, queueing, propagation, pause, retransmission, rnr, host, straggler",
			},
			&cli.BoolFlag{Name: "perfetto", Usage: "write a trace that ui.perfetto.dev and chrome://tracing open", EnvVars: envOf(name, "perfetto")},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "with --perfetto: the file; default: standard output", EnvVars: envOf(name, "output")},
			formatFlag(name),
		},
		Action: p.traceAction,
	}
}

// textResult is a result of the command that can be printed as text.
type textResult interface{ WriteText(w io.Writer) error }

func (p *program) traceAction(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return usageError{fmt.Errorf("trace takes one run folder, not %d", c.Args().Len())}
	}
	if err := oneOf(c, "format", "table", "json"); err != nil {
		return err
	}
	format := c.String("format")
	switch {
	case c.Bool("perfetto") && (c.IsSet("message") || c.Bool("explain") || c.IsSet("format")):
		return usageError{errors.New("--perfetto exports all messages, in its own format: leave --message, --explain and --format out")}
	case c.IsSet("slowest") && (c.IsSet("message") || c.Bool("explain") || c.Bool("perfetto")):
		return usageError{errors.New("--slowest is for the list: leave --message, --explain and --perfetto out")}
	case c.IsSet("slowest") && c.Int("slowest") < 1:
		return usageError{fmt.Errorf("--slowest %d: use 1 or more", c.Int("slowest"))}
	case c.IsSet("output") && !c.Bool("perfetto"):
		return usageError{errors.New("-o goes with --perfetto")}
	}
	dir := c.Args().First()
	if err := runFolder(dir); err != nil {
		return err
	}
	f, err := runner.OpenTrace(dir)
	if err != nil {
		return err
	}
	t, err := explain.Read(bufio.NewReaderSize(f, 1<<20))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read trace of %s: %w", dir, err)
	}
	if err := p.showTrace(c, t, dir, format); err != nil {
		return err
	}
	if t.Incomplete != "" { // what is there is shown, and not taken for all
		return fmt.Errorf("read trace of %s: %s", dir, t.Incomplete)
	}
	p.unsealed(dir)
	return nil
}

// showTrace writes what is asked for.
func (p *program) showTrace(c *cli.Context, t *explain.Trace, dir, format string) error {
	if c.Bool("perfetto") {
		return p.writePerfetto(t, c.String("output"))
	}
	v, err := traceView(c, t, dir)
	if err != nil {
		return err
	}
	if format == "json" {
		return writeJSON(p.out, v)
	}
	return v.WriteText(p.out)
}

// traceView returns what is asked for.
func traceView(c *cli.Context, t *explain.Trace, dir string) (textResult, error) {
	if !c.IsSet("message") {
		if c.Bool("explain") {
			return t.Table(), nil
		}
		if c.IsSet("slowest") {
			return t.List().Slowest(c.Int("slowest")), nil
		}
		return t.List(), nil
	}
	id := c.Int("message")
	m := t.Message(id)
	switch {
	case m == nil && len(t.Messages) == 0:
		return nil, fmt.Errorf("%s has no message %d: no message was recorded", dir, id)
	case m == nil:
		return nil, fmt.Errorf("%s has no message %d: it has 1 to %d (mcastlab trace %s lists them)", dir, id, len(t.Messages), dir)
	case !c.Bool("explain"):
		return t.Story(m), nil
	}
	one := t.One(m)
	if one == nil {
		return nil, fmt.Errorf("message %d reached no receiver: see mcastlab trace %s --message %d", id, dir, id)
	}
	return one, nil
}

// writePerfetto writes the trace into a file, or to standard output.
func (p *program) writePerfetto(t *explain.Trace, name string) error {
	if name == "" || name == "-" {
		return t.WritePerfetto(p.out)
	}
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	if err := errors.Join(t.WritePerfetto(f), f.Close()); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	fmt.Fprintf(p.errOut, "%s: open it at https://ui.perfetto.dev (Open trace file), or in chrome://tracing\n", name)
	return nil
}
