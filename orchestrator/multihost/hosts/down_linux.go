// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// Down takes everything away that Up has made: certificates and daemons on all servers, what is in the Swarm, and the authority. It
// reports whether there was anything. Servers that cannot be reached are named in the error. Of images it removes the one here.
func Down(ctx context.Context, o Options) (existed bool, err error) {
	c, err := open(ctx)
	if errors.Is(err, errNoSwarm) {
		return downAlone(o, err)
	}
	if err != nil {
		return false, err
	}
	defer c.close()
	if _, err := os.Stat(o.State); err == nil {
		existed = true
	}
	s := store{dir: o.State}
	if err := s.open(ctx, o.Say); err != nil {
		return false, err
	}
	defer s.close()
	all, err := c.servers(ctx)
	if err != nil {
		return false, err
	}
	if err := c.clearShares(ctx, o, all); err != nil {
		return true, err
	}
	problems, found, err := c.leave(ctx, o, all)
	if err != nil {
		return existed || found, err
	}
	some, err := c.remove(ctx, func(node string) bool { return reached(all, node) }, leaveName, joinName, serviceName)
	if existed = existed || found || some; err != nil {
		return existed, err
	}
	if err := c.removeSecrets(ctx); err != nil {
		return existed, err
	}
	if err := c.awaitContainers(ctx); err != nil {
		return existed, err
	}
	_, inUse := docker.RemoveHostImages(ctx, c.Client)
	return existed, errors.Join(lines(problems), inUse, s.remove())
}

// awaitContainers returns when the engine here has no container of our services any more: it removes one a little after its task has
// ended. One that it does not remove is left to it.
func (c *cluster) awaitContainers(ctx context.Context) error {
	for begin := time.Now(); time.Since(begin) < takeWait; {
		left := 0
		for _, name := range []string{serviceName, joinName, leaveName} {
			all, err := containers(ctx, c.Client, "com.docker.swarm.service.name="+name)
			if err != nil {
				return err
			}
			left += len(all)
		}
		if left == 0 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// downAlone removes what this server has if it has left the Swarm meanwhile.
func downAlone(o Options, none error) (bool, error) {
	_, a := os.Stat(o.State)
	_, b := os.Stat(daemon.Dir)
	if a != nil && b != nil {
		return false, none
	}
	return true, errors.Join((&store{dir: o.State}).remove(), daemon.Leave(daemon.Dir))
}

// lines joins problems to an error.
func lines(all []string) error {
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}

// leave has each server forget its certificate, by a job of the image that its daemon runs from, and reports whether there was a
// daemon. Before that nothing is removed, so that a command that is interrupted here can be given again.
func (c *cluster) leave(ctx context.Context, o Options, all []Server) (problems []string, found bool, err error) {
	daemons, err := c.services(ctx, serviceName)
	if err != nil || len(daemons) == 0 {
		return nil, false, err
	}
	from := &daemons[0]
	some, err := c.remove(ctx, func(node string) bool { return reached(all, node) }, leaveName, joinName)
	if some {
		o.Say("removed what an interrupted command had left")
	}
	if err != nil {
		return nil, true, err
	}
	var nodes []string
	for _, m := range all {
		switch m.State {
		case "":
			nodes = append(nodes, m.Node)
		case StateDown:
			problems = append(problems, fmt.Sprintf("%s: the Swarm does not reach it: it keeps its certificate in %s until the server restarts", &m, daemon.Dir))
		}
	}
	o.Say("removing the certificates of %s", servers(len(nodes)))
	job := leaveSpec(from.Spec.TaskTemplate.ContainerSpec.Image, portOf(from))
	id, err := c.create(ctx, job)
	if err != nil {
		return nil, true, err
	}
	failed, err := c.reach(ctx, id, job.Labels[labelSpec], swarm.TaskStateComplete, nodes)
	if err != nil {
		return nil, true, err
	}
	for _, m := range all {
		if why := failed[m.Node]; why != nil {
			problems = append(problems, fmt.Sprintf("%s: %s still has its certificate: %v", &m, daemon.Dir, why))
		}
	}
	return problems, true, nil
}

// portOf returns the port of the daemons of a service.
func portOf(s *swarm.Service) int {
	port, err := strconv.Atoi(s.Spec.Labels[labelPort])
	if err != nil {
		return daemon.Port
	}
	return port
}

// clearShares removes shares of labs that no folder here tells of: their deployer has forgotten them. With others the testbed stays.
func (c *cluster) clearShares(ctx context.Context, o Options, all []Server) error {
	who, err := (&store{dir: o.State}).credentials()
	daemons, listed := c.services(ctx, serviceName)
	if err != nil || listed != nil || len(daemons) == 0 {
		return listed // without a certificate there is nothing that could be asked
	}
	in := map[string][]string{} // servers of labs that are known here
	for i := range all {
		m := &all[i]
		if m.State != "" {
			continue
		}
		k := daemon.NewClient(who, m.Node, daemon.At(m.Address, portOf(&daemons[0])), c.clock)
		labs, err := k.Labs(ctx)
		if err != nil {
			o.Say("%s: its labs are not known: %v", m, err)
		}
		for _, lab := range labs {
			if _, err := os.Stat(filepath.Join(o.Folder(lab), engine.PlacementFile)); err == nil {
				in[lab] = append(in[lab], m.Name)
				continue
			}
			o.Say("%s: removing its share of lab %s, which is not up here", m, lab)
			if err := removeShare(ctx, k, lab); err != nil {
				return fmt.Errorf("%s: remove its share of lab %s: %w", m, lab, err)
			}
		}
		k.Close()
	}
	for _, lab := range slices.Sorted(maps.Keys(in)) {
		return fmt.Errorf("lab %s is on %s: mcastlab destroy %s first", lab, strings.Join(in[lab], ", "), lab)
	}
	return nil
}
