// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/programs"
)

// innerError carries the exit code of a program that ran in a node.
type innerError struct{ code int }

// Error returns a message with the code.
func (e innerError) Error() string { return fmt.Sprintf("the program ended with exit code %d", e.code) }

// ExitCode returns the program's exit code.
func (e innerError) ExitCode() int { return e.code }

func (p *program) execCommand() *cli.Command {
	const name = execVerb
	return &cli.Command{
		Name: name, Usage: "run a program of this server on nodes", ArgsUsage: "-- PROGRAM [ARGUMENT...]", OnUsageError: onUsage,
		Description: "mcastlab exec --node h0 -- ib_write_bw\nmcastlab exec --root --node 'leaf*' -- tcpdump -c 10 -i p0\n" +
			"What follows -- is the program's. It is in the node's network namespace, and has the NIC of a host by libibverbs\n" +
			"(make verbs). It runs as the user that called sudo. The exit code is the largest of the program's.\n" +
			"Programs send in DSCP 0, of a lossy class, unless they ask for another: ib_write_bw --tclass=104.",
		Flags: []cli.Flag{
			labFlag(),
			&cli.StringFlag{Name: "node", Aliases: []string{"n"}, Usage: "nodes: names and patterns", EnvVars: envOf(name, "node")},
			clockFlag(name, clockOfExec), rootFlag(name), verboseFlag(name),
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usageError{fmt.Errorf("exec needs a program after its flags: mcastlab exec --node h0 -- ip link")}
			}
			if err := required(c, "node"); err != nil {
				return err
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := anyNode(d, c.String("node")); err != nil {
				return err
			}
			library, err := programs.Library()
			if err != nil {
				return err
			}
			p.saySettings(c, programs.ProgramSettings())
			return p.execute(c, d, c.String("node"), programs.NewExecution(c.Args().Slice(), library, false))
		},
	}
}

func clockFlag(command, otherwise string) cli.Flag {
	return &cli.StringFlag{
		Name: "clock", Usage: "clock of the program: lab time (lab) or time of this server (wall)", DefaultText: otherwise, EnvVars: envOf(command, "clock"),
	}
}

const clockOfExec = "lab at the hosts of dilated labs"

func rootFlag(command string) cli.Flag {
	return &cli.BoolFlag{Name: "root", Usage: "run the program as root, not as the user that called sudo", EnvVars: envOf(command, "root")}
}

func verboseFlag(command string) cli.Flag {
	return &cli.BoolFlag{
		Name: "verbose", Aliases: []string{"v"}, EnvVars: envOf(command, "verbose"),
		Usage: "print the environment set for the program, and the class of its packets",
	}
}

// saySettings says with -v what a program is given that its user has not set.
func (p *program) saySettings(c *cli.Context, settings []string) {
	if !c.Bool("verbose") {
		return
	}
	for _, s := range settings {
		p.say("set for the program, unless you set it: %s", s)
	}
	p.say("programs send in DSCP 0, whose class is lossy unless the lab says otherwise, and ask for another: ib_write_bw --tclass=104, UCX_IB_TRAFFIC_CLASS=104")
}

// execute runs a program on nodes.
func (p *program) execute(c *cli.Context, d *orchestrator.Deployed, pattern string, x programs.Execution) error {
	x.Pattern = pattern
	if !c.IsSet("clock") || c.String("clock") == programs.ClockLab {
		p.sayLabTime(d, &x)
	}
	return p.ended(c, d, x, func(ctx context.Context, x programs.Execution) (int, error) { return programs.Exec(ctx, d, x) })
}

// sayLabTime prints the meaning of lab time to a user who waits for a program.
func (p *program) sayLabTime(d *orchestrator.Deployed, x *programs.Execution) {
	for i := range d.Graph.Nodes {
		name := d.Graph.Nodes[i].Name
		if ok, err := path.Match(x.Pattern, name); err != nil || !ok {
			continue
		}
		if dilation, shown := programs.LabTime(d, name, x); shown && dilation > 1 {
			p.say("programs see the lab's time, of which a second takes %v s; --clock wall shows them this server's", dilation)
			return
		}
	}
}

// ended runs programs, and returns how they have ended.
func (p *program) ended(c *cli.Context, d *orchestrator.Deployed, x programs.Execution, run func(context.Context, programs.Execution) (int, error)) error {
	if c.IsSet("clock") {
		if err := oneOf(c, "clock", programs.ClockLab, programs.ClockWall); err != nil {
			return err
		}
		x.Clock = c.String("clock")
	}
	x.Root, x.In, x.Out, x.ErrOut = c.Bool("root"), p.in, fileOf(p.out), fileOf(p.errOut)
	code, err := run(c.Context, x)
	if err != nil {
		return err
	}
	if code != 0 {
		return innerError{code}
	}
	return d.Close()
}

// fileOf returns the file behind standard output or standard error, so that a program has it itself.
func fileOf(w io.Writer) io.Writer {
	if o, ok := w.(*outlet); ok {
		return o.file
	}
	return w
}

func (p *program) shellCommand() *cli.Command {
	const name = "shell"
	return &cli.Command{
		Name: name, Usage: "open a shell on a node", ArgsUsage: "NODE", OnUsageError: onUsage,
		Description: "The shell is that of $SHELL; exec says what programs on a node have.",
		Flags:       []cli.Flag{labFlag(), clockFlag(name, clockOfExec), rootFlag(name), verboseFlag(name)},
		Action: func(c *cli.Context) error {
			if err := oneArg(c, "the name of one node"); err != nil {
				return err
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			node := c.Args().First()
			if err := hasNode(d, node); err != nil {
				return err
			}
			library, err := programs.Library()
			if err != nil {
				return err
			}
			if why := programs.WithoutNIC(d, node, library); why != nil {
				p.say("programs of this shell have no NIC: %v", why)
			}
			p.saySettings(c, programs.ProgramSettings())
			shell := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
			return p.execute(c, d, node, programs.NewExecution([]string{shell}, library, false))
		},
	}
}

// guardCommand is the process that a program on a node belongs to.
func (p *program) guardCommand() *cli.Command {
	return &cli.Command{
		Name: programs.GuardVerb, Usage: "look after a program on a node; started by exec", Hidden: true, OnUsageError: onUsage,
		Action: func(*cli.Context) error {
			code := programs.Guard(os.NewFile(3, "tell"), os.NewFile(4, "answer"))
			os.Exit(code)
			return nil
		},
	}
}

// callerCommand is the process that runs a program for a caller on another server.
func (p *program) callerCommand() *cli.Command {
	return &cli.Command{
		Name: programs.CallerVerb, Usage: "run a program on a node for another server; started by a share", Hidden: true, OnUsageError: onUsage,
		Action: func(c *cli.Context) error {
			return programs.Call(c.Context, os.NewFile(3, "tell"), os.NewFile(4, "answer"))
		},
	}
}

// anyNode returns an error unless the pattern fits the name of a node or a controller.
func anyNode(d *orchestrator.Deployed, pattern string) error {
	names := slices.Clone(d.Lab.Replicas())
	for i := range d.Graph.Nodes {
		names = append(names, d.Graph.Nodes[i].Name)
	}
	for _, n := range names {
		switch ok, err := path.Match(pattern, n); {
		case err != nil:
			return usageError{fmt.Errorf("exec at %q: %w", pattern, err)}
		case ok:
			return nil
		}
	}
	return usageError{fmt.Errorf("exec at %q: lab %s has no node of that name: mcastlab inspect %s lists them", pattern, d.Lab.Name, d.Lab.Name)}
}

func (p *program) checkCommand() *cli.Command {
	const name = "check"
	return &cli.Command{
		Name: name, Usage: "check whether this server can run labs", OnUsageError: onUsage,
		Description: "The exit code is 4 if something is missing; what to do about it is said beside it.",
		Flags:       []cli.Flag{formatFlag(name)},
		Action: func(c *cli.Context) error {
			if err := cmp.Or(oneOf(c, "format", "table", "json"), noArgs(c)); err != nil {
				return err
			}
			all := orchestrator.Check(c.Context, engines())
			if c.String("format") == "json" {
				if err := writeJSON(p.out, map[string]any{"schema": "mcastlab/check/v1", "findings": all}); err != nil {
					return err
				}
				return orchestrator.Failed(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
			for _, f := range all {
				mark, remedy := "[ok]", ""
				if !f.OK {
					mark, remedy = "[MISSING]", f.Remedy
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", mark, f.What, f.Got, remedy)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			return orchestrator.Failed(all)
		},
	}
}
