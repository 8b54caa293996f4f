// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"net"

	"github.com/mcastlab/mcastlab/internal/shareapi"
)

// Server is one of several that a lab can be spread over.
type Server struct {
	Node    string `json:"node"` // ID
	Name    string `json:"name"`
	Address string `json:"address"`
	Cores   int    `json:"cores"`
	Memory  int64  `json:"memory"` // bytes

	Labels map[string]string `json:"labels,omitempty"` // those of a node of the Swarm
}

// String returns the name and the address, as messages give them.
func (m *Server) String() string { return m.Name + " (" + m.Address + ")" }

// Placement maps the nodes of a lab to servers. It is in a file of the lab's directory.
type Placement struct {
	Servers []Server `json:"machines"`
	At      []int    `json:"at"`   // by node of the graph: its server
	VNI     int      `json:"vni"`  // that of link 0; that of link i is so many more
	Port    int      `json:"port"` // UDP port of the links between servers

	Controllers []int `json:"controllers,omitempty"` // by controller: its server

	Userspace []shareapi.Pair `json:"userspace,omitempty"` // of the others the kernel makes the links (VXLAN)
}

// PlacementFile is the name of that file.
const PlacementFile = "hosts.json"

// Spread is an engine of several servers. It does not start nodes itself: each server has a process that makes its share
// of a lab (package internal/shareapi).
type Spread interface {
	Engine
	// Ready returns why labs cannot be spread here.
	Ready(ctx context.Context) error
	// Servers returns those that can take part, why the others do not, and the UDP port of the links between them.
	Servers(ctx context.Context) (all []Server, absent []string, port int, err error)
	// Share starts the process of a server's share if it does not run.
	Share(ctx context.Context, lab string, m *Server) error
	// Dial calls it.
	Dial(ctx context.Context, lab string, m *Server) (net.Conn, error)
	// Peers is by what the share of a server reaches the others.
	Peers(lab string, m *Server) (*shareapi.Peers, error)
	// NoVXLAN returns the pairs of servers between which the kernel's links would not get through, and why, as far as probes tell; port is that of
	// Servers.
	NoVXLAN(ctx context.Context, all []Server, port int) ([]shareapi.Pair, error)
}
