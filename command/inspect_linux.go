// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/mcastlab/mcastlab/internal/counters"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/orchestrator"
)

func (p *program) inspectCommand() *cli.Command {
	const name = "inspect"
	return &cli.Command{
		Name: name, Aliases: []string{"ins"}, Usage: "show the nodes and groups of a running lab", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: "Without LAB it lists the labs that are up.",
		Subcommands: []*cli.Command{p.groupShow("group")},
		Flags:       []cli.Flag{&cli.StringFlag{Name: "format", Value: "table", Usage: "table, json or prometheus", EnvVars: envOf(name, "format")}},
		Action: func(c *cli.Context) error {
			if err := oneOf(c, "format", "table", "json", "prometheus"); err != nil {
				return err
			}
			if c.String("format") == "prometheus" && !c.Args().Present() {
				return usageError{errors.New("format prometheus is for one lab: name it")}
			}
			if !c.Args().Present() {
				return p.inspectLabs(c)
			}
			name, err := p.labName(c)
			if err != nil {
				return err
			}
			return p.inspectLab(c, name)
		},
	}
}

func (p *program) inspectLabs(c *cli.Context) error {
	labs, err := orchestrator.List(c.Context, engines())
	if err != nil {
		return err
	}
	if c.String("format") == "json" {
		return writeJSON(p.out, map[string]any{"schema": "mcastlab/labs/v1", "labs": labs})
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LAB\tRUNTIME\tSTATE\tNODES\tSINCE")
	for _, l := range labs {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", l.Name, l.Runtime, l.State, l.Nodes, l.Since)
	}
	return w.Flush()
}

func (p *program) inspectLab(c *cli.Context, name string) error {
	e, err := orchestrator.EngineOf(name, engines())
	if err != nil {
		return err
	}
	d, err := orchestrator.Attach(name, orchestrator.Options{Engine: e})
	if err != nil {
		return err
	}
	if c.String("format") == "prometheus" {
		if err := d.Metrics(c.Context, p.out); err != nil {
			return err
		}
		return d.Close()
	}
	states := d.Look(c.Context)
	if c.String("format") == "json" {
		all := map[string]any{"schema": "mcastlab/inspect/v1", "lab": name, "runtime": e.Name(), "nodes": states}
		if t := d.Access.Trunks(c.Context); len(t) > 0 {
			all["trunks"] = t
		}
		err = writeJSON(p.out, all)
	} else {
		err = errors.Join(writeNodes(p.out, states), writeTrunks(p.out, d.Access.Trunks(c.Context)))
	}
	if err != nil {
		return err
	}
	return d.Close()
}

// writeNodes writes one line a node. Groups, queue pairs and memory regions are what runs make:
// between runs there are none.
func writeNodes(out io.Writer, states []counters.Node) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NODE\tKIND\tPORTS\tSENT\tRECEIVED\tDROPPED\tKERNEL-DROPS\tGROUPS\tQPS\tMRS")
	for _, s := range states {
		var sent, received, dropped, kernel uint64
		for _, p := range s.Ports {
			sent, received, kernel = sent+p.Sent, received+p.Received, kernel+p.KernelDrops
		}
		for _, n := range s.Drops { // a sum
			dropped += n
		}
		var held counters.Held
		if s.Held != nil {
			held = *s.Held
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", s.Node, s.Kind, len(s.Ports), sent, received, dropped, kernel, len(s.Groups), held.QPs, held.MRs)
	}
	return w.Flush()
}

// writeTrunks writes one line for each server's end of links in user space to another, if the lab has such.
func writeTrunks(out io.Writer, all []orchestrator.Trunk) error {
	if len(all) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSERVER\tTO\tLINKS\tSENT\tBYTES\tBATCHES\tSTALLS\tRECEIVED\tSTATE")
	for _, t := range all {
		state := t.Error
		if state == "" {
			state = "connected"
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", t.Server, t.To, t.Links, t.SentFrames, t.SentBytes, t.SentBatches, t.Stalls, t.ReceivedFrames, state)
	}
	return w.Flush()
}
