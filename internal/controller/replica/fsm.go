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

// look calls f with the state, which it must not keep or change, and returns what is closed
// at the next change.
func (m *machine) look(f func(*controller.State)) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m.state)
	return m.news
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
