// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The files of a run's shared memory reach a node in two steps. First come those that it writes,
// which it maps; then the orchestrator seals all regions, and those come that it reads.

// files are the files of the shared memory of a run. Those that no node here uses are nil.
type files struct {
	bell         *os.File
	grant, slot  []*os.File
	ring         []*os.File // by number of the transmitter
	ports, peers [][]int    // by node and port: numbers of the transmitters here and at the far end
}

// Written returns the files that a node writes, in the order in which NewNodeMemory takes them.
func (f *files) written(node int) []*os.File {
	all := []*os.File{f.bell, f.slot[node]}
	for _, id := range f.ports[node] {
		all = append(all, f.ring[id])
	}
	return all
}

// read returns the files that a node reads, in the order in which NodeMemory.Read takes them.
func (f *files) read(node int) []*os.File {
	all := []*os.File{f.grant[node]}
	for _, id := range f.peers[node] {
		all = append(all, f.ring[id])
	}
	return all
}

func (f *files) close() (err error) {
	all := append(append(append([]*os.File{f.bell}, f.grant...), f.slot...), f.ring...)
	for _, x := range all {
		if x != nil {
			err = errors.Join(err, x.Close())
		}
	}
	*f = files{}
	return err
}

// NodeMemory is the shared memory of a run as one node sees it: its own, and that of its links.
type NodeMemory struct {
	bell  bell
	slot  slot
	grant grant
	out   []ring
	in    []ring
}

// NewNodeMemory maps the memory that a node writes. It closes the descriptors.
func NewNodeMemory(fds []int) (_ *NodeMemory, err error) {
	defer closeFDs(fds)
	if len(fds) < 3 {
		return nil, fmt.Errorf("shared memory in %d files: a node has 3 at least", len(fds))
	}
	m := &NodeMemory{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	b, err := mapFile(fds[0], bellSize, true)
	if err != nil {
		return nil, err
	}
	m.bell = bell{b}
	if b, err = mapFile(fds[1], slotSize(len(fds)-2), true); err != nil {
		return nil, err
	}
	m.slot = slot{b}
	for _, fd := range fds[2:] {
		if b, err = mapFile(fd, ringSize, true); err != nil {
			return nil, err
		}
		m.out = append(m.out, ring{b})
	}
	return m, nil
}

// Read maps the memory that the node reads. It closes the descriptors.
func (m *NodeMemory) Read(fds []int) error {
	defer closeFDs(fds)
	if len(fds) != 1+len(m.out) || m.grant.region != nil {
		return fmt.Errorf("shared memory to read in %d files: a node of %d ports has one more than ports, once", len(fds), len(m.out))
	}
	b, err := mapFile(fds[0], grantSize, false)
	if err != nil {
		return err
	}
	m.grant = grant{b}
	for _, fd := range fds[1:] {
		if b, err = mapFile(fd, ringSize, false); err != nil {
			return err
		}
		m.in = append(m.in, ring{b})
	}
	return nil
}

// Ports returns the number of the node's ports.
func (m *NodeMemory) Ports() int { return len(m.out) }

// Lacks reports whether the node still waits for the memory that it reads, of which that number of
// files has come. A run that ended before may have left memory that lacks it, and the next run begins
// with a file more.
func (m *NodeMemory) Lacks(files int) bool { return !m.Complete() && files == 1+m.Ports() }

// Complete reports whether the memory that the node reads is mapped, too.
func (m *NodeMemory) Complete() bool { return len(m.in) == len(m.out) }

// Close unmaps everything.
func (m *NodeMemory) Close() error {
	err := errors.Join(m.bell.unmap(), m.slot.unmap(), m.grant.unmap())
	for _, r := range append(m.out, m.in...) {
		err = errors.Join(err, r.unmap())
	}
	*m = NodeMemory{}
	return err
}

func closeFDs(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // the mapping remains
	}
}
