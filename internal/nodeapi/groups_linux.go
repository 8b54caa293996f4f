// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// The requests of an operator at the ProgramSocket, which only root may make; package nodeagent/verbs describes them.
const (
	groupMember   = 97
	groupRegister = 98
	groupStatus   = 99
	groupOffer    = 101
	groupRun      = 102
	groupServe    = 103
	groupGrant    = 104
)

// GID is an address as programs see it.
type GID [16]byte

// GroupStatus is a host's state of a group.
type GroupStatus struct {
	QPN            uint32 // of its member; 0: there is none
	Active, Failed bool   // its registration here
}

// Numbers of mrp.Phase.
const (
	phaseActive = 3
	phaseFailed = 7
)

// Groups is a connection that offers groups to the programs on a host. What it has offered goes when it is closed. Several
// goroutines may use it.
type Groups struct {
	mu   sync.Mutex
	conn io.ReadWriteCloser
}

// NewGroups returns the groups of a connection to a host's ProgramSocket. Each of its reads and writes is of one message.
func NewGroups(conn io.ReadWriteCloser) *Groups { return &Groups{conn: conn} }

// DialProgram connects to a host's ProgramSocket.
func DialProgram(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
}

// Close withdraws all offers.
func (g *Groups) Close() error { return g.conn.Close() }

// Offer lets the programs at the host take part in a group. If bound, the caller has one of the hosts register it, their messages wait
// for Run, and the group is there until Close. Else a program registers it, and it ends with that.
func (g *Groups) Offer(group GID, bound bool) error {
	flag := uint32(0)
	if bound {
		flag = 1
	}
	_, err := g.ask(binary.LittleEndian.AppendUint32(request(groupOffer, group), flag))
	return err
}

// Member makes a queue pair at a host a member of a group that this host is to register.
func (g *Groups) Member(group, host GID, qpn uint32) error {
	b := append(request(groupMember, group), host[:]...)
	_, err := g.ask(binary.LittleEndian.AppendUint32(b, qpn))
	return err
}

// Register starts to install a group in the fabric.
func (g *Groups) Register(group GID) error {
	_, err := g.ask(request(groupRegister, group))
	return err
}

// Run releases the messages that wait to be sent to a group.
func (g *Groups) Run(group GID) error {
	_, err := g.ask(request(groupRun, group))
	return err
}

// Status returns the host's state of a group.
func (g *Groups) Status(group GID) (s GroupStatus, err error) {
	r, err := g.ask(request(groupStatus, group))
	if err != nil {
		return s, err
	}
	phase := binary.LittleEndian.Uint32(r[4:])
	return GroupStatus{QPN: binary.LittleEndian.Uint32(r[8:]), Active: phase == phaseActive, Failed: phase == phaseFailed}, nil
}

func request(op uint32, group GID) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, op), group[:]...)
}

// replyLen is the length of a reply: an error's number, and three numbers.
const replyLen = 16

func (g *Groups) ask(b []byte) (r [replyLen]byte, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err = g.conn.Write(b); err != nil {
		return r, err
	}
	return readReply(g.conn)
}

func readReply(conn io.Reader) (r [replyLen]byte, err error) {
	n, err := conn.Read(r[:])
	if err == nil && n != replyLen {
		err = errors.New("the node has closed the connection")
	}
	if err == nil {
		if e := binary.LittleEndian.Uint32(r[:]); e != 0 {
			err = unix.Errno(e)
		}
	}
	return r, err
}

// LeaseGroups gives the programs on a host groups when they want one: lease returns the next, which is offered at all hosts that are to
// take part. It returns when the connection, which the caller may close, has ended. ready is called once programs can connect.
func LeaseGroups(conn io.ReadWriter, ready func(), lease func() (GID, error)) error {
	if _, err := conn.Write(binary.LittleEndian.AppendUint64(nil, groupServe)); err != nil {
		return err
	}
	if _, err := readReply(conn); err != nil {
		return fmt.Errorf("hear what groups programs want: %w", err)
	}
	ready()
	for {
		if _, err := readReply(conn); err != nil {
			return nil // it has ended
		}
		status := uint32(0)
		group, err := lease()
		if err != nil {
			status = uint32(unix.ENOSPC)
		}
		b := binary.LittleEndian.AppendUint32(nil, groupGrant)
		b = binary.LittleEndian.AppendUint32(b, status)
		b = append(b, make([]byte, replyLen-4)...)
		if _, err := conn.Write(append(b, group[:]...)); err != nil {
			return nil // it has ended
		}
	}
}
