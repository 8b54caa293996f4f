// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"

	"github.com/mcastlab/mcastlab/internal/failpoint"
)

// Interval of requests to the Swarm, and time limits for it to start or end a task.
const (
	pollEvery = 100 * time.Millisecond
	swarmWait = 60 * time.Second
)

// services returns the Swarm's services for one part of this program.
func (c *cluster) services(ctx context.Context, part string) ([]swarm.Service, error) {
	all, err := c.ServiceList(ctx, swarm.ServiceListOptions{Filters: filters.NewArgs(filters.Arg("label", labelPart+"="+part))})
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	return all, nil
}

// create makes a service. One of that name that is not ours is left alone.
func (c *cluster) create(ctx context.Context, s swarm.ServiceSpec) (id string, err error) {
	err = failpoint.At("create service "+s.Name, func() error {
		r, err := c.ServiceCreate(ctx, s, swarm.ServiceCreateOptions{})
		id = r.ID
		return err
	})
	if errdefs.IsConflict(err) || errdefs.IsAlreadyExists(err) {
		err = errors.New("the Swarm has another service of that name")
	}
	if err != nil {
		return "", fmt.Errorf("create service %s: %w", s.Name, err)
	}
	return id, nil
}

// remove removes services by what they are part of, and waits until their tasks on servers that can be reached have gone, and so
// their containers: it may be another second until an engine has removed one. Tasks of a service that an interrupted command has
// removed are waited for, too. It reports whether there was anything.
func (c *cluster) remove(ctx context.Context, reached func(node string) bool, parts ...string) (some bool, err error) {
	for _, part := range parts {
		all, err := c.services(ctx, part)
		if err != nil {
			return some, err
		}
		for _, s := range all {
			some = true
			err := failpoint.At("remove service "+s.Spec.Name, func() error { return c.ServiceRemove(ctx, s.ID) })
			if err != nil && !errdefs.IsNotFound(err) {
				return some, fmt.Errorf("remove service %s: %w", s.Spec.Name, err)
			}
		}
	}
	left, err := c.await(ctx, func() ([]string, error) {
		tasks, err := c.TaskList(ctx, swarm.TaskListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list tasks: %w", err)
		}
		var left []string
		for _, t := range tasks {
			if t.Spec.ContainerSpec != nil && slices.Contains(parts, t.Spec.ContainerSpec.Labels[labelPart]) && reached(t.NodeID) {
				left = append(left, t.NodeID)
			}
		}
		return left, nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("remove services: tasks on the nodes %s have not gone after %v", strings.Join(left, ", "), swarmWait)
	}
	return some, err
}

// removeSecrets removes our secrets; no service uses them any more.
func (c *cluster) removeSecrets(ctx context.Context) error {
	all, err := c.SecretList(ctx, swarm.SecretListOptions{Filters: filters.NewArgs(filters.Arg("label", labelPart))})
	if err != nil {
		return fmt.Errorf("list secrets: %w", err)
	}
	for _, s := range all {
		err := failpoint.At("remove secret", func() error { return c.SecretRemove(ctx, s.ID) })
		if err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("remove secret %s: %w", s.Spec.Name, err)
		}
	}
	return nil
}

// await asks until nothing is left to wait for, or the wait is over: then it returns what is left.
func (c *cluster) await(ctx context.Context, ask func() (left []string, err error)) ([]string, error) {
	for until := time.Now().Add(swarmWait); ; {
		left, err := ask()
		if err != nil || len(left) == 0 || time.Now().After(until) {
			return left, err
		}
		if err := sleep(ctx, pollEvery); err != nil {
			return nil, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ended reports whether a task in that state has no container any more that runs.
func ended(s swarm.TaskState) bool {
	return slices.Contains([]swarm.TaskState{
		swarm.TaskStateComplete, swarm.TaskStateShutdown, swarm.TaskStateFailed, swarm.TaskStateRejected, swarm.TaskStateRemove, swarm.TaskStateOrphaned,
	}, s)
}

// tasks lists the tasks of a service.
func (c *cluster) tasks(ctx context.Context, service string) ([]swarm.Task, error) {
	tasks, err := c.TaskList(ctx, swarm.TaskListOptions{Filters: filters.NewArgs(filters.Arg("service", service))})
	if err != nil {
		return nil, fmt.Errorf("list tasks: %w", err)
	}
	return tasks, nil
}

// reach has the tasks of a service come to a state on all servers, and returns for those that do not why not. What had failed before
// does not count: the Swarm tries again.
func (c *cluster) reach(ctx context.Context, service, hash string, want swarm.TaskState, nodes []string) (map[string]error, error) {
	before, err := c.tasks(ctx, service)
	if err != nil {
		return nil, err
	}
	old := map[string]bool{}
	for _, t := range before {
		old[t.ID] = ended(t.Status.State)
	}
	failed := map[string]error{}
	left, err := c.await(ctx, func() ([]string, error) {
		tasks, err := c.tasks(ctx, service)
		if err != nil {
			return nil, err
		}
		tasks = slices.DeleteFunc(tasks, func(t swarm.Task) bool { return old[t.ID] && t.Status.State != want })
		var left []string
		for _, n := range nodes {
			if failed[n] != nil {
				continue
			}
			var done bool
			if done, failed[n] = progress(tasks, n, hash, want); failed[n] == nil {
				delete(failed, n)
				if !done {
					left = append(left, n)
				}
			}
		}
		return left, nil
	})
	for _, n := range left {
		failed[n] = fmt.Errorf("the Swarm has not started the daemon in %v: docker service ps --no-trunc %s", swarmWait, serviceName)
	}
	return failed, err
}

// progress looks at the newest task of a server that is of one specification.
func progress(tasks []swarm.Task, node, hash string, want swarm.TaskState) (done bool, err error) {
	var newest *swarm.Task
	for i, t := range tasks {
		if t.NodeID == node && t.Spec.ContainerSpec != nil && t.Spec.ContainerSpec.Labels[labelSpec] == hash && (newest == nil || t.CreatedAt.After(newest.CreatedAt)) {
			newest = &tasks[i]
		}
	}
	switch {
	case newest == nil:
		return false, nil
	case newest.Status.State == want:
		return true, nil
	case newest.Status.State == swarm.TaskStateRejected:
		return false, taskError(orText(newest.Status.Err, newest.Status.Message))
	case newest.Status.State == swarm.TaskStateFailed && !startedAgain(newest):
		return false, fmt.Errorf("%w: %s", errEnded, orText(newest.Status.Err, newest.Status.Message))
	}
	return false, nil
}

// errEnded says that the task of a job has failed.
var errEnded = errors.New("what runs there for this command has ended too early")

// startedAgain reports whether the Swarm starts a task again that fails: that of the daemon, and not those of jobs.
func startedAgain(t *swarm.Task) bool {
	p := t.Spec.RestartPolicy
	return p == nil || p.Condition != swarm.RestartPolicyConditionNone
}

// taskError returns the reason why a server does not start a task, with the remedy if there is one.
func taskError(text string) error {
	text = strings.Join(strings.Fields(text), " ")
	if strings.Contains(text, "No such image") || strings.Contains(text, "not found") && strings.Contains(text, "image") {
		return errors.New("it does not have this program's image: run mcastlab servers image there, with the same version of the program")
	}
	return fmt.Errorf("the Swarm cannot start the daemon: %s", text)
}
