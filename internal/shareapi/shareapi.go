// Package shareapi has the messages between a deployer and the process of one machine's share of a lab that is spread over
// several machines: one request and its answer at the beginning of each connection, and then, for some, bytes as they come.
package shareapi

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/internal/trunk"
)

// Where the process listens, in the folder of the lab: for deployers, and for the shares of the same lab on other machines.
const (
	Socket      = "share.sock"
	PeersSocket = "peers.sock"
)

// What a request asks for. A share asks another for Agent, Raft, Calls and Trunk, and for nothing else.
const (
	Start   = "start"   // make the share: nodes and links
	Probe   = "probe"   // try the links to other machines, until the connection ends
	Ready   = "ready"   // hand the nodes the sockets of their links
	Look    = "look"    // which nodes are there
	Trunks  = "trunks"  // what links in user space have carried
	Logs    = "logs"    // the log of a node
	Remove  = "remove"  // remove the share
	Agent   = "agent"   // then the connection is one to the node's agent
	Metrics = "metrics" // then it is one to the node's metrics
	Tap     = "tap"     // then frames of a port come (see orchestrator)
	Port    = "port"    // the interface of an external host
	Groups  = "groups"  // then it has messages to and from the socket of programs at the node (Packets)
	Program = "program" // then the connection is that of a program at a node (Part)
	Clock   = "clock"   // then each byte is answered by the machine's CLOCK_MONOTONIC, 8 bytes
	Busy    = "busy"    // the CPU time that the share and its nodes have taken
	Steps   = "steps"   // then it has the rounds of a run in virtual time (lockstep.Relay)
	Raft    = "raft"    // then it is one to the controller, from another
	Calls   = "calls"   // likewise, with calls of clients that the other passes on
	Trunk   = "trunk"   // then it has the frames of the links in user space between two machines (trunk.Trunk)
)

// Request is what a connection begins with.
type Request struct {
	Do    string `json:"do"`
	Node  string `json:"node,omitempty"`
	Port  int    `json:"port,omitempty"`  // of Tap
	Share *Share `json:"share,omitempty"` // to make
	From  int    `json:"from,omitempty"`  // machine of a share that asks for Trunk
	VNI   int    `json:"vni,omitempty"`   // and that of its link 0: each deployment has another

	Run *Run `json:"run,omitempty"` // of Program
}

// Share is a machine's share of a lab.
type Share struct {
	Lab   []byte   `json:"lab"`   // labspec.Encode
	At    []int    `json:"at"`    // machine of each node
	Own   int      `json:"own"`   // this one
	Hosts []string `json:"hosts"` // addresses of the machines
	Names []string `json:"names"` // as messages give them
	VNI   int      `json:"vni"`   // that of link 0; that of link i is so many more
	Port  int      `json:"port"`  // UDP port of VXLAN

	Controllers []int  `json:"controllers,omitempty"` // machine of each controller
	Peers       *Peers `json:"peers,omitempty"`       // of a share that has a controller, or calls for a trunk

	Attach map[string]string `json:"attach,omitempty"` // interfaces of external hosts here

	Userspace []Pair `json:"userspace,omitempty"`

	Management bool `json:"management,omitempty"` // the lab has a management network
}

// Pair is two machines whose links are in user space.
type Pair struct {
	A   int    `json:"a"` // the lower number: it calls the other
	B   int    `json:"b"`
	Why string `json:"why"`
}

// Trunked reports whether the links between two machines are in user space.
func Trunked(all []Pair, a, b int) bool {
	return slices.ContainsFunc(all, func(p Pair) bool { return p.A == min(a, b) && p.B == max(a, b) })
}

// TrunkState is a share's end of the links in user space to another machine.
type TrunkState struct {
	To    int    `json:"to"` // that machine
	Error string `json:"error,omitempty"`
	trunk.Counters
}

// Peers is how a share reaches those of the same lab on other machines, through their daemons.
type Peers struct {
	Nodes       []string `json:"nodes"`       // IDs of the machines
	Port        int      `json:"port"`        // TCP port of the daemons
	Credentials []byte   `json:"credentials"` // trust.Credentials of this share
}

// Node is a node that was found.
type Node struct {
	Name string `json:"name"`
	PID  int    `json:"pid"` // on its machine
	Up   []bool `json:"up"`  // by port: whether the interface is there

	Managed bool `json:"managed,omitempty"` // it is on the management network
}

// Outside is the interface of an external host.
type Outside struct {
	Carrier bool `json:"carrier"`
	Index   int  `json:"index"`
}

// Answer is what comes back.
type Answer struct {
	Error   string   `json:"error,omitempty"`
	Nodes   []Node   `json:"nodes,omitempty"`
	Log     []byte   `json:"log,omitempty"`
	Busy    float64  `json:"busy,omitempty"` // in seconds
	Outside *Outside `json:"outside,omitempty"`

	Trunks []TrunkState `json:"trunks,omitempty"`
	// Came is the largest frame, in bytes, that has come in on each link that was tried.
	Came map[int]int `json:"came,omitempty"`
}

// messageMax bounds a message.
const messageMax = 8 << 20

func write(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil && len(b) > messageMax {
		err = fmt.Errorf("a message of %d bytes is longer than %d", len(b), messageMax)
	}
	if err == nil {
		_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	return err
}

func read(r io.Reader, v any) error {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > messageMax {
		return fmt.Errorf("a message of %d bytes is longer than %d", size, messageMax)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// ErrHungUp says that a connection ended before the answer came. A daemon that the Swarm starts again does that.
var ErrHungUp = errors.New("connection closed before the reply")

// Ask makes a request at the beginning of a connection.
func Ask(c net.Conn, q Request) (a Answer, err error) {
	if err = write(c, q); err == nil {
		err = read(c, &a)
	}
	switch {
	case errors.Is(err, io.EOF):
		return a, ErrHungUp
	case err != nil:
		return a, err
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

// Read takes the request at the beginning of a connection.
func Read(c net.Conn) (q Request, err error) {
	return q, read(c, &q)
}

// Reply answers it.
func Reply(c net.Conn, a Answer, err error) error {
	if err != nil {
		a.Error = err.Error()
	}
	return write(c, a)
}

// Join passes bytes both ways between two connections, and returns when both are closed: each is when the other has no more.
// first is what near is read by.
func Join(near, far net.Conn, first io.Reader) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(far, first) // whoever waits for the rest sees that it ends
		_ = far.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(near, far) // likewise
		_ = near.Close()
	})
	both.Wait()
}
