// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/drivers/sim"
)

// Relay is a server's end of a run of a lab that is spread over several (Server is the coordinator's). It shares memory
// with the nodes here as a coordinator does, and decides nothing.
type Relay struct {
	shared *shared
	rounds []uint32 // by node: number of its grant
	out    [][]int  // by node: numbers of its transmitters whose links leave the server
	taken  []uint64 // by number: frames whose announcements have been passed on
	in     []bool   // by number: it is elsewhere, and sends to a node here

	// Links, if set, returns the reason why the links to other servers are broken. It is called in each
	// round.
	Links func() error
}

// NewRelay makes the memory of the nodes that are local.
func NewRelay(cfg *sim.Config, local []bool) (*Relay, error) {
	s, err := newShared(cfg, local)
	if err != nil {
		return nil, err
	}
	r := &Relay{shared: s, rounds: make([]uint32, len(local)), out: make([][]int, len(local)), taken: make([]uint64, len(s.rings)), in: make([]bool, len(s.rings))}
	g := cfg.Graph
	id := 0
	for i := range g.Nodes {
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p).Node
			if local[i] != local[far] {
				if r.in[id] = !local[i]; local[i] {
					r.out[i] = append(r.out[i], id)
				}
				b, err := mapFile(int(s.files.ring[id].Fd()), ringSize, r.in[id]) // it is sealed later
				if err != nil {
					return nil, errors.Join(err, s.close())
				}
				s.rings[id] = ring{b}
			}
			id++
		}
	}
	return r, nil
}

// HandOver gives the nodes here the memory, as that of Coordinator does.
func (r *Relay) HandOver(give func(node int, files []*os.File) error) error {
	return r.shared.handOver(give)
}

// Close unmaps the memory.
func (r *Relay) Close() error { return r.shared.close() }

// Serve runs rounds until the connection ends.
func (r *Relay) Serve(conn net.Conn) error {
	rounds, over := make(chan []byte), make(chan struct{})
	defer func() { _ = conn.Close(); <-over }()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(over)
		defer close(rounds)
		b := bufio.NewReaderSize(conn, 64<<10)
		for {
			m, err := readMessage(b)
			if err != nil {
				return
			}
			select {
			case rounds <- m:
			case <-stop:
				return
			}
		}
	}()
	for m := range rounds {
		answer, err := r.round(conn, m, over)
		if err != nil {
			answer = append([]byte{sayError}, err.Error()...)
		}
		if err := errors.Join(err, writeMessage(conn, answer)); err != nil {
			return err
		}
	}
	return nil
}

// round runs one round, and returns the answer. It gives up when over is closed: no caller waits for it
// then.
func (r *Relay) round(conn net.Conn, m []byte, over <-chan struct{}) ([]byte, error) {
	if m[0] != sayRound {
		return nil, fmt.Errorf("a message of kind %q, which this version does not know", m[0])
	}
	x := cursor{b: m[1:]}
	var granted []int
	s := r.shared
	for range x.u32() {
		i := int(x.u32())
		if x.short || i >= len(s.local) || !s.local[i] {
			return nil, fmt.Errorf("a grant for node %d, which is not here", i)
		}
		g := s.grants[i]
		r.rounds[i] = x.u32()
		g.bound().Store(int64(x.u64()))
		g.step().Store(x.u32())
		g.orders().Store(x.u64())
		g.floor().Store(int64(x.u64()))
		granted = append(granted, i)
	}
	all := x.announced()
	if err := x.over(); err != nil {
		return nil, err
	}
	for _, a := range all {
		if err := r.announce(a); err != nil {
			return nil, err
		}
	}
	if err := r.links(); err != nil {
		return nil, err
	}
	told := time.Now()
	err := s.round(granted, func(i int) uint32 { return r.rounds[i] }, func(i int) error {
		select {
		case <-over:
			return errOver
		default:
		}
		if err := r.links(); err != nil {
			return err
		}
		if time.Since(told) < waitsEvery {
			return nil
		}
		told = time.Now()
		return writeMessage(conn, binary.NativeEndian.AppendUint32([]byte{sayWaits}, uint32(i)))
	})
	if err != nil {
		return nil, err
	}
	return r.tell(granted)
}

func (r *Relay) links() error {
	if r.Links == nil {
		return nil
	}
	return r.Links()
}

// announce passes on announcements from elsewhere to a node here.
func (r *Relay) announce(a announced) error {
	if a.id >= len(r.in) || !r.in[a.id] {
		return fmt.Errorf("frames are announced of transmitter %d, which sends to no node here from elsewhere", a.id)
	}
	g := r.shared.rings[a.id]
	for _, e := range a.entries {
		g.at(r.taken[a.id]).Store(e.at)
		g.tag(r.taken[a.id]).Store(e.tag)
		r.taken[a.id]++
	}
	g.tail().Store(r.taken[a.id])
	return nil
}

// tell returns the answer to a round: the reports of its nodes, and their announcements to other
// servers.
func (r *Relay) tell(granted []int) ([]byte, error) {
	b := []byte{sayDone}
	var all []announced
	for _, i := range granted {
		b = binary.NativeEndian.AppendUint32(b, uint32(i))
		s := r.shared.slots[i].region
		for at := 8; at < len(s); at += 8 {
			b = binary.NativeEndian.AppendUint64(b, uint64(s.i64(at).Load()))
		}
		for _, id := range r.out[i] {
			g, a := r.shared.rings[id], announced{id: id}
			tail := g.tail().Load()
			if tail < r.taken[id] || tail-r.taken[id] > ringEntries {
				return nil, fmt.Errorf("node %s announces %d frames, and %d have been taken: more than can be under way", r.shared.names[i], tail, r.taken[id])
			}
			for ; r.taken[id] < tail; r.taken[id]++ {
				a.entries = append(a.entries, entry{g.at(r.taken[id]).Load(), g.tag(r.taken[id]).Load()})
			}
			if len(a.entries) > 0 {
				all = append(all, a)
			}
		}
	}
	return appendAnnounced(b, all), nil
}
