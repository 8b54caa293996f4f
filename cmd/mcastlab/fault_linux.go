package main

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/control"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/vtime"
)

func (p *program) faultCommand() *cli.Command {
	return &cli.Command{
		Name: "fault", Usage: "make things go wrong in a lab that is up", OnUsageError: onUsage,
		Subcommands: []*cli.Command{p.faultAdd(), p.faultLs(), p.faultReset()},
		Action: func(c *cli.Context) error {
			return usageError{fmt.Errorf("fault needs add, ls or reset, not %q", c.Args().First())}
		},
	}
}

func labFlag() cli.Flag {
	return &cli.StringFlag{Name: "lab", Aliases: []string{"l"}, Usage: "name of the lab; may be left out if just one is up", EnvVars: []string{"MCASTLAB_LAB_NAME"}}
}

func (p *program) faultAdd() *cli.Command {
	const name = "fault-add"
	return &cli.Command{
		Name: "add", Usage: "add loss, corrupt, duplicate, reorder or pause", ArgsUsage: "KIND", OnUsageError: onUsage,
		Description: "Times are lab time.",
		Flags: []cli.Flag{
			labFlag(),
			&cli.StringFlag{Name: "link", Usage: "pattern of links: a:1-b:2, agg*-core*", EnvVars: envOf(name, "link")},
			&cli.Float64Flag{Name: "rate", Usage: "probability per frame", EnvVars: envOf(name, "rate")},
			&cli.StringFlag{Name: "delay", Usage: "how much later at the most a frame comes that is held back or doubled", EnvVars: envOf(name, "delay")},
			&cli.StringFlag{Name: "node", Usage: "host that sends pauses", EnvVars: envOf(name, "node")},
			&cli.IntFlag{Name: "priority", Value: 3, Usage: "class that is paused", EnvVars: envOf(name, "priority")},
			&cli.StringFlag{Name: "for", Usage: "for how long; without it until fault reset", EnvVars: envOf(name, "for")},
		},
		Action: p.faultAddAction,
	}
}

func (p *program) faultAddAction(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return usageError{fmt.Errorf("fault add takes one kind after its flags: loss, corrupt, duplicate, reorder or pause")}
	}
	d, err := p.attach(c)
	if err != nil {
		return err
	}
	f, err := faultFromFlags(c, d)
	if err != nil {
		return err
	}
	now, err := d.Now(c.Context)
	if err != nil {
		return err
	}
	if err := d.AddFaults(c.Context, []*control.Fault{f}, now); err != nil {
		return err
	}
	fmt.Fprintln(p.out, f.Id)
	return d.Close()
}

// faultFromFlags reads a fault through the lab file's own rules, so that both mean the
// same and are checked alike.
func faultFromFlags(c *cli.Context, d *orchestrator.Deployed) (*control.Fault, error) {
	kind := c.Args().First()
	var in []string
	if kind == "pause" {
		in = append(in, fmt.Sprintf("node: %q", c.String("node")), fmt.Sprintf("priority: %d", c.Int("priority")))
	} else {
		in = append(in, "rate: "+strconv.FormatFloat(c.Float64("rate"), 'g', -1, 64))
		if c.IsSet("link") {
			in = append(in, fmt.Sprintf("links: %q", c.String("link")))
		}
		if c.IsSet("delay") {
			in = append(in, fmt.Sprintf("delay: %q", c.String("delay")))
		}
	}
	entry := fmt.Sprintf("%q: {%s}", kind, strings.Join(in, ", "))
	if c.IsSet("for") {
		entry += fmt.Sprintf(", for: %q", c.String("for"))
	}
	f, err := d.Lab.ParseFault("{" + entry + "}")
	if err != nil {
		return nil, usageError{fmt.Errorf("fault add %s: %w", kind, err)}
	}
	return orchestrator.FaultOf(f, kind+"-"+strconv.FormatInt(time.Now().UnixMilli(), 36)), nil
}

func (p *program) faultLs() *cli.Command {
	const name = "fault-ls"
	return &cli.Command{
		Name: "ls", Usage: "list the faults that are applied and what they hit", OnUsageError: onUsage,
		Flags: []cli.Flag{labFlag(), &cli.StringFlag{Name: "format", Value: "table", Usage: "table or json", EnvVars: envOf(name, "format")}},
		Action: func(c *cli.Context) error {
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			all, err := d.Faults(c.Context)
			if err != nil {
				return err
			}
			if c.String("format") == "json" {
				err = writeJSON(p.out, map[string]any{"schema": "mcastlab/faults/v1", "faults": all})
			} else {
				err = p.writeFaults(all)
			}
			if err != nil {
				return err
			}
			return d.Close()
		},
	}
}

func (p *program) writeFaults(all []*control.Fault) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tKIND\tWHERE\tRATE\tFROM\tUNTIL\tSEEN\tHIT\tAPPLIED-AT")
	for _, f := range all {
		where, rate, until := f.Links, strconv.FormatFloat(f.Rate, 'g', 4, 64), "reset"
		if f.Kind == "pause" {
			where, rate = fmt.Sprintf("%s priority %d", f.Node, f.Priority), "-"
		}
		if f.Until != 0 {
			until = vtime.Time(f.Until).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%v\t%s\t%d\t%d\t%s\n", f.Id, f.Kind, where, rate, vtime.Time(f.From), until, f.Seen, f.Hit, strings.Join(f.Applied, ","))
	}
	return w.Flush()
}

func (p *program) faultReset() *cli.Command {
	return &cli.Command{
		Name: "reset", Usage: "take all faults away, or those whose id begins so", ArgsUsage: "[ID]", OnUsageError: onUsage,
		Flags: []cli.Flag{labFlag()},
		Action: func(c *cli.Context) error {
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := d.ResetFaults(c.Context, c.Args().First()); err != nil {
				return err
			}
			return d.Close()
		},
	}
}

// attach connects to the lab that --lab names, or to the only one that is up.
func (p *program) attach(c *cli.Context) (*orchestrator.Deployed, error) {
	name := c.String("lab")
	if name == "" {
		labs, err := orchestrator.List(c.Context, engines())
		if err != nil {
			return nil, err
		}
		if len(labs) != 1 {
			return nil, usageError{fmt.Errorf("%d labs are up: say which with --lab", len(labs))}
		}
		name = labs[0].Name
	}
	e, err := orchestrator.EngineOf(name, engines())
	if err != nil {
		return nil, err
	}
	return orchestrator.Attach(name, orchestrator.Options{Engine: e})
}
