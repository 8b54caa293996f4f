// SPDX-License-Identifier: Apache-2.0

// Package daemon has the daemon of each server that holds labs together with others, and its client: the
// service Daemon (gRPC) over TLS with certificates on both sides (package trust), streams to shares of labs
// over TLS connections of their own, and datagrams that try the size of frames on the way from server to server.
package daemon

//go:generate protoc --go_out=. --go-grpc_out=. --go_opt=paths=source_relative --go-grpc_opt=paths=source_relative daemon.proto

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// Port is the default port of a daemon, for TCP and UDP. A server without a certificate listens at the next port while
// `servers up` waits for it.
const Port = 7940

// Dir holds a server's key and certificate. It is in memory: a server that restarts has lost them, and its labs with them.
const Dir = "/run/mcastlab-host"

// Frames are the sizes of Ethernet frames that are tried from server to server, in bytes without FCS: one that any path
// carries, the largest that VXLAN over IPv4 carries unfragmented with the usual MTU of 1,500, RoCE's with 4,096 bytes of
// payload, and the largest of an MTU of 9,000.
func Frames() []int { return []int{128, 1464, LinkFrame, 9014} }

// LinkFrame is the largest frame of a link between servers, in bytes.
const LinkFrame = 4214

// LinksPort is the distance from the port of the daemons up to the UDP port of links between servers.
const LinksPort = 2

// Status is the state of a daemon.
type Status = StatusReply

const statusSchema = "mcastlab/host-status/v1"

// Peer is a server to probe.
type Peer struct {
	Node    string
	Address string // with the port
	// Links has the UDP port of links between servers tried, too.
	Links bool
}

// Seen is the way from one server to another, as a probe has found it.
type Seen struct {
	From      string
	To        string
	Error     string        // why the other cannot be asked at all
	Closed    bool          // its TCP port does not answer
	Ahead     time.Duration // of the other's clock
	RoundTrip time.Duration // of the question for it
	Frames    []int         // sizes of frames that arrived
	// Links are those that arrived at the UDP port of links, if that was tried: not while links of a lab use it there.
	Links      []int
	LinksTried bool
}

// message returns the message of a way, and seenOf is the reverse.
func (s *Seen) message() *Way {
	return &Way{
		From: s.From, To: s.To, Error: s.Error, Closed: s.Closed, Ahead: int64(s.Ahead), RoundTrip: int64(s.RoundTrip),
		Frames: resized[int32](s.Frames), Links: resized[int32](s.Links), LinksTried: s.LinksTried,
	}
}

func seenOf(w *Way) Seen {
	return Seen{
		From: w.From, To: w.To, Error: w.Error, Closed: w.Closed, Ahead: time.Duration(w.Ahead), RoundTrip: time.Duration(w.RoundTrip),
		Frames: resized[int](w.Frames), Links: resized[int](w.Links), LinksTried: w.LinksTried,
	}
}

// resized converts the sizes of frames.
func resized[To, From int | int32](all []From) (to []To) {
	for _, v := range all {
		to = append(to, To(v))
	}
	return to
}

// At joins an address and a port.
func At(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// portOf is the reverse of At for the port.
func portOf(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("address %q: %w", address, err)
	}
	return host, port, nil
}
