// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

func (p *program) validateCommand() *cli.Command {
	const name = "validate"
	return &cli.Command{
		Name: name, Usage: "check a lab file", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: labText + "\nWhat is wrong is said with line and column, and the exit code is 3. A ring in which PFC can deadlock is a warning.",
		Flags: []cli.Flag{
			exampleFlag(name),
			&cli.BoolFlag{Name: "resolved", Usage: "print the lab with every default written out", EnvVars: envOf(name, "resolved")},
		},
		Action: func(c *cli.Context) error {
			l, points, err := p.labToRun(c)
			if err != nil {
				return err
			}
			g, err := labspec.Graph(l)
			if err != nil {
				return err
			}
			tables := g.Routes()
			if err := g.CheckRoutes(tables); err != nil {
				return err
			}
			if l.Switches.PFC.Enabled && l.Topology.Custom == nil { // labToRun has warned of others
				if err := g.CheckDeadlock(tables); err != nil { // it may be what the lab is for
					fmt.Fprintf(p.errOut, "warning: %v\n", err)
				}
			}
			if c.Bool("resolved") {
				if l.Sweep != nil { // defaults may depend on the values of a point
					return usageError{errors.New("--resolved is for a lab without a sweep: run writes each point to a lab file, in the folder points")}
				}
				_, err = p.out.Write(l.Resolved())
				return err
			}
			swept := ""
			if l.Sweep != nil {
				swept = fmt.Sprintf(", a sweep of %s and %s", setting.Counted(len(points), "point"), setting.Counted(len(points)*l.Sweep.Repeats, "run"))
			}
			for _, w := range l.Cautions() {
				fmt.Fprintf(p.errOut, "warning: %s\n", w)
			}
			_, err = fmt.Fprintf(p.out, "%s: %s, %s, %s, %s%s: ok\n", l.Name, setting.Counted(g.Hosts, "host"),
				setting.Counted(g.Switches(), "switch"), setting.Counted(len(g.Links), "link"), setting.Counted(len(l.Workloads), "workload"), swept)
			return err
		},
	}
}

func (p *program) graphCommand() *cli.Command {
	const name = "graph"
	return &cli.Command{
		Name: name, Usage: "draw a lab's topology", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: labText + "\n  mcastlab graph examples/quickstart.mcl.yml -o lab.svg",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "format", Usage: "svg, dot or mermaid; default: by the output's name, else svg", EnvVars: envOf(name, "format")},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "file to write; default: standard output", EnvVars: envOf(name, "output")},
		},
		Action: func(c *cli.Context) error {
			format, err := drawFormat(c.String("format"), c.String("output"))
			if err != nil {
				return err
			}
			l, err := p.labArg(c)
			if err != nil {
				return err
			}
			if l.Sweep != nil {
				p.say("the lab has a sweep: this is the topology of the lab file without the sweep")
			}
			g, err := labspec.Graph(l)
			if err != nil {
				return err
			}
			title := fmt.Sprintf("%s: %s, %s, %v links", l.Name, setting.Counted(g.Hosts, "host"), setting.Counted(g.Switches(), "switch"), labspec.LinkRates(l, g))
			return p.draw(g, format, title, c.String("output"))
		},
	}
}

// drawFormat returns the format that is asked for, by its name or by that of the file.
func drawFormat(format, file string) (string, error) {
	switch format {
	case topo.FormatSVG, topo.FormatDOT, topo.FormatMermaid:
		return format, nil
	case "":
	default:
		return "", usageError{fmt.Errorf("no drawing format %q: use svg, dot or mermaid", format)}
	}
	switch ext := filepath.Ext(file); ext {
	case "", ".svg":
		return topo.FormatSVG, nil
	case ".dot", ".gv":
		return topo.FormatDOT, nil
	case ".mmd", ".md":
		return topo.FormatMermaid, nil
	default:
		return "", usageError{fmt.Errorf("no drawing format for *%s: name the file *.svg, *.dot, *.gv, *.mmd or *.md, or choose one with --format", ext)}
	}
}

func (p *program) draw(g *topo.Graph, format, title, file string) error {
	if file == "" || file == "-" {
		return g.Draw(p.out, format, title)
	}
	w, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("draw graph: %w", err)
	}
	if err := errors.Join(g.Draw(w, format, title), w.Close()); err != nil {
		return fmt.Errorf("draw graph: %w", err)
	}
	return nil
}
