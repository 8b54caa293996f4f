package command

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/orchestrator"
)

// innerError carries the exit code of a program that ran in a node.
type innerError struct{ code int }

// Error says what the code is.
func (e innerError) Error() string { return fmt.Sprintf("the program ended with exit code %d", e.code) }

// ExitCode returns the program's exit code.
func (e innerError) ExitCode() int { return e.code }

func (p *program) execCommand() *cli.Command {
	const name = execVerb
	return &cli.Command{
		Name: name, Usage: "run a program of this host in the network namespaces of nodes", ArgsUsage: "-- PROGRAM [ARGUMENT...]", OnUsageError: onUsage,
		Description: "mcastlab exec --node 'leaf*' -- tcpdump -c 10 -i p0\nWhat follows -- is the program's. The exit code is the largest of the program's.",
		Flags: []cli.Flag{
			labFlag(),
			&cli.StringFlag{Name: "node", Aliases: []string{"n"}, Usage: "name or pattern of nodes", EnvVars: envOf(name, "node")},
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
			code, err := d.Exec(c.Context, c.String("node"), c.Args().Slice(), p.out, p.errOut)
			if err != nil {
				return err
			}
			if code != 0 {
				return innerError{code}
			}
			return d.Close()
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
		Name: name, Usage: "check whether this host can run labs", OnUsageError: onUsage,
		Description: "The exit code is 4 if something is missing; what to do about it is said beside it.",
		Flags:       []cli.Flag{&cli.StringFlag{Name: "format", Value: "table", Usage: "table or json", EnvVars: envOf(name, "format")}},
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
