// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/dilated"
	"github.com/mcastlab/mcastlab/orchestrator/programs"
)

func (p *program) groupCommand() *cli.Command {
	return &cli.Command{
		Name: "group", Usage: "show groups of a running lab; bind queue pairs of programs; list external members", OnUsageError: onUsage,
		Subcommands: []*cli.Command{p.groupShow("ls"), p.groupBind(), p.groupAddMember(), p.groupReady()},
		Action: func(c *cli.Context) error {
			return usageError{fmt.Errorf("group needs ls, bind, add-member or ready, not %q", c.Args().First())}
		},
	}
}

func (p *program) groupAddMember() *cli.Command {
	const name = "group-add-member"
	number := func(flag, usage string) cli.Flag {
		return &cli.StringFlag{Name: flag, Usage: usage, EnvVars: envOf(name, flag)}
	}
	return &cli.Command{
		Name: "add-member", Usage: "say with which queue pair an external host takes part in the runs to come", ArgsUsage: "HOST", OnUsageError: onUsage,
		Description: "What is not given stays as the lab file or an earlier call has it. Numbers are decimal, or 0x and hexadecimal.",
		Flags: []cli.Flag{
			labFlag(),
			number("qpn", "number of its queue pair"), number("send-psn", "PSN of the first packet it sends"),
			number("receive-psn", "PSN of the first packet it expects"), number("va", "address of memory that others write to"), number("rkey", "and its key"),
		},
		Action: func(c *cli.Context) error {
			if err := oneArg(c, "one host"); err != nil {
				return err
			}
			host := c.Args().First()
			numbers := map[string]lab.Number{}
			for _, f := range []string{"qpn", "send-psn", "receive-psn", "va", "rkey"} {
				if !c.IsSet(f) {
					continue
				}
				v, err := lab.ParseNumber(c.String(f))
				if err != nil {
					return usageError{fmt.Errorf("%s: %w", f, err)}
				}
				numbers[f] = v
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := hasNode(d, host); err != nil {
				return err
			}
			x, group, err := d.Member(host, func(x *lab.External) {
				for f, to := range map[string]*lab.Number{ // independent of each other
					"qpn": &x.QPN, "send-psn": &x.SendPSN, "receive-psn": &x.ReceivePSN, "va": &x.VA, "rkey": &x.RKey,
				} {
					if v, given := numbers[f]; given {
						*to = v
					}
				}
			})
			if err != nil {
				return err
			}
			n, _ := d.Graph.Find(host)
			fmt.Fprintf(p.out, "%s: address %v, QP %d, first PSN sent %d, expected %d; %s\n",
				host, d.Graph.Prefix(n), x.QPN, x.SendPSN, x.ReceivePSN, groupsOf(d, host, group))
			return d.Close()
		},
	}
}

// groupsOf returns the groups that an external host will be in: those that the lab file names, or
// the next one of the lab.
func groupsOf(d *orchestrator.Deployed, host string, next uint32) string {
	var named []string
	for i := range d.Lab.Workloads {
		w := &d.Lab.Workloads[i]
		if w.Bcast == nil {
			continue
		}
		id := w.Bcast.NamedGroup(d.Graph.Groups)
		if id != 0 && slices.ContainsFunc(w.Bcast.Ranks.Resolve(d.Graph), func(n int) bool { return d.Graph.Nodes[n].Name == host }) {
			named = append(named, fmt.Sprintf("group %v", d.Graph.Addr(id)))
		}
	}
	if len(named) > 0 {
		return "in each run " + strings.Join(named, ", ")
	}
	return fmt.Sprintf("the next group of the lab is %v, and each run takes another: workloads can name one (group)", d.Graph.Addr(next))
}

func (p *program) groupBind() *cli.Command {
	return &cli.Command{
		Name: "bind", Usage: "make a group of queue pairs that programs on hosts open, while the command runs", ArgsUsage: "HOST HOST...", OnUsageError: onUsage,
		Description: "mcastlab group bind h0 h3 h5\n" +
			"It says the address of a group. At each of the hosts the first RC queue pair that a program connects to that address, with\n" +
			"PSN 0 both ways, is a member. When all are there the first host registers the group; what is sent before waits. What one of\n" +
			"them sends, the switches bring to all others. The group ends when all have left, or with this command.",
		Flags: []cli.Flag{labFlag()},
		Action: func(c *cli.Context) error {
			hosts := c.Args().Slice()
			if len(hosts) < 2 {
				return usageError{fmt.Errorf("group bind needs the names of two hosts or more: mcastlab group bind h0 h3 h5")}
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			library, err := programs.Library()
			if err != nil {
				return err
			}
			for i, h := range hosts {
				if err := hasNode(d, h); err != nil {
					return err
				}
				if why := programs.WithoutNIC(d, h, library); why != nil {
					return fmt.Errorf("group bind at %s: %w", h, why)
				}
				if slices.Contains(hosts[:i], h) {
					return usageError{fmt.Errorf("group bind at %s: name it once: a group has one member at a host", h)}
				}
			}
			err = programs.Bind(c.Context, d, hosts, func(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) })
			return errors.Join(err, d.Close())
		},
	}
}

func (p *program) groupReady() *cli.Command {
	return &cli.Command{
		Name: "ready", Usage: "report that an external host is connected; the run that waits for it continues", ArgsUsage: "HOST", OnUsageError: onUsage,
		Flags: []cli.Flag{labFlag()},
		Action: func(c *cli.Context) error {
			if err := oneArg(c, "one host"); err != nil {
				return err
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			if err := hasNode(d, c.Args().First()); err != nil {
				return err
			}
			return errors.Join(dilated.Ready(d, c.Args().First()), d.Close())
		},
	}
}

// groupShow is group ls, and inspect group.
func (p *program) groupShow(name string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: "show the tree of each group, the acknowledged PSN of each path, and the slowest receiver", OnUsageError: onUsage,
		Description: "A group exists while a workload holds it.",
		Flags:       listFlags("group-ls"),
		Action: p.listing(func(c *cli.Context, d *orchestrator.Deployed, asJSON bool) error {
			groups := d.Groups(c.Context)
			if asJSON {
				return writeJSON(p.out, map[string]any{"schema": "mcastlab/groups/v1", "lab": d.Lab.Name, "groups": append([]orchestrator.GroupTree{}, groups...)})
			}
			writeGroups(p.out, groups)
			return nil
		}),
	}
}

// listFlags returns the flags of a command that lists parts of a running lab.
func listFlags(name string) []cli.Flag {
	return []cli.Flag{labFlag(), formatFlag(name)}
}

// listing returns the action of such a command: show prints the list.
func (p *program) listing(show func(c *cli.Context, d *orchestrator.Deployed, asJSON bool) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := cmp.Or(oneOf(c, "format", "table", "json"), noArgs(c)); err != nil {
			return err
		}
		d, err := p.attach(c)
		if err != nil {
			return err
		}
		return errors.Join(show(c, d, c.String("format") == "json"), d.Close())
	}
}

func writeGroups(w io.Writer, groups []orchestrator.GroupTree) {
	if len(groups) == 0 {
		fmt.Fprintln(w, "no group is registered at the moment")
	}
	for _, g := range groups {
		state := "active"
		if !g.Active {
			state = "not active everywhere"
		}
		fmt.Fprintf(w, "%s: %s, source %s\n", g.McstID, state, g.Source)
		for i := range g.Roots {
			writeTree(w, &g.Roots[i], "")
		}
	}
}

// writeTree draws a switch and what is below it.
func writeTree(w io.Writer, n *orchestrator.TreeNode, indent string) {
	fmt.Fprintf(w, "%s%s  acknowledged %d\n", indent, n.Switch, n.AggAckPSN)
	for i, p := range n.Paths {
		branch, deeper := "├─ ", "│  "
		if i == len(n.Paths)-1 {
			branch, deeper = "└─ ", "   "
		}
		note := fmt.Sprintf("acknowledged %d", p.AckPSN)
		if p.Source {
			note = "source"
		} else if p.To == n.Slowest {
			note += ", slowest"
		}
		if p.QPN != 0 {
			note = fmt.Sprintf("QP %d, %s", p.QPN, note)
		}
		fmt.Fprintf(w, "%s%s%s to %s  %s\n", indent, branch, p.Port, p.To, note)
		if p.Below != nil {
			writeTree(w, p.Below, indent+deeper)
		}
	}
}
