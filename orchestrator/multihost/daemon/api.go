// Package daemon is what runs on each machine that holds labs together with others, and how it is
// talked to: JSON over HTTP over TLS with certificates on both sides (package trust), and datagrams that
// try how large frames may be on the way from machine to machine.
package daemon

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// Port is where a daemon listens, for TCP and for UDP, unless `hosts up` is told otherwise. A machine that has no
// certificate yet listens at the next one while `hosts up` waits for it.
const Port = 7940

// Dir holds a machine's key and certificate. It is in memory: a machine that restarts has lost them, and its labs with them.
const Dir = "/run/mcastlab-host"

// Frames are the sizes of Ethernet frames that are tried from machine to machine, in bytes without FCS: one that any path
// carries, the largest that goes unfragmented in VXLAN over IPv4 with the usual MTU of 1,500, RoCE's with 4,096 bytes of
// payload, and the largest of an MTU of 9,000.
func Frames() []int { return []int{128, 1464, LinkFrame, 9014} }

// LinkFrame is the largest frame of a link between machines, in bytes.
const LinkFrame = 4214

// LinksPort is by how much the UDP port of links between machines is higher than that of the daemons.
const LinksPort = 2

// Status is what a daemon says of itself to a deployer.
type Status struct {
	Schema  string `json:"schema"`
	Node    string `json:"node"`
	Version string `json:"version"`
	Now     int64  `json:"now"`              // its clock, in ns since 1970
	Ends    int64  `json:"ends"`             // of its certificate, in seconds since 1970
	Engine  string `json:"engine,omitempty"` // what is wrong with the engine, if anything is
	Strange uint64 `json:"strange"`          // datagrams that came to its port from nobody it knows
}

const statusSchema = "mcastlab/host-status/v1"

// Peer is a machine to probe.
type Peer struct {
	Node    string `json:"node"`
	Address string `json:"address"` // with the port
	// Links says to try the UDP port of links between machines, too.
	Links bool `json:"links,omitempty"`
}

// Seen is what one machine has found out about the way to another.
type Seen struct {
	From      string        `json:"from"`
	To        string        `json:"to"`
	Error     string        `json:"error,omitempty"` // why the other cannot be asked at all
	Closed    bool          `json:"closed"`          // its TCP port does not answer
	Ahead     time.Duration `json:"ahead"`           // by how much the other's clock is, in ns
	RoundTrip time.Duration `json:"round-trip"`      // of that question, in ns
	Frames    []int         `json:"frames"`          // sizes of frames that arrived
	// Links are those that arrived at the UDP port of links, if that was tried: not while links of a lab use it there.
	Links      []int `json:"links,omitempty"`
	LinksTried bool  `json:"links-tried,omitempty"`
}

// What requests and answers hold.
type (
	probeRequest struct {
		Peers []Peer `json:"peers"`
	}
	probeAnswer struct {
		Seen []Seen `json:"seen"`
	}
	clockAnswer struct {
		Now int64 `json:"now"`
	}
	expectAnswer struct {
		Session []byte `json:"session"`
		Key     []byte `json:"key"`
		Links   bool   `json:"links,omitempty"` // the daemon listens at the port of links, as it was asked to
	}
	arrivedAnswer struct {
		Frames []int `json:"frames"`
	}
	errorAnswer struct {
		Error string `json:"error"`
	}
)

// route is a request that a daemon answers, and the roles that may make it.
type route struct {
	method, path string
	roles        []trust.Role
}

// of returns a route of a lab with the lab's name.
func (r route) of(lab string) route {
	r.path = strings.Replace(r.path, "{lab}", lab, 1)
	return r
}

// The routes. What changes a machine, or says much of it, is for deployers.
func statusRoute() route { return route{"GET", "/v1/status", []trust.Role{trust.Deployer}} }
func probeRoute() route  { return route{"POST", "/v1/probe", []trust.Role{trust.Deployer}} }
func clockRoute() route  { return route{"GET", "/v1/clock", []trust.Role{trust.Deployer, trust.Host}} }
func expectRoute() route { return route{"POST", "/v1/expect", []trust.Role{trust.Host}} }
func arrivedRoute() route {
	return route{"GET", "/v1/arrived", []trust.Role{trust.Host}}
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
