package topo

import (
	"fmt"
	"net/netip"

	"github.com/mcastlab/mcastlab/wire"
)

// The address plan. A fabric is 10/8 and on-link for every host:
//
//	10.B.B.H       hosts: BB is the block of their leaf, H from 1 to 254. Blocks are
//	               dealt out in leaf order, one per 254 hosts; 0 to 253*256-1.
//	10.253.S.S     switches, in node order: the source of what a switch itself sends
//	10.254.G.G     groups (McstIDs)
//
// A MAC address is 02:00 and the host's or switch's IPv4 address, or 02:4d:43 and the
// last three bytes of the McstID.
//
// In an IPv6 fabric the same 32 bits end an address of fd6d:6361:7374::/96, a unique local
// prefix that all labs have, as they all have 10/8: 10.0.1.2 is fd6d:6361:7374::a00:102, and
// McstID 10.254.0.1 is fd6d:6361:7374::afe:1. One number names a node in routes, tables and
// MRP records of either family; only what is on the wire differs (wire.IPv6Of).
const (
	hostsPerBlock = 254
	blocksMax     = 253 << 8
	netHosts      = 10 << 24
	netSwitches   = 10<<24 | 253<<16
	// SwitchesMax is what the switches' /16 can number.
	SwitchesMax = 1 << 16
)

// Addr returns the address that stands for ip, a node's or a group's, in the graph's family.
func (g *Graph) Addr(ip uint32) netip.Addr { return wire.AddrIn(g.IPv6, ip) }

// Prefix returns a node's address with the length of the fabric's prefix.
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
