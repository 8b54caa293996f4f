// SPDX-License-Identifier: Apache-2.0

// Package hosts makes one testbed of the servers of a Docker Swarm: a daemon on each, as one global service, certificates for
// all of them, and probes of the paths between them. `mcastlab servers` is its command.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"

	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
)

// Server is a node of the Swarm as `mcastlab servers` shows it.
type Server struct {
	Node    string `json:"node"` // the Swarm's ID of it
	Name    string `json:"name"` // its host name, with the beginning of the ID if others have the same
	Address string `json:"address"`
	Role    string `json:"role"`  // manager or worker
	State   string `json:"state"` // ready, or what it lacks
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory-bytes"`
	Engine  string `json:"engine"`            // version of its Docker engine
	Version string `json:"version,omitempty"` // of the daemon
	// Ahead is the offset of its clock from this server's, in ns, with an error of half a round trip. Nil: not known.
	Ahead *int64 `json:"clock-ahead-ns,omitempty"`
	Error string `json:"error,omitempty"`
	// Labels are those that docker node update --label-add gives.
	Labels map[string]string `json:"labels,omitempty"`

	arch string
}

// States of servers.
const (
	StateReady   = "ready"
	StateDown    = "down"    // the Swarm does not reach it
	StateDrained = "drained" // it is to run nothing
	StateNone    = "none"    // no daemon runs there
	StateStopped = "stopped" // a daemon should run there and does not
	StateUnasked = "silent"  // the daemon cannot be asked
	StateNoTrust = "unknown" // it has no certificate, or another's
)

// String returns the name and the address, as messages give them.
func (m *Server) String() string { return fmt.Sprintf("%s (%s)", m.Name, m.Address) }

// apiMin is the version of the engine's API that has global jobs, and engineMin the engine that brought it.
const (
	apiMin    = "1.41"
	engineMin = "20.10"
)

// swarmError returns the reason why a Swarm is not usable, with the remedy.
func swarmError(i *system.Info, api string) error {
	s := i.Swarm
	switch {
	case older(api, apiMin):
		return fmt.Errorf("the Docker engine here is %s, and jobs of a Swarm came with %s: update it", i.ServerVersion, engineMin)
	case s.LocalNodeState == swarm.LocalNodeStateLocked:
		return errors.New("the Swarm is locked: docker swarm unlock")
	case s.LocalNodeState == swarm.LocalNodeStateInactive:
		return errNoSwarm
	case s.LocalNodeState != swarm.LocalNodeStateActive:
		return fmt.Errorf("this server's membership of the Swarm is %s: %s", s.LocalNodeState, orText(s.Error, "wait, or see docker info"))
	case !s.ControlAvailable:
		var managers []string
		for _, m := range s.RemoteManagers {
			host, _, err := net.SplitHostPort(m.Addr)
			if err != nil {
				host = m.Addr
			}
			managers = append(managers, host)
		}
		return fmt.Errorf("this server is a worker of the Swarm: run it on a manager, at %s", orText(strings.Join(managers, " or "), "one that docker info names"))
	}
	return nil
}

// errNoSwarm says that the engine is in no Swarm.
var errNoSwarm = errors.New("the Docker engine here is in no Swarm: run docker swarm init, and on each other server the docker swarm join that it prints")

func orText(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// older reports whether a version of two numbers, the rest does not count, is before another.
func older(a, b string) bool {
	x, y := numbers(a), numbers(b)
	return slices.Compare(x[:], y[:]) < 0
}

// servers counts them in words.
func servers(n int) string {
	if n == 1 {
		return "1 server"
	}
	return fmt.Sprintf("%d servers", n)
}

func numbers(version string) (n [2]int) {
	for i, part := range strings.SplitN(version, ".", 3) {
		if i < len(n) {
			n[i], _ = strconv.Atoi(part) // what is no number is older than all
		}
	}
	return n
}

// serversOf returns the servers of a Swarm by name. Those with a state cannot take part.
func serversOf(nodes []swarm.Node) []Server {
	count := map[string]int{}
	for _, n := range nodes {
		count[n.Description.Hostname]++
	}
	var all []Server
	for _, n := range nodes {
		m := Server{
			Node: n.ID, Name: n.Description.Hostname, Address: n.Status.Addr, Role: string(n.Spec.Role), Engine: n.Description.Engine.EngineVersion,
			Cores: int(n.Description.Resources.NanoCPUs / 1e9), Memory: n.Description.Resources.MemoryBytes, arch: n.Description.Platform.Architecture,
			Labels: n.Spec.Labels,
		}
		if count[m.Name] > 1 || m.Name == "" {
			m.Name = strings.TrimPrefix(m.Name+"-"+n.ID[:min(6, len(n.ID))], "-")
		}
		if a, err := netip.ParseAddr(m.Address); (err != nil || a.IsUnspecified()) && n.ManagerStatus != nil { // a manager may not know its own
			if host, _, err := net.SplitHostPort(n.ManagerStatus.Addr); err == nil {
				m.Address = host
			}
		}
		switch {
		case n.Status.State != swarm.NodeStateReady:
			m.State = StateDown
			m.Error = fmt.Sprintf("the Swarm does not reach it (%s): start its engine, or take it out with docker node rm %s",
				orText(n.Status.Message, string(n.Status.State)), n.ID)
		case n.Spec.Availability == swarm.NodeAvailabilityDrain:
			m.State = StateDrained
		case older(m.Engine, engineMin):
			m.State, m.Error = StateStopped, fmt.Sprintf("its Docker engine is %s, and jobs of a Swarm came with %s: update it", m.Engine, engineMin)
		case m.arch != "" && m.arch != archName(runtime.GOARCH):
			m.State = StateStopped
			m.Error = fmt.Sprintf("it is %s, and this program is for %s: drain it (docker node update --availability drain %s)",
				m.arch, archName(runtime.GOARCH), n.ID)
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// archName returns the name of an architecture in uname, and so in an engine.
func archName(goarch string) string {
	switch goarch {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return goarch
}

// cluster is the Swarm of an engine that is a manager.
type cluster struct {
	*client.Client
	node  string // this server's ID
	clock func() time.Time
}

func (c *cluster) close() { _ = c.Client.Close() } // nothing is under way

// open reaches the Swarm.
func open(ctx context.Context) (*cluster, error) {
	d, err := docker.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c := &cluster{Client: d, clock: time.Now}
	i, err := d.Info(ctx)
	if err != nil {
		c.close()
		return nil, fmt.Errorf("ask the Docker engine: %w", err)
	}
	if err := swarmError(&i, d.ClientVersion()); err != nil {
		c.close()
		return nil, err
	}
	c.node = i.Swarm.NodeID
	return c, nil
}

// servers lists the servers.
func (c *cluster) servers(ctx context.Context) ([]Server, error) {
	nodes, err := c.NodeList(ctx, swarm.NodeListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Swarm's nodes: %w", err)
	}
	return serversOf(nodes), nil
}

// CheckEngine asks the engine that a daemon reaches whether it is that of the daemon's node.
func CheckEngine(ctx context.Context, node string) error {
	d, err := docker.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // nothing is under way
	i, err := d.Info(ctx)
	if err == nil && i.Swarm.NodeID != node {
		err = fmt.Errorf("the engine at %s is that of the node %q", d.DaemonHost(), i.Swarm.NodeID)
	}
	return err
}
