// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/drivers/sim"
)

// shared is the shared memory of the nodes of one server, as the process sees it that lets them advance.
type shared struct {
	files  files
	bell   bell
	local  []bool // by node: whether it is on this server
	names  []string
	grants []grant // by node; nil: it is elsewhere
	slots  []slot
	rings  []ring // by number of the transmitter: those of links that leave the server, both directions
}

// newShared makes the memory of the nodes that are local, and of the links at their ports.
func newShared(cfg *sim.Config, local []bool) (_ *shared, err error) {
	g := cfg.Graph
	s := &shared{local: local, grants: make([]grant, len(g.Nodes)), slots: make([]slot, len(g.Nodes))}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	f := &s.files
	if f.bell, err = newFile("mcastlab bell", bellSize); err != nil {
		return nil, err
	}
	b, err := mapFile(int(f.bell.Fd()), bellSize, true)
	if err != nil {
		return nil, err
	}
	s.bell = bell{b}
	var first []int // by node: number of its first transmitter
	for i := range g.Nodes {
		first = append(first, len(f.ring))
		s.names = append(s.names, g.Nodes[i].Name)
		if err := s.addNode(cfg, i); err != nil {
			return nil, err
		}
	}
	s.rings = make([]ring, len(f.ring))
	for i := range g.Nodes {
		var own, peers []int
		for p := range g.Nodes[i].Links {
			far := g.Peer(i, p)
			own, peers = append(own, first[i]+p), append(peers, first[far.Node]+far.Port)
		}
		f.ports, f.peers = append(f.ports, own), append(f.peers, peers)
	}
	return s, nil
}

// addNode makes the memory of a node, and that of its links in which frames of it are announced, or frames to it.
func (s *shared) addNode(cfg *sim.Config, i int) (err error) {
	n, f := &cfg.Graph.Nodes[i], &s.files
	var g, t *os.File
	if s.local[i] {
		if g, err = newFile("mcastlab grant "+n.Name, grantSize); err != nil {
			return err
		}
		f.grant = append(f.grant, g)
		b, err := mapFile(int(g.Fd()), grantSize, true)
		if err != nil {
			return err
		}
		s.grants[i] = grant{b}
		if t, err = newFile("mcastlab slot "+n.Name, slotSize(len(n.Links))); err != nil {
			return err
		}
		f.slot = append(f.slot, t)
	} else {
		f.grant, f.slot = append(f.grant, nil), append(f.slot, nil)
	}
	for p := range n.Links {
		var r *os.File
		if s.local[i] || s.local[cfg.Graph.Peer(i, p).Node] {
			if r, err = newFile(fmt.Sprintf("mcastlab ring %s:%d", n.Name, p), ringSize); err != nil {
				return err
			}
		}
		f.ring = append(f.ring, r)
	}
	return nil
}

// handOver gives every local node the files. Rings that this process writes have been mapped before.
func (s *shared) handOver(give func(node int, files []*os.File) error) error {
	f := &s.files
	for i, here := range s.local {
		if !here {
			continue
		}
		if err := give(i, f.written(i)); err != nil {
			return fmt.Errorf("hand shared memory to node %s: %w", s.names[i], err)
		}
	}
	for _, x := range append(append(append([]*os.File{}, f.grant...), f.slot...), f.ring...) {
		if x == nil {
			continue
		}
		if err := seal(x); err != nil {
			return err
		}
	}
	for i, here := range s.local {
		if !here {
			continue
		}
		b, err := mapFile(int(f.slot[i].Fd()), slotSize(len(f.ports[i])), false)
		if err != nil {
			return err
		}
		s.slots[i] = slot{b}
		if err := give(i, f.read(i)); err != nil {
			return fmt.Errorf("hand shared memory to node %s: %w", s.names[i], err)
		}
	}
	return f.close()
}

// round wakes nodes whose grants have been written, all but the numbers, and waits until they have used them up. While it
// waits it repeatedly calls wait with the node that it waits for; an error ends the wait.
func (s *shared) round(granted []int, number func(node int) uint32, wait func(node int) error) error {
	s.bell.running().Store(uint32(len(granted)))
	for _, i := range granted {
		s.grants[i].round().Store(number(i))
		wake(s.grants[i].round())
	}
	begin := time.Now()
	for _, i := range granted {
		for s.slots[i].round().Load() != number(i) {
			if v := s.bell.running().Load(); v != 0 {
				sleep(s.bell.running(), v, look)
			} else {
				time.Sleep(time.Millisecond) // the bell has rung too early
			}
			if time.Since(begin) < look {
				continue
			}
			if err := wait(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// close unmaps the memory.
func (s *shared) close() error {
	err := errors.Join(s.files.close(), s.bell.unmap())
	for i := range s.grants {
		err = errors.Join(err, s.grants[i].unmap(), s.slots[i].unmap())
	}
	for _, r := range s.rings {
		err = errors.Join(err, r.unmap())
	}
	*s = shared{}
	return err
}
