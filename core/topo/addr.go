// SPDX-License-Identifier: Apache-2.0

package topo

import (
	"fmt"
	"net/netip"

	"github.com/mcastlab/mcastlab/core/wire"
)

// The address plan. The prefix of a fabric is 10.0.0.0/8, and all of it is on-link for every host:
//
//	10.B.B.H       hosts: B.B is a block of their leaf, 0 to 253*256-1, and H is 1 to 254.
//	               Each leaf takes one block per 254 hosts, in the order of leaves.
//	10.253.S.S     switches, in node order: the source address of packets a switch originates
//	10.254.G.G     groups (McstIDs), unless Graph.Groups is another /16
//
// The MAC address of a host or switch is 02:00 followed by its IPv4 address. That of a group is
// 02:4d:43 followed by the last three bytes of the McstID.
//
// In an IPv6 fabric the same 32 bits are the end of an address in fd6d:6361:7374::/96, a unique
// local prefix that all labs share: 10.0.1.2 is fd6d:6361:7374::a00:102, and McstID 10.254.0.1 is
// fd6d:6361:7374::afe:1. Routes, tables and MRP records use the same number in either family. Only
// the packets on the wire differ (wire.IPv6Of).
const (
	hostsPerBlock = 254
	blocksMax     = 253 << 8
	netHosts      = 10 << 24
	netSwitches   = 10<<24 | 253<<16
	// SwitchesMax is the number of addresses in the /16 of the switches.
	SwitchesMax = 1 << 16
)

// Addr returns the address, in the graph's family, of the node or group with the number ip.
func (g *Graph) Addr(ip uint32) netip.Addr { return wire.AddrIn(g.IPv6, ip) }

// Prefix returns a node's address with the prefix length of the fabric.
func (g *Graph) Prefix(node int) netip.Prefix {
	bits := 8
	if g.IPv6 {
		bits = 96
	}
	return netip.PrefixFrom(g.Addr(g.Nodes[node].IP), bits)
}

// assign gives every node its address.
func (g *Graph) assign() error {
	block, free := -1, 0
	leaf := -1
	for h := range g.Hosts {
		at := g.Peer(h, 0).Node
		if at != leaf || free == 0 {
			block, free, leaf = block+1, hostsPerBlock, at
		}
		if block >= blocksMax {
			return fmt.Errorf("more hosts than 10.0.0.0 to 10.252.255.255 can number")
		}
		g.Nodes[h].IP = netHosts | uint32(block)<<8 | uint32(hostsPerBlock-free+1)
		free--
	}
	if g.Switches() > SwitchesMax {
		return fmt.Errorf("%d switches are more than 10.253.0.0/16 can number", g.Switches())
	}
	for i := g.Hosts; i < len(g.Nodes); i++ {
		g.Nodes[i].IP = netSwitches | uint32(i-g.Hosts)
	}
	return nil
}
