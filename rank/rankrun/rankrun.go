// SPDX-License-Identifier: Apache-2.0

// Package rankrun has the calls of package rank for runtimes and built-in algorithms, which user
// programs do not need: it starts and runs ranks, and adds calls on ranks, groups, connections and
// buffers.
package rankrun

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Start returns a rank. A runtime calls it from the rank's own task.
func Start(c rankhost.Config) (*rank.Rank, error) {
	r, err := rankhost.Hooks.Start(c)
	if err != nil {
		return nil, err
	}
	return r.(*rank.Rank), nil
}

// Run runs a rank's program and returns its error. It also returns a failure that ended a wait
// which returns no error.
func Run(program func() error) error { return rankhost.Hooks.Run(program) }

// Of returns the further calls on a rank.
func Of(r *rank.Rank) Rank { return rankhost.Hooks.Inside(r).(Rank) }

// OfGroup returns the further calls on a group.
func OfGroup(g *rank.Group) Group { return rankhost.Hooks.Inside(g).(Group) }

// OfConn returns the further calls on a connection.
func OfConn(c *rank.Conn) Conn { return rankhost.Hooks.Inside(c).(Conn) }

// OfBuffer returns the further calls on a buffer.
func OfBuffer(b *rank.Buffer) Buffer { return rankhost.Hooks.Inside(b).(Buffer) }

// Rank is the further calls on a rank.
type Rank interface {
	// Params returns the settings of the rank's queue pairs.
	Params() rankhost.Params
	// SetTrafficClass sets the traffic class of connections made from now on.
	SetTrafficClass(c uint8)
	// SetTimeout raises the retransmission timeout of connections made from now on to at
	// least d.
	SetTimeout(d vtime.Duration)

	// Common returns the value of a name, which all views of the rank share. The first call makes it.
	Common(name string, make func() any) any

	// Open returns those of some sends, in their order and in the same memory, for which Wait has anything to do.
	Open(sends []*rank.Request) []*rank.Request

	// Emit hands a record of measurements to the runtime.
	Emit(record []byte)
	// Record emits a record of a user's program.
	Record(x rankhost.Record)
	// NoteLost records in the run's events that a rank has been given up.
	NoteLost(rank int, why string)

	// Break ends all outstanding requests of the rank's connections with an error, and all later ones
	// too. When it returns, nothing lands in buffers any more. Peers get no notice; to them the rank is
	// silent.
	Break()
	// Abandon is Close for a program that stopped early or with an error. It may be called
	// from any task of the host once the rank's own tasks have stopped.
	Abandon()
	// LookOver reports whether cond holds, as Look does, for the requests of several views of
	// the rank (Sub). It takes completions only of the views given; the rank itself counts
	// only if it is one of them.
	LookOver(until vtime.Time, why string, views []*rank.Rank, cond func() bool) bool

	// Address returns the address of a rank's host.
	Address(rank int) uint32
	// Tell publishes a step for the operator of an external host. Each step of a job needs a
	// key of its own.
	Tell(key string, s rankhost.Step)
	// TellMemory gives the operator the memory of this rank that the device may write to, read and do
	// atomics on.
	TellMemory(rank int, b *rank.Buffer)
	// AwaitExternal blocks until the external host is ready to receive from the address that
	// it is connected to. If it never gets ready, the run ends.
	AwaitExternal(rank int, address uint32)
	// Finish blocks until the external hosts have all that f names, or come no further, and
	// returns those of the latter. All ranks call it with the same key, which no other call in
	// the job has, and one of them with f.
	Finish(key string, f *rankhost.Finish) []rankhost.Lack

	// NewPair returns datagrams between the rank and another one. Both must call it with the same name.
	NewPair(name string, peer, depth int) (*rank.Multicast, error)

	// SetBranches fills the switches' multicast tables with these entries, which replace all
	// entries of the previous call. It returns rankhost.ErrSubnet where the runtime cannot.
	SetBranches(entries []wire.MulticastEntry) error
	// Unwanted returns the number of packets that this host's NIC has dropped because no queue pair
	// took them: duplicates, or copies to hosts that are not members.
	Unwanted() uint64
}

// Group is the further calls on a group.
type Group interface {
	// Acknowledged returns the number of the source's packets that all members have acknowledged. Only
	// the source may call it.
	Acknowledged() (packets uint64)
	// Expects returns the PSN that this member expects next.
	Expects() (psn uint32)
	// Sent returns the PSN of the last packet that the source has posted. Only the source may
	// call it.
	Sent() (psn uint32)
	// Received returns the PSN of the last packet that this member has got in order.
	Received() (psn uint32)
	// NoteFallback records in the run's events that the group has left multicast. epoch is
	// the number of the epoch that ended.
	NoteFallback(epoch int, cause string)
	// NoteProbe records why a group that was registered again is not used.
	NoteProbe(epoch int, why string)
	// NoteReturn records that the group uses multicast again. without lists the ranks that
	// are not served by it.
	NoteReturn(epoch int, without string)
}

// Conn is the further calls on a connection.
type Conn interface {
	// Probe starts to find out whether the peer's NIC answers, by a WRITE of length zero.
	// The request fails when the NIC has used up its retries.
	Probe(b *rank.Buffer) (*rank.Request, error)
	// Sent returns the PSN of the last packet posted, Received that of the last one that came
	// in order.
	Sent() (psn uint32)
	Received() (psn uint32)
}

// Buffer is the further calls on a buffer.
type Buffer interface {
	// Forget undoes the partial receipt of a message: it clears the first n bytes of the
	// buffer as before the message.
	Forget(n int)
}

// Outlet sends UC messages to one address.
type Outlet interface {
	// Send starts to send n bytes of the buffer from off as one message. The request
	// completes when its last packet starts on the wire.
	Send(b *rank.Buffer, off, n int) (*rank.Request, error)
	// Close destroys the outlet; messages that have not been sent yet are lost.
	Close() error
}

// NewOutlet returns an outlet to a host's address and the queue pair of an inlet there. If the
// address is that of an IPv4 multicast group, messages go to all inlets attached to the group.
func NewOutlet(r *rank.Rank, ip uint32, qpn wire.QPN) (Outlet, error) {
	o, err := rankhost.Hooks.Inside(r).(interface {
		NewOutlet(ip uint32, qpn wire.QPN) (any, error)
	}).NewOutlet(ip, qpn)
	if err != nil {
		return nil, err
	}
	return o.(Outlet), nil
}

// Inlet receives the UC messages of another rank.
type Inlet interface {
	// QPN returns the queue pair number that outlets send to.
	QPN() wire.QPN
	// Attach makes the inlet receive the peer's messages to a multicast group.
	Attach(group uint32) error
	// Recv posts a receive: the next message lands in n bytes of the buffer at off.
	Recv(b *rank.Buffer, off, n int) (*rank.Request, error)
	// Close destroys the inlet.
	Close() error
}

// NewInlet returns an inlet for messages of a rank.
func NewInlet(r *rank.Rank, peer int) (Inlet, error) {
	i, err := rankhost.Hooks.Inside(r).(interface {
		NewInlet(peer int) (any, error)
	}).NewInlet(peer)
	if err != nil {
		return nil, err
	}
	return i.(Inlet), nil
}
