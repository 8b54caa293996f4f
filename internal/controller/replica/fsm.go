// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/mcastlab/mcastlab/internal/controller"
)

// snapshotMax bounds the size of a snapshot that is read, in bytes.
const snapshotMax = 256 << 20

// machine is the controller's state machine as driven by raft. Applying does no I/O, since entries
// are applied again after a restart.
type machine struct {
	mu    sync.Mutex
	state *controller.State
	news  chan struct{} // closed at the next change
}

func newMachine() *machine { return &machine{state: controller.New(), news: make(chan struct{})} }

// Apply implements raft.FSM. An entry that this version does not understand ends the replica:
// were it left out, replicas would differ.
func (m *machine) Apply(entry *raft.Log) any {
	c, err := controller.DecodeCommand(entry.Data)
	if err != nil {
		panic(fmt.Sprintf("entry %d of the log: %v", entry.Index, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.state.Apply(entry.Term, c)
	m.signal()
	return r
}

func (m *machine) signal() {
	close(m.news)
	m.news = make(chan struct{})
}

// Snapshot implements raft.FSM. It encodes the state at once, since it is written concurrently
// with Apply.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := m.state.Encode()
	return image(b), err
}

// Restore implements raft.FSM: the new state takes the place of the old one as a whole, or
// not at all.
func (m *machine) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(io.LimitReader(r, snapshotMax+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	if len(b) > snapshotMax {
		return fmt.Errorf("read snapshot: it is larger than %d bytes", snapshotMax)
	}
	s, err := controller.DecodeState(b)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = s
	m.signal()
	return nil
}

// read returns the state's bytes.
func (m *machine) read() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Encode()
}

// look calls f with the state, which f must not keep or change, and returns a channel that is
// closed at the next change.
func (m *machine) look(f func(*controller.State)) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.state)
	return m.news
}

// understood returns an error if the log or the newest snapshot is of another version. It is called
// before raft applies entries: an entry unknown to Apply ends the process with a trace.
func (d *disk) understood() error {
	other := func(err error) error {
		return fmt.Errorf("the log in %s is of another version: %w: destroy the lab with the version that brought it up, or wipe, and deploy it again", d.dir, err)
	}
	all, err := d.snapshots.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	for _, s := range all[:min(1, len(all))] {
		_, r, err := d.snapshots.Open(s.ID)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", s.ID, err)
		}
		if err := newMachine().Restore(r); err != nil {
			return other(err)
		}
	}
	first, err := d.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	last, err := d.LastIndex()
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for i := first; first > 0 && i <= last; i++ {
		var l raft.Log
		if err := d.entry(i, &l); err != nil {
			return damaged(d.dir, fmt.Errorf("entry %d: %w", i, err))
		}
		if l.Type != raft.LogCommand {
			continue
		}
		if _, err := controller.DecodeCommand(l.Data); err != nil {
			return other(fmt.Errorf("entry %d: %w", i, err))
		}
	}
	return nil
}

// image is a snapshot that is to be written.
type image []byte

// Persist implements raft.FSMSnapshot.
func (i image) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(i); err != nil {
		return errors.Join(fmt.Errorf("write snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// Release implements raft.FSMSnapshot.
func (image) Release() {}
