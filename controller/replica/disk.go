package replica

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// snapshotsKept is how many snapshots stay on the disk.
const snapshotsKept = 2

// lockWait bounds how long the log may be in another process's hands.
const lockWait = 5 * time.Second

// disk keeps raft's log and what it must not forget. The first write that fails is the last:
// what a disk that has failed once says of later ones is not to be believed.
type disk struct {
	*raftboltdb.BoltStore
	snapshots raft.SnapshotStore
	fail      func(error)

	mu     sync.Mutex
	broken error
}

func openDisk(dir string, log hclog.Logger, fail func(error)) (*disk, error) {
	b, err := raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "raft.db"), BoltOptions: &bbolt.Options{Timeout: lockWait}})
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	s, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, log)
	if err != nil {
		_ = b.Close() // nothing has been written
		return nil, fmt.Errorf("open the snapshots in %s: %w", dir, err)
	}
	return &disk{BoltStore: b, snapshots: s, fail: fail}, nil
}

// write does a write if none has failed yet.
func (d *disk) write(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	if err := f(); err != nil {
		d.broken = fmt.Errorf("write the log: %w", err)
		d.fail(d.broken)
	}
	return d.broken
}

// StoreLog implements raft.LogStore.
func (d *disk) StoreLog(l *raft.Log) error {
	return d.write(func() error { return d.BoltStore.StoreLog(l) })
}

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(l []*raft.Log) error {
	return d.write(func() error { return d.BoltStore.StoreLogs(l) })
}

// DeleteRange implements raft.LogStore.
func (d *disk) DeleteRange(from, to uint64) error {
	return d.write(func() error { return d.BoltStore.DeleteRange(from, to) })
}

// Set implements raft.StableStore.
func (d *disk) Set(k, v []byte) error { return d.write(func() error { return d.BoltStore.Set(k, v) }) }

// SetUint64 implements raft.StableStore.
func (d *disk) SetUint64(k []byte, v uint64) error {
	return d.write(func() error { return d.BoltStore.SetUint64(k, v) })
}
