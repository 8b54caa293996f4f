// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/drivers/sim"
)

// A lab may be spread over servers. The coordinator then has no memory in common with nodes: each server has a
// Relay, which has it, and both ends of a round travel as one message each. A round's message to a server has the
// grants of its nodes, and the announcements to them on links from other servers; the answer has the reports of
// those nodes, and their announcements to other servers. Frames travel separately.
//
// All numbers are in the byte order of the server, as in the shared memory whose content they are; servers of one
// testbed have the same architecture.

// Kinds of messages. Each is preceded by its length in 4 bytes.
const (
	sayRound = 'R' // to a Relay
	sayDone  = 'D' // from it: the round is over
	sayWaits = 'W' // from it: a node has not finished its grant yet
	sayError = 'E' // from it: why it is over for good
)

// sayMax bounds a message.
const sayMax = 64 << 20

// silenceMax is the time that a server may be silent while it has a round, and waitsEvery the interval at which it
// reports that it waits.
const (
	silenceMax = 30 * time.Second
	waitsEvery = time.Second
)

func writeMessage(w io.Writer, b []byte) error {
	if len(b) > sayMax {
		return fmt.Errorf("a message of %d bytes is longer than %d", len(b), sayMax)
	}
	_, err := w.Write(append(binary.NativeEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

func readMessage(r *bufio.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(n[:])
	if size == 0 || size > sayMax {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

// cursor reads the fields of a message. A field that is not there is zero, and leaves short.
type cursor struct {
	b     []byte
	short bool
}

func (c *cursor) bytes(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.short, c.b = true, nil
		return make([]byte, min(max(n, 0), 1<<12))
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u32() uint32 { return binary.NativeEndian.Uint32(c.bytes(4)) }
func (c *cursor) u64() uint64 { return binary.NativeEndian.Uint64(c.bytes(8)) }

// over returns an error unless the message has been read to its end.
func (c *cursor) over() error {
	if c.short || len(c.b) > 0 {
		return errors.New("a message that this version does not know")
	}
	return nil
}

// announced are the frames that have been announced on one link direction since the last round.
type announced struct {
	id      int // number of the transmitter
	entries []entry
}

type entry struct {
	at  int64
	tag uint64
}

func appendAnnounced(b []byte, all []announced) []byte {
	b = binary.NativeEndian.AppendUint32(b, uint32(len(all)))
	for _, a := range all {
		b = binary.NativeEndian.AppendUint32(b, uint32(a.id))
		b = binary.NativeEndian.AppendUint32(b, uint32(len(a.entries)))
		for _, e := range a.entries {
			b = binary.NativeEndian.AppendUint64(b, uint64(e.at))
			b = binary.NativeEndian.AppendUint64(b, e.tag)
		}
	}
	return b
}

func (c *cursor) announced() (all []announced) {
	for range c.u32() {
		a := announced{id: int(c.u32())}
		n := c.u32()
		if n > ringEntries || c.short {
			c.short = true
			return nil
		}
		for range n {
			a.entries = append(a.entries, entry{int64(c.u64()), c.u64()})
		}
		all = append(all, a)
	}
	return all
}

// Server is one of the servers that a lab is spread over, as the coordinator sees it.
type Server struct {
	name    string
	conn    net.Conn
	said    chan []byte // messages from it; closed when there are no more
	err     error       // why, once said is closed
	granted []int       // of the round
	pending []announced // to its nodes
}

// NewServer returns the server whose Relay is at the other end of a connection.
func NewServer(name string, conn net.Conn) *Server {
	said := make(chan []byte, 16)
	m := &Server{name: name, conn: conn, said: said}
	go func() {
		defer close(said)
		r := bufio.NewReaderSize(conn, 64<<10)
		for {
			b, err := readMessage(r)
			if err != nil {
				m.err = err
				return
			}
			said <- b
		}
	}()
	return m
}

// Close ends the connection, and its reader.
func (m *Server) Close() error {
	err := m.conn.Close()
	for range m.said {
		continue // messages under way
	}
	return err
}

// far is the coordinator's state of a lab that is spread.
type far struct {
	servers []*Server
	at      []int // server of each node
	owner   []int // by number of a transmitter: its node
	peer    []int // and the node at the far end
}

// NewSpread makes a coordinator of a lab whose node i is on server at[i]. The nodes have been handed their memory by the
// relays of these servers. Close ends the connections.
func NewSpread(cfg *sim.Config, servers []*Server, at []int) (*Coordinator, error) {
	c, err := newCoordinator(cfg)
	if err != nil {
		return nil, err
	}
	g := cfg.Graph
	c.far = &far{servers: servers, at: at}
	for i := range g.Nodes {
		b, err := ownMemory(grantSize)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.nodes[i].grant = grant{b}
		if b, err = ownMemory(slotSize(len(g.Nodes[i].Links))); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.nodes[i].slot = slot{b}
		for p := range g.Nodes[i].Links {
			c.far.owner, c.far.peer = append(c.far.owner, i), append(c.far.peer, g.Peer(i, p).Node)
		}
	}
	return c, nil
}

// ownMemory is memory of this process alone: a copy of memory that is shared elsewhere.
func ownMemory(size int) (region, error) {
	return unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
}

// roundFar lets the relays run a round.
func (c *Coordinator) roundFar() error {
	f := c.far
	for _, i := range c.ledger.Granted() {
		m := f.servers[f.at[i]]
		m.granted = append(m.granted, i)
	}
	for _, m := range f.servers {
		if len(m.granted) == 0 {
			continue
		}
		b := c.roundOf(m)
		if err := writeMessage(m.conn, b); err != nil {
			return c.lost(m, err)
		}
		c.rounds.Bytes += uint64(len(b))
		m.pending = m.pending[:0]
	}
	for _, m := range f.servers {
		if len(m.granted) == 0 {
			continue
		}
		if err := c.await(m); err != nil {
			return err
		}
		m.granted = m.granted[:0]
	}
	return nil
}

// lost returns the error of a run that has lost a server.
func (c *Coordinator) lost(m *Server, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = errors.New("its part of the run has ended")
	}
	return fmt.Errorf("server %s, at %v of lab time: %w", m.name, c.Now(), err)
}

// roundOf is the message of a round to a server.
func (c *Coordinator) roundOf(m *Server) []byte {
	b := []byte{sayRound}
	b = binary.NativeEndian.AppendUint32(b, uint32(len(m.granted)))
	for _, i := range m.granted {
		n := &c.nodes[i]
		b = binary.NativeEndian.AppendUint32(b, uint32(i))
		b = binary.NativeEndian.AppendUint32(b, n.round)
		b = binary.NativeEndian.AppendUint64(b, uint64(n.grant.bound().Load()))
		b = binary.NativeEndian.AppendUint32(b, n.grant.step().Load())
		b = binary.NativeEndian.AppendUint64(b, n.grant.orders().Load())
		b = binary.NativeEndian.AppendUint64(b, uint64(n.grant.floor().Load()))
	}
	return appendAnnounced(b, m.pending)
}

// await waits for a server's answer to a round.
func (c *Coordinator) await(m *Server) error {
	begin := time.Now()
	counted, heard := begin, begin // wall clock from which a node's wait, and the server's silence count
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case b, open := <-m.said:
			if !open {
				return c.lost(m, m.err)
			}
			heard = time.Now()
			c.rounds.Bytes += uint64(len(b))
			done, node, err := c.heard(m, b)
			switch {
			case err != nil:
				return c.lost(m, err)
			case done:
				return nil
			case c.streams.Stopped(node, time.Since(begin)):
				counted = time.Now()
			}
			if time.Since(counted) > 2*PatienceDefault {
				return fmt.Errorf("node %s has not come to the end of its round within %v", c.nodes[node].name, 2*PatienceDefault)
			}
		case <-tick.C:
			if err := c.streams.Alive(); err != nil {
				return err
			}
			if time.Since(heard) > silenceMax {
				return c.lost(m, fmt.Errorf("nothing has been heard of it for %v", silenceMax))
			}
		}
	}
}

// heard takes a message of a server. done marks that its round is over; else node has not finished.
func (c *Coordinator) heard(m *Server, b []byte) (done bool, node int, err error) {
	x := cursor{b: b[1:]}
	switch b[0] {
	case sayWaits:
		node = int(x.u32())
		if err := x.over(); err != nil {
			return false, 0, err
		}
		if !slices.Contains(m.granted, node) {
			return false, 0, fmt.Errorf("it waits for node %d, which has no grant", node)
		}
		return false, node, nil
	case sayDone:
		return true, 0, c.takeDone(m, &x)
	case sayError:
		return false, 0, errors.New(string(x.b))
	}
	return false, 0, fmt.Errorf("a message of kind %q, which this version does not know", b[0])
}

// takeDone records the reports of a server's nodes after a round.
func (c *Coordinator) takeDone(m *Server, x *cursor) error {
	for _, i := range m.granted {
		s := c.nodes[i].slot
		if s.round().Store(c.nodes[i].round); int(x.u32()) != i {
			return errors.New("it tells of a node that has no grant")
		}
		copy(s.region[8:], x.bytes(len(s.region)-8))
	}
	f := c.far
	for _, a := range x.announced() {
		if a.id >= len(f.owner) || f.servers[f.at[f.owner[a.id]]] != m || f.servers[f.at[f.peer[a.id]]] == m {
			return fmt.Errorf("it announces frames of transmitter %d, which is no end of a link that leaves it", a.id)
		}
		to := f.servers[f.at[f.peer[a.id]]]
		to.pending = append(to.pending, a)
	}
	return x.over()
}
