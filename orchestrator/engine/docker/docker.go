// SPDX-License-Identifier: Apache-2.0

// Package docker runs the nodes of a lab as Docker containers: from an image made of our
// own static binary and nothing else, without any capability, without a network of
// Docker's, read-only, as a user of their own.
package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Name is the runtime's name.
const Name = "docker"

// Labels of what we own.
const (
	labelLab  = "mcastlab.lab"
	labelNode = "mcastlab.node"
)

// Limits of a node's container.
const (
	memoryMax = 2 << 30 // a host's buffers may be large; a switch takes 25 MiB
	pidsMax   = 64
	parallel  = 8 // calls at once: what is fastest on two cores
)

// Engine is an engine.Engine of Docker containers.
type Engine struct {
	// Image is the image of nodes, if this program runs in a container itself. Empty: an image made of this program, whose
	// file they share.
	Image string
}

// Name implements engine.Engine.
func (Engine) Name() string { return Name }

// pingWait is the time limit for an engine to answer a ping.
const pingWait = 10 * time.Second

// connect reaches the Docker engine that the environment names, or the usual one, for a lab.
func connect(ctx context.Context) (*client.Client, error) {
	return reach(ctx, "start it, or use --runtime netns, which does not need it")
}

// reach reaches the engine; toDo is what helps if none listens.
func reach(ctx context.Context, toDo string) (*client.Client, error) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	}
	ping, stop := context.WithTimeout(ctx, pingWait)
	defer stop()
	if _, err := c.Ping(ping); err != nil {
		err = fmt.Errorf("%w: docker does not answer at %s: %w", engine.ErrUnavailable, c.DaemonHost(), remedy(err, toDo))
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// remedy adds what to do about a failed connection.
func remedy(err error, toDo string) error {
	switch {
	case errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "permission denied"):
		return &engine.NotReadyError{Why: "permission denied", Remedy: "run as root"}
	case client.IsErrConnectionFailed(err):
		return errors.New(toDo)
	}
	return err
}

// Start implements engine.Engine.
func (e Engine) Start(ctx context.Context, lab string, nodes []engine.Node, intend func(effect, object string) error) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	image, self := e.Image, ""
	if image == "" {
		self = program()
		if image, err = ensureImage(ctx, c, intend); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if n.Data != "" {
			if err := intend("volume", volumeName(lab, n.Name)); err != nil {
				return err
			}
		}
		if err := intend("container", containerName(lab, n.Name)); err != nil {
			return err
		}
	}
	return each(nodes, func(n engine.Node) error {
		err := start(ctx, c, lab, image, self, n)
		if errdefs.IsNotFound(err) && e.Image == "" { // a deployment by another build has removed the image meanwhile
			if _, err := ensureImage(ctx, c, intend); err != nil {
				return err
			}
			err = start(ctx, c, lab, image, self, n)
		}
		return err
	})
}

// program returns the path of this program's file if containers can run it in place of the image's
// copy, else an empty path. Many storage drivers give each container a file of its own, and so its
// pages, which are most of a node's memory; a file of the host has its pages once.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	found, err := os.Stat(path)
	if err != nil || !os.SameFile(self, found) || found.Mode().Perm()&0o005 != 0o005 { // it has been replaced, or only its owner may run it
		return ""
	}
	return path
}

// each calls f for every item, a few at a time, and joins the errors.
func each[T any](items []T, f func(T) error) error {
	errs := make([]error, len(items))
	gate := make(chan struct{}, parallel)
	var all sync.WaitGroup
	for i, x := range items {
		all.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			errs[i] = f(x)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func containerName(lab, node string) string { return "mcastlab-" + lab + "-" + node }

// start creates and starts one node's container. A call that has begun is not cancelled: the engine
// would continue with it, and make a container that nobody knows of.
func start(ctx context.Context, c *client.Client, lab, image, self string, n engine.Node) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	name := containerName(lab, n.Name)
	config, host := createRequest(lab, image, self, n)
	var r container.CreateResponse
	err := failpoint.At("create container", func() (err error) {
		r, err = c.ContainerCreate(ctx, config, host, nil, nil, name)
		return err
	})
	if err != nil {
		return fmt.Errorf("create container %s: %w", name, err)
	}
	err = failpoint.At("start container", func() error { return c.ContainerStart(ctx, r.ID, container.StartOptions{}) })
	if err != nil {
		return fmt.Errorf("start container %s: %w", name, err)
	}
	return nil
}

// createRequest returns the settings of a node's container: nothing in it is from a lab file except
// names that have been checked.
func createRequest(lab, image, self string, n engine.Node) (*container.Config, *container.HostConfig) {
	pids := int64(pidsMax)
	mounts := []mount.Mount{{Type: mount.TypeBind, Source: n.Dir, Target: mountPoint}}
	if n.Data != "" { // the engine makes the volume if there is none
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeVolume, Source: volumeName(lab, n.Name), Target: dataPoint,
			VolumeOptions: &mount.VolumeOptions{Labels: map[string]string{labelLab: lab, labelNode: n.Name}},
		})
	}
	if n.Nodes != "" { // a socket can be connected to in a folder that cannot be written
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: n.Nodes, Target: nodesPoint, ReadOnly: true})
	}
	if self != "" {
		mounts = append(mounts, mount.Mount{Type: mount.TypeBind, Source: self, Target: "/mcastlab", ReadOnly: true})
	}
	return &container.Config{
			Image: image, Cmd: n.Command(mountPoint, dataPoint, nodesPoint), User: fmt.Sprintf("%d:%d", engine.UID, engine.UID),
			Labels: map[string]string{labelLab: lab, labelNode: n.Name}, NetworkDisabled: true, Hostname: n.Name,
		}, &container.HostConfig{
			NetworkMode: "none", CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, ReadonlyRootfs: true,
			Mounts:    mounts,
			Resources: container.Resources{Memory: memoryMax, MemorySwap: memoryMax, PidsLimit: &pids},
			LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "2"}},
		}
}

// owned returns the containers with our labels, of one lab or of all.
func owned(ctx context.Context, c *client.Client, lab string) ([]container.Summary, error) {
	label := labelLab
	if lab != "" {
		label += "=" + lab
	}
	all, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return all, nil
}

// Find implements engine.Engine.
func (Engine) Find(ctx context.Context, lab string) ([]engine.Running, error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	all, err := owned(ctx, c, lab)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var found []engine.Running
	err = each(all, func(s container.Summary) error {
		r, err := c.ContainerInspect(ctx, s.ID)
		if errdefs.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("inspect container of %s: %w", s.Labels[labelNode], err)
		}
		mu.Lock()
		defer mu.Unlock()
		found = append(found, engine.Running{Name: s.Labels[labelNode], PID: r.State.Pid})
		return nil
	})
	slices.SortFunc(found, func(a, b engine.Running) int { return strings.Compare(a.Name, b.Name) })
	return found, err
}

// Labs implements engine.Engine.
func (Engine) Labs(ctx context.Context) ([]string, error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	all, err := owned(ctx, c, "")
	if err != nil {
		return nil, err
	}
	kept, err := volumes(ctx, c, "")
	var labs []string
	for _, s := range all {
		labs = append(labs, s.Labels[labelLab])
	}
	for _, v := range kept {
		labs = append(labs, v.Labels[labelLab])
	}
	slices.Sort(labs)
	return slices.Compact(labs), err
}

// Remove implements engine.Engine.
func (Engine) Remove(ctx context.Context, lab string, nodes ...string) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	for some := true; some; {        // again: what a killed command asked for may have come meanwhile
		if some, err = removeOnce(ctx, c, lab, nodes); err != nil {
			return err
		}
	}
	if len(nodes) > 0 {
		return nil
	}
	return removeVolumes(ctx, c, lab)
}

// removeOnce removes those containers of a lab that are there, and reports whether there were any.
func removeOnce(ctx context.Context, c *client.Client, lab string, nodes []string) (bool, error) {
	all, err := owned(ctx, c, lab)
	if err != nil {
		return false, err
	}
	if len(nodes) > 0 {
		all = slices.DeleteFunc(all, func(s container.Summary) bool { return !slices.Contains(nodes, s.Labels[labelNode]) })
	}
	err = each(all, func(s container.Summary) error {
		err := failpoint.At("remove container", func() error { return removeContainer(ctx, c, s.ID) })
		if err != nil && !errdefs.IsNotFound(err) { // it may have gone by itself
			return fmt.Errorf("remove container of %s: %w", s.Labels[labelNode], err)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.ID
	}
	return len(all) > 0, endStrays("/proc", ids)
}

// removeWait is the time limit of a removal that another command has begun, and removeAgain the interval of
// retries: the engine may have given up, and if the container went during the request, its reply to a wait for
// that never comes.
const (
	removeWait  = time.Minute
	removeAgain = time.Second
)

// removeContainer removes a container. Another removal, whose command may have been killed, may be under way.
func removeContainer(ctx context.Context, c *client.Client, id string) error {
	for until := time.Now().Add(removeWait); ; {
		err := c.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		if !errdefs.IsConflict(err) || time.Now().After(until) {
			return err
		}
		gone, stop := context.WithTimeout(ctx, removeAgain)
		done, errs := c.ContainerWait(gone, id, container.WaitConditionRemoved)
		select {
		case <-done:
			err = nil
		case err = <-errs:
		}
		again := err != nil && gone.Err() != nil && ctx.Err() == nil
		if stop(); !again {
			return err
		}
	}
}

// Logs implements engine.Engine.
func (Engine) Logs(ctx context.Context, lab, node string) ([]byte, error) {
	c, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing is under way
	r, err := c.ContainerLogs(ctx, containerName(lab, node), container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return nil, fmt.Errorf("read log of node %s: %w", node, err)
	}
	var b bytes.Buffer
	_, err = stdcopy.StdCopy(&b, &b, r)
	return b.Bytes(), errors.Join(err, r.Close())
}
