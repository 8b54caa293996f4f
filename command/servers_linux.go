// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/multihost"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/hosts"
	"github.com/mcastlab/mcastlab/orchestrator/programs"
)

// hostVerb is the verb of the daemon that runs on each server.
const hostVerb = "host"

func (p *program) serversCommand() *cli.Command {
	const name = "hosts" // the former name, which environment variables keep
	return &cli.Command{
		Name: "servers", Aliases: []string{name}, Usage: "list the servers of a Docker Swarm, and make a testbed of them (docs/hosts.md)", OnUsageError: onUsage,
		Description: "Run it on a manager of the Swarm: mcastlab servers up, then mcastlab servers. The list shows why a server is not ready.",
		Flags:       []cli.Flag{formatFlag(name)},
		Subcommands: []*cli.Command{p.hostsUp(), p.hostsDown(), p.hostsImage()},
		Action: func(c *cli.Context) error {
			if err := cmp.Or(oneOf(c, "format", "table", "json"), noArgs(c)); err != nil {
				return err
			}
			all, err := hosts.List(c.Context, p.hostsOptions(c))
			if err != nil {
				return fmt.Errorf("servers: %w", err)
			}
			return p.writeServers(c, all)
		},
	}
}

func (p *program) hostsOptions(c *cli.Context) hosts.Options {
	o := hosts.Options{Port: c.Int("port"), State: hostsState(), Say: func(string, ...any) {}, Folder: orchestrator.Folder}
	if !c.Bool("quiet") {
		o.Say = func(format string, args ...any) { fmt.Fprintf(p.errOut, format+"\n", args...) }
	}
	return o
}

// hostsState is the folder of the authority.
func hostsState() string { return cmp.Or(os.Getenv("MCASTLAB_HOSTS_STATE"), hosts.StateDir) }

func (p *program) hostsUp() *cli.Command {
	const name = "hosts-up"
	return &cli.Command{
		Name: "up", Usage: "start the daemon on every server of the Swarm, and probe the paths between them", OnUsageError: onUsage,
		Description: "Run again, it changes nothing or restores missing parts. Each server needs this program's image: mcastlab servers image.",
		Flags: []cli.Flag{
			formatFlag(name), portFlag(name),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only the outcome", EnvVars: envOf(name, "quiet")},
		},
		Action: func(c *cli.Context) error {
			if err := cmp.Or(oneOf(c, "format", "table", "json"), noArgs(c)); err != nil {
				return err
			}
			if n := c.Int("port"); n < 1 || n > 65534 {
				return usageError{fmt.Errorf("port %d: the daemon takes it and the next one, so use 1 to 65534", n)}
			}
			all, err := hosts.Up(c.Context, p.hostsOptions(c))
			if all == nil && err != nil {
				return fmt.Errorf("servers up: %w", err)
			}
			if c.String("format") == "table" {
				return errors.Join(serverTable(p.out, all), err) // err says what the servers lack
			}
			return errors.Join(p.writeServers(c, all), err)
		},
	}
}

func portFlag(command string) cli.Flag {
	return &cli.IntFlag{
		Name: "port", Value: daemon.Port, EnvVars: envOf(command, "port"),
		Usage: "TCP and UDP port of the daemons; the TCP port after it serves while a server joins",
	}
}

func (p *program) hostsDown() *cli.Command {
	return &cli.Command{
		Name: "down", Usage: "remove all that servers up has made, on every server", OnUsageError: onUsage,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only the outcome", EnvVars: envOf("hosts-down", "quiet")}},
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			existed, err := hosts.Down(c.Context, p.hostsOptions(c))
			if err != nil {
				return fmt.Errorf("servers down: %w", err)
			}
			effect := "nothing was there"
			if existed {
				effect = "removed"
			}
			_, err = fmt.Fprintln(p.out, "servers:", effect)
			return err
		},
	}
}

func (p *program) hostsImage() *cli.Command {
	const name = "hosts-image"
	return &cli.Command{
		Name: "image", Usage: "give the Docker engine here the image of the daemon", OnUsageError: onUsage,
		Description: "Every server needs it before servers up. By ssh, from one server: mcastlab servers image -w - | ssh SERVER docker load",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "write", Aliases: []string{"w"}, EnvVars: envOf(name, "write"),
				Usage: "write the image to a file for docker load, - for standard output, without touching the engine",
			},
			&cli.BoolFlag{Name: "remove", Usage: "remove these images from the engine, of all versions", EnvVars: envOf(name, "remove")},
		},
		Action: func(c *cli.Context) error {
			switch file := c.String("write"); {
			case noArgs(c) != nil:
				return noArgs(c)
			case file != "" && c.Bool("remove"):
				return usageError{errors.New("servers image: use --write or --remove, not both")}
			case file != "":
				return p.writeImage(file)
			}
			d, err := docker.Connect(c.Context)
			if err != nil {
				return err
			}
			defer func() { _ = d.Close() }() // nothing is under way
			if c.Bool("remove") {
				tags, err := docker.RemoveHostImages(c.Context, d)
				for _, t := range tags {
					fmt.Fprintln(p.out, "removed image", t)
				}
				return err
			}
			id, err := docker.EnsureHostImage(c.Context, d)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.out, id)
			return err
		},
	}
}

// writeImage writes the image to a file that is not there yet, or to standard output.
func (p *program) writeImage(name string) (err error) {
	_, archive, err := docker.HostArchive()
	if err != nil {
		return err
	}
	out := p.out
	if name != "-" {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return fmt.Errorf("servers image: %w", err)
		}
		defer func() {
			if err = errors.Join(err, f.Close()); err != nil { // a part of it would be in the way of the next try
				err = errors.Join(fmt.Errorf("servers image: %w", err), os.Remove(name))
			}
		}()
		out = f
	}
	_, err = out.Write(archive)
	return err
}

// writeServers prints servers.
func (p *program) writeServers(c *cli.Context, all []hosts.Server) error {
	if c.String("format") == "json" {
		return writeJSON(p.out, map[string]any{"schema": "mcastlab/hosts/v1", "hosts": append([]hosts.Server{}, all...)})
	}
	if err := serverTable(p.out, all); err != nil {
		return err
	}
	for _, m := range all {
		if m.Error != "" {
			fmt.Fprintf(p.out, "%s: %s\n", m.Name, m.Error)
		}
	}
	return nil
}

func serverTable(out io.Writer, all []hosts.Server) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tROLE\tSTATE\tCORES\tMEMORY\tENGINE\tCLOCK\tVERSION")
	for _, m := range all {
		clock := "-"
		if m.Ahead != nil {
			clock = fmt.Sprintf("%+.1fms", float64(*m.Ahead)/1e6)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%.1fGiB\t%s\t%s\t%s\n",
			m.Name, m.Address, m.Role, m.State, m.Cores, float64(m.Memory)/(1<<30), m.Engine, clock, cmp.Or(m.Version, "-"))
	}
	return w.Flush()
}

// hostCommand is the command of the daemon of one server, and the program of the jobs of servers up and servers down.
func (p *program) hostCommand() *cli.Command {
	return &cli.Command{
		Name: hostVerb, Usage: "run the daemon of one server; servers up starts it", Hidden: true, OnUsageError: onUsage,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "node", Required: true, Usage: "ID of the Swarm's node", EnvVars: envOf(hostVerb, "node")},
			&cli.IntFlag{Name: "port", Usage: "port of the daemon"},
			&cli.StringFlag{Name: "join", Usage: "get a certificate and exit, if this node is in the list"},
			&cli.BoolFlag{Name: "leave", Usage: "delete the certificate and exit"},
			&cli.StringFlag{Name: "image", Usage: "image of the daemon"},
			&cli.StringFlag{Name: "share", Usage: "run this server's share of the lab of this name"},
		},
		Action: func(c *cli.Context) error {
			node, port := c.String("node"), c.Int("port")
			say := func(format string, args ...any) { fmt.Fprintf(p.errOut, "mcastlab host: "+format+"\n", args...) }
			image := c.String("image")
			switch {
			case c.IsSet("share"):
				return multihost.ServeShare(c.Context, c.String("share"), multihost.ShareOptions{
					Options:  orchestrator.Options{Engine: docker.Engine{Image: image}, Version: runner.Version(), Programs: p.hooks.programs, Log: say},
					DialPeer: hosts.DialPeer, ServeProgram: programs.ServeProgram,
				})
			case c.Bool("leave"):
				return daemon.Leave(daemon.Dir)
			case c.IsSet("join"):
				return daemon.Join(c.Context, daemon.JoinOptions{
					Node: node, Nodes: strings.Split(c.String("join"), ","), Dir: daemon.Dir, Listen: daemon.At("", port+1), Token: hosts.TokenFile, Clock: time.Now,
				})
			}
			return daemon.Serve(c.Context, daemon.Options{
				Node: node, Dir: daemon.Dir, Listen: daemon.At("", port), Version: runner.Version(), Clock: time.Now,
				Engine: func(ctx context.Context) error { return hosts.CheckEngine(ctx, node) },
				Labs:   &hosts.Labs{Node: node, Image: image, Folder: orchestrator.Folder, Command: []string{hostVerb, "--image", image, "--share"}},
				Log:    say,
			})
		},
	}
}
