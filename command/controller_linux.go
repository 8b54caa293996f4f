// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/orchestrator"
)

func (p *program) controllerCommand() *cli.Command {
	return &cli.Command{
		Name: "controller", Usage: "show the controllers of a running lab", OnUsageError: onUsage,
		Subcommands: []*cli.Command{p.controllerLs()},
		Action: func(c *cli.Context) error {
			return usageError{fmt.Errorf("controller needs ls, not %q", c.Args().First())}
		},
	}
}

func (p *program) controllerLs() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list the controllers: leader, term, and position in the log", OnUsageError: onUsage,
		Description: "One that does not answer is gone: mcastlab deploy brings it back. A lab without controllers has none to list.",
		Flags:       listFlags("controller-ls"),
		Action: p.listing(func(c *cli.Context, d *orchestrator.Deployed, asJSON bool) error {
			all := d.Controllers(c.Context)
			if asJSON {
				return writeJSON(p.out, map[string]any{"schema": "mcastlab/controllers/v1", "lab": d.Lab.Name, "controllers": all})
			}
			return writeControllers(p.out, all)
		}),
	}
}

func writeControllers(out io.Writer, all []client.Status) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(out, "the lab has no controllers: the command line keeps its state")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tSTATE\tTERM\tAPPLIED\tLEADER\tADDRESS")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\n", s.ID, s.State, s.Term, s.Applied, s.Leader, s.Address)
	}
	return w.Flush()
}
