// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/programs"
)

func (p *program) mpiCommand() *cli.Command {
	const name = mpiVerb
	return &cli.Command{
		Name: name, Usage: "run an MPI program, its ranks on hosts of a lab", ArgsUsage: "-- PROGRAM [ARGUMENT...]", OnUsageError: onUsage,
		Description: "mcastlab mpirun -np 4 -- ./app\nmcastlab mpirun --map h3,h7,h11 -- ./app\n" +
			"Rank i is at the host number i of the lab, or of --map; with more ranks than hosts it starts over.\n" +
			"It is this server's Open MPI that runs. Ranks use the NICs of their hosts by UCX, and the launcher the\n" +
			"management network (deploy --management). exec says as whom they run. The exit code is that of Open MPI's mpirun.",
		Flags: []cli.Flag{
			labFlag(),
			&cli.IntFlag{Name: "np", Usage: "number of ranks", DefaultText: "as many as hosts in --map", EnvVars: envOf(name, "np")},
			&cli.StringFlag{Name: "map", Usage: "hosts, in the order of the ranks: h3,h0,h0", DefaultText: "the lab's hosts", EnvVars: envOf(name, "map")},
			&cli.BoolFlag{Name: "multicast", Usage: "offload MPI_Bcast to in-network multicast (libmcastmpi.so)", EnvVars: envOf(name, "multicast")},
			clockFlag(name, programs.ClockWall), rootFlag(name), verboseFlag(name),
		},
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usageError{fmt.Errorf("mpirun needs a program after its flags: mcastlab mpirun -np 4 -- ./app")}
			}
			d, err := p.attach(c)
			if err != nil {
				return err
			}
			hosts, err := rankHosts(d, c.Int("np"), c.IsSet("np"), c.String("map"))
			if err != nil {
				return usageError{err}
			}
			library, err := programs.Library()
			if err != nil {
				return err
			}
			settings, err := programs.MPISettings(d)
			if err != nil {
				return err
			}
			p.saySettings(c, settings)
			x := programs.NewExecution(c.Args().Slice(), library, true)
			x.Multicast = c.Bool("multicast")
			return p.ended(c, d, x, func(ctx context.Context, x programs.Execution) (int, error) { return programs.MPIRun(ctx, d, hosts, x) })
		},
	}
}

// ranksPerHost limits the ranks of a host. Their programs share the NIC's process and, with those of all hosts,
// this server's memory and processors; a number beyond is a mistake.
const ranksPerHost = 64

// rankHosts returns the host of each of so many ranks.
func rankHosts(d *orchestrator.Deployed, ranks int, given bool, list string) (at []string, err error) {
	var hosts []string
	for _, h := range strings.Split(list, ",") {
		if h = strings.TrimSpace(h); h == "" {
			continue
		}
		if err := hasNode(d, h); err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	if list == "" {
		for i := range d.Graph.Nodes {
			if n := &d.Graph.Nodes[i]; n.Kind == topo.Host && d.Lab.ExternalHost(n.Name) == nil {
				hosts = append(hosts, n.Name)
			}
		}
	}
	switch {
	case len(hosts) == 0:
		return nil, fmt.Errorf("--map %q names no host: --map h0,h1", list)
	case list == "" && !given:
		return nil, fmt.Errorf("mpirun needs the number of ranks, or their hosts: mcastlab mpirun -np 4 -- ./app")
	case !given:
		ranks = len(hosts)
	case ranks < 1:
		return nil, fmt.Errorf("-np %d: an MPI program has at least one rank", ranks)
	case list != "" && ranks < len(hosts):
		return nil, fmt.Errorf("-np %d with %d hosts in --map: name as many as there are ranks, or leave -np out", ranks, len(hosts))
	}
	many := map[string]int{}
	for i := range ranks {
		h := hosts[i%len(hosts)]
		if many[h]++; many[h] > ranksPerHost {
			return nil, fmt.Errorf("rank %d would be number %d at %s: a host has room for %d", i, many[h], h, ranksPerHost)
		}
		at = append(at, h)
	}
	return at, nil
}
