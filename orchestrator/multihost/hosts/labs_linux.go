// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// labelShare marks the container of a server's share of a lab.
const labelShare = "mcastlab.share"

// Labs are the shares of labs on one server. Each is a container of the server's engine, beside the Swarm.
type Labs struct {
	Node    string                  // ID of the Swarm's node
	Image   string                  // of the daemon
	Folder  func(lab string) string // of a lab's state
	Command []string                // that serves a share; the lab's name follows
}

// Waits for the process of a share: to listen, and to be asked whether it does.
const (
	shareWait = 20 * time.Second
	shareLook = 20 * time.Millisecond
)

func shareName(lab string) string { return "mcastlab-share-" + lab }

// Start implements daemon.Labs.
func (l *Labs) Start(ctx context.Context, lab string) error {
	if c, err := l.Dial(ctx, lab); err == nil {
		return c.Close()
	}
	d, err := docker.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()                  // nothing is under way
	if err := removeShares(ctx, d, lab); err != nil { // one that has died
		return err
	}
	config, host := l.request(lab)
	r, err := d.ContainerCreate(ctx, config, host, nil, nil, shareName(lab))
	if err == nil {
		err = d.ContainerStart(ctx, r.ID, container.StartOptions{})
	}
	if err != nil {
		return fmt.Errorf("start container %s: %w", shareName(lab), err)
	}
	for until := time.Now().Add(shareWait); ; {
		c, err := l.Dial(ctx, lab)
		if err == nil {
			return c.Close()
		}
		if time.Now().After(until) {
			return fmt.Errorf("container %s does not answer in %v: docker logs %s there", shareName(lab), shareWait, shareName(lab))
		}
		if err := sleep(ctx, shareLook); err != nil {
			return err
		}
	}
}

// request returns the settings of a share's container: all that a deployment needs on the server itself, which is to enter
// the namespaces of nodes, to make interfaces and raw sockets, and to run the server's programs as its users.
func (l *Labs) request(lab string) (*container.Config, *container.HostConfig) {
	return &container.Config{
			Image: l.Image, Cmd: append(slices.Clone(l.Command), lab), User: "0:0", Labels: map[string]string{labelShare: lab},
			Env: []string{"MCASTLAB_HOST_NODE=" + l.Node, "DOCKER_HOST=unix://" + runFolder + "/docker.sock"},
		}, &container.HostConfig{
			NetworkMode: "host", PidMode: "host", ReadonlyRootfs: true, CapDrop: []string{"ALL"},
			CapAdd: []string{
				"SYS_ADMIN", "NET_ADMIN", "NET_RAW", "SYS_PTRACE", "SYS_NICE", "DAC_OVERRIDE", "CHOWN", "FOWNER", "KILL", "SYS_CHROOT", "SETUID", "SETGID",
			},
			SecurityOpt: []string{"apparmor=unconfined", "no-new-privileges"},
			MaskedPaths: []string{}, ReadonlyPaths: []string{}, // it sets what is below /proc/sys of the nodes' namespaces
			Mounts:    []mount.Mount{{Type: mount.TypeBind, Source: runFolder, Target: runFolder}},
			LogConfig: container.LogConfig{Type: "json-file", Config: map[string]string{"max-size": "1m", "max-file": "2"}},
		}
}

// Dial implements daemon.Labs.
func (l *Labs) Dial(ctx context.Context, lab string) (net.Conn, error) {
	return l.dial(ctx, lab, shareapi.Socket)
}

// DialPeers implements daemon.Labs.
func (l *Labs) DialPeers(ctx context.Context, lab string) (net.Conn, error) {
	return l.dial(ctx, lab, shareapi.PeersSocket)
}

func (l *Labs) dial(ctx context.Context, lab, socket string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(l.Folder(lab), socket))
	if err != nil {
		return nil, daemon.ErrNoShare
	}
	return c, nil
}

// End implements daemon.Labs.
func (l *Labs) End(ctx context.Context, lab string) error {
	d, err := docker.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing is under way
	return removeShares(ctx, d, lab)
}

// List implements daemon.Labs.
func (l *Labs) List(ctx context.Context) (labs []string, err error) {
	d, err := docker.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // nothing is under way
	all, err := shares(ctx, d, "")
	for _, s := range all {
		labs = append(labs, s.Labels[labelShare])
	}
	slices.Sort(labs)
	return labs, err
}

// shares returns the containers of shares, of one lab or of all.
func shares(ctx context.Context, d *client.Client, lab string) ([]container.Summary, error) {
	label := labelShare
	if lab != "" {
		label += "=" + lab
	}
	return containers(ctx, d, label)
}

// containers returns an engine's containers that have a label, those that have ended, too.
func containers(ctx context.Context, d *client.Client, label string) ([]container.Summary, error) {
	all, err := d.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", label))})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	return all, nil
}

// removeShares removes the containers of a lab's share.
func removeShares(ctx context.Context, d *client.Client, lab string) error {
	all, err := shares(ctx, d, lab)
	if err != nil {
		return err
	}
	for _, s := range all {
		err := d.ContainerRemove(ctx, s.ID, container.RemoveOptions{Force: true})
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) { // it may be going by itself
			return fmt.Errorf("remove container %s: %w", shareName(lab), err)
		}
	}
	return nil
}
