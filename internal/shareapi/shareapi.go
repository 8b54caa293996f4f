// SPDX-License-Identifier: Apache-2.0

// Package shareapi has the messages between a deployer and the process of one server's share of a lab that is spread over
// several servers: the service Share (gRPC), and streams of bytes.
//
// Each stream has a connection of its own, which begins with one message (Open) and its reply. The streams are not multiplexed,
// because the rounds of a run in virtual time wait for each other: for a message of 64 bytes and its answer over loopback a
// connection took 29 us of CPU time, a stream of gRPC 60 us, and one of hashicorp/yamux 90 us. And no capture is ahead of them.
package shareapi

import (
	"slices"

	"github.com/mcastlab/mcastlab/internal/trunk"
)

//go:generate protoc --go_out=. --go-grpc_out=. --go_opt=paths=source_relative --go-grpc_opt=paths=source_relative shareapi.proto

// Sockets of the process, in the folder of the lab: for deployers, and for the shares of the same lab on other servers.
const (
	Socket      = "share.sock"
	PeersSocket = "peers.sock"
)

// Share is a server's share of a lab.
type Share struct {
	Lab   []byte   // labspec.Encode
	At    []int    // server of each node
	Own   int      // this one
	Hosts []string // addresses of the servers
	Names []string // as messages give them
	VNI   int      // VNI of link 0; link i has VNI + i
	Port  int      // UDP port of VXLAN

	Controllers []int  // server of each controller
	Peers       *Peers // of a share that has a controller, or calls for a trunk

	Attach map[string]string // interfaces of external hosts here

	Userspace []Pair

	Management bool // the lab has a management network
}

// Pair is two servers whose links are in user space.
type Pair struct {
	A   int    `json:"a"` // the lower number: it calls the other
	B   int    `json:"b"`
	Why string `json:"why"`
}

// Trunked reports whether the links between two servers are in user space.
func Trunked(all []Pair, a, b int) bool {
	return slices.ContainsFunc(all, func(p Pair) bool { return p.A == min(a, b) && p.B == max(a, b) })
}

// Peers holds the addresses and credentials by which a share reaches the shares of its lab on other servers, through their daemons.
type Peers struct {
	Nodes       []string // IDs of the servers
	Port        int      // TCP port of the daemons
	Credentials []byte   // trust.Credentials of this share
}

// Request returns the message that has a share made.
func (p *Share) Request() *StartRequest {
	q := &StartRequest{
		Lab: p.Lab, At: resized[int32](p.At), Own: int32(p.Own), Hosts: p.Hosts, Names: p.Names, Vni: int32(p.VNI), Port: int32(p.Port),
		Controllers: resized[int32](p.Controllers), Attach: p.Attach, Management: p.Management,
	}
	if p.Peers != nil {
		q.Peers = &Access{Nodes: p.Peers.Nodes, Port: int32(p.Peers.Port), Credentials: p.Peers.Credentials}
	}
	for _, u := range p.Userspace {
		q.Userspace = append(q.Userspace, &Userspace{A: int32(u.A), B: int32(u.B), Why: u.Why})
	}
	return q
}

// Share returns the share that is to be made.
func (q *StartRequest) Share() *Share {
	p := &Share{
		Lab: q.Lab, At: resized[int](q.At), Own: int(q.Own), Hosts: q.Hosts, Names: q.Names, VNI: int(q.Vni), Port: int(q.Port),
		Controllers: resized[int](q.Controllers), Attach: q.Attach, Management: q.Management,
	}
	if q.Peers != nil {
		p.Peers = &Peers{Nodes: q.Peers.Nodes, Port: int(q.Peers.Port), Credentials: q.Peers.Credentials}
	}
	for _, u := range q.Userspace {
		p.Userspace = append(p.Userspace, Pair{A: int(u.A), B: int(u.B), Why: u.Why})
	}
	return p
}

// resized converts server numbers. All fit: a lab has far fewer servers than 2^31.
func resized[To, From int | int32](all []From) (to []To) {
	for _, v := range all {
		to = append(to, To(v))
	}
	return to
}

// Outside is the interface of an external host.
type Outside struct {
	Carrier bool
	Index   int
}

// StateOf returns the message of the links in user space to a server.
func StateOf(to int, c trunk.Counters) *TrunkState {
	return &TrunkState{
		To: int32(to), Links: int32(c.Links), SentFrames: c.SentFrames, SentBytes: c.SentBytes, SentBatches: c.SentBatches,
		ReceivedFrames: c.ReceivedFrames, ReceivedBytes: c.ReceivedBytes, ReceivedBatches: c.ReceivedBatches, Stalls: c.Stalls,
	}
}

// Counters returns what the links have carried.
func (s *TrunkState) Counters() trunk.Counters {
	return trunk.Counters{
		Links: int(s.Links), SentFrames: s.SentFrames, SentBytes: s.SentBytes, SentBatches: s.SentBatches,
		ReceivedFrames: s.ReceivedFrames, ReceivedBytes: s.ReceivedBytes, ReceivedBatches: s.ReceivedBatches, Stalls: s.Stalls,
	}
}
