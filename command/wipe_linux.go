// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
)

func (p *program) wipeCommand() *cli.Command {
	const name = "wipe"
	return &cli.Command{
		Name: name, Usage: "list everything of mcastlab on this server, and remove it with --yes", OnUsageError: onUsage,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "yes", Usage: "remove it", EnvVars: envOf(name, "yes")}},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			labs, err := orchestrator.List(c.Context, engines())
			if err != nil {
				return err
			}
			images, err := docker.Images(c.Context)
			if err != nil && !errors.Is(err, engine.ErrUnavailable) {
				return err
			}
			what := "found"
			if c.Bool("yes") {
				what = "removed"
			}
			var left error
			for _, l := range labs {
				if c.Bool("yes") {
					if _, err := orchestrator.Destroy(withoutCancel(c), l.Name, engines()); err != nil { // a server may be down: continue with the others
						left = errors.Join(left, err)
						continue
					}
				}
				fmt.Fprintf(p.out, "%s lab %s (%s, %s, %s)\n", what, l.Name, l.Runtime, l.State, setting.Counted(l.Nodes, "node"))
			}
			for _, i := range images {
				if c.Bool("yes") {
					if err := docker.RemoveImage(withoutCancel(c), i); err != nil {
						return err
					}
				}
				fmt.Fprintf(p.out, "%s image %s\n", what, i)
			}
			return left
		},
	}
}

func (p *program) captureCommand() *cli.Command {
	const name = "capture"
	return &cli.Command{
		Name: name, Usage: "capture frames at a port of a running lab", ArgsUsage: "NODE:PORT", OnUsageError: onUsage,
		Description: "The capture is pcapng with lab time as time stamps: mcastlab capture -w - h0:0 | wireshark -k -i -",
		Flags: []cli.Flag{
			labFlag(),
			&cli.StringFlag{Name: "write", Aliases: []string{"w"}, Value: "-", Usage: "file to write, - for standard output", EnvVars: envOf(name, "write")},
			&cli.IntFlag{Name: "count", Aliases: []string{"c"}, Usage: "stop after this many frames", DefaultText: "at Ctrl-C", EnvVars: envOf(name, "count")},
		},
		Action: p.captureAction,
	}
}

func (p *program) captureAction(c *cli.Context) (err error) {
	if err := oneArg(c, "one port, NODE:PORT"); err != nil {
		return err
	}
	d, err := p.attach(c)
	if err != nil {
		return err
	}
	ends, err := runner.MatchPorts(d.Graph, []string{c.Args().First()})
	if err != nil {
		return usageError{err}
	}
	if len(ends) != 1 {
		return usageError{fmt.Errorf("capture %q: %d ports match, name one", c.Args().First(), len(ends))}
	}
	out := p.out
	if name := c.String("write"); name != "-" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("capture: %w", err)
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	// An interrupt ends a capture.
	return errors.Join(d.Capture(c.Context, ends[0], out, c.Int("count")), d.Close())
}

func (p *program) logsCommand() *cli.Command {
	return &cli.Command{
		Name: "logs", Usage: "print the log of a node", ArgsUsage: "NODE", OnUsageError: onUsage,
		Description: "NODE is a host, a switch or a controller: mcastlab logs h0.",
		Flags:       []cli.Flag{labFlag()},
		Action: func(c *cli.Context) error {
			if err := oneArg(c, "the name of one node"); err != nil {
				return err
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := hasNode(d, c.Args().First()); err != nil {
				return err
			}
			b, err := d.Logs(c.Context, c.Args().First())
			if err != nil {
				return err
			}
			if _, err := p.out.Write(b); err != nil {
				return err
			}
			return d.Close()
		},
	}
}
