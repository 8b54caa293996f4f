// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/docker/docker/api/types/swarm"
)

// List returns the servers of the Swarm, and what each lacks.
func List(ctx context.Context, o Options) ([]Server, error) {
	c, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	all, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	have, err := c.services(ctx, serviceName)
	if err != nil {
		return nil, err
	}
	if len(have) == 0 {
		for i := range all {
			if all[i].State == "" {
				all[i].State = StateNone
			}
		}
		return all, nil
	}
	tasks, err := c.tasks(ctx, serviceName)
	if err != nil {
		return nil, err
	}
	var running []string
	for i, m := range all {
		if m.State != "" {
			continue
		}
		done, err := progress(tasks, m.Node, have[0].Spec.Labels[labelSpec], swarm.TaskStateRunning)
		switch {
		case done:
			running = append(running, m.Node)
		case err != nil:
			all[i].fail(StateStopped, err)
		default:
			all[i].fail(StateStopped, fmt.Errorf("the daemon does not run: docker service ps --no-trunc %s", serviceName))
		}
	}
	s := store{dir: o.State}
	who, err := s.credentials()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("this server has no certificate of a deployer: run mcastlab servers up here, or mcastlab servers where it was run")
		}
		for i := range all {
			if all[i].State == "" {
				all[i].fail(StateNoTrust, err)
			}
		}
		return all, nil
	}
	port := portOf(&have[0])
	answers := ask(ctx, c, who, all, running, port, 0)
	for i := range all {
		if a, ok := answers[all[i].Node]; ok {
			all[i].take(a, port)
		}
	}
	return all, nil
}
