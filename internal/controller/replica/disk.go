// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// snapshotsKept is the number of snapshots that stay on the disk.
const snapshotsKept = 2

// lockWait bounds how long another process may hold the log's lock.
const lockWait = 5 * time.Second

// disk keeps raft's log and its stable values. The first write that fails is the last, since a disk's
// reports about writes after a failure cannot be trusted. A read returns the written bytes, or the
// replica ends, since a flipped bit must not become a command.
type disk struct {
	*raftboltdb.BoltStore
	dir       string
	snapshots raft.SnapshotStore
	fail      func(error)
	started   atomic.Bool // raft has started, and reads on goroutines of its own
	stuck     atomic.Bool // one of those goroutines has read a damaged value

	mu     sync.Mutex
	broken error
}

func openDisk(dir string, log hclog.Logger, fail func(error)) (*disk, error) {
	path := filepath.Join(dir, "raft.db")
	if err := verifyFile(path); err != nil {
		return nil, damaged(dir, err)
	}
	b, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: &bbolt.Options{Timeout: lockWait}})
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	s, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsKept, log)
	if err != nil {
		_ = b.Close() // nothing has been written
		return nil, fmt.Errorf("open the snapshots in %s: %w", dir, err)
	}
	d := &disk{BoltStore: b, dir: dir, snapshots: s, fail: fail}
	if err := d.verifyEntries(dir); err != nil {
		_ = b.Close() // nothing has been written
		return nil, damaged(dir, err)
	}
	return d, nil
}

// damaged returns the error for a log that differs from the written one, with the remedy. The replica
// must not continue with it, nor silently without it: it would vote twice and forget its promises.
func damaged(dir string, err error) error {
	const remedy = "if most of the other controllers are well, remove the folder and deploy the lab again: they bring it up to date"
	return fmt.Errorf("the log in %s is damaged: %w: %s", dir, err, remedy)
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
func (d *disk) StoreLog(l *raft.Log) error { return d.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (d *disk) StoreLogs(l []*raft.Log) error {
	all := make([]*raft.Log, len(l))
	for i := range l {
		all[i] = sealed(l[i])
	}
	return d.write(func() error { return d.BoltStore.StoreLogs(all) })
}

// GetLog implements raft.LogStore.
func (d *disk) GetLog(index uint64, l *raft.Log) error {
	err := d.entry(index, l)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	return d.unreadable(fmt.Errorf("entry %d: %w", index, err))
}

// entry reads an entry.
func (d *disk) entry(index uint64, l *raft.Log) error {
	if err := d.BoltStore.GetLog(index, l); err != nil {
		return err
	}
	return unseal(index, l)
}

// unreadable ends the replica. Raft would end the process at once if it got the error, with a trace of
// its own: its goroutine ends instead, and its callers are left waiting.
func (d *disk) unreadable(err error) error {
	err = damaged(d.dir, err)
	if d.started.Load() {
		d.stuck.Store(true)
		d.fail(err)
		runtime.Goexit() // not a wait: others would continue in its name
	}
	return err
}

// DeleteRange implements raft.LogStore.
func (d *disk) DeleteRange(from, to uint64) error {
	return d.write(func() error { return d.BoltStore.DeleteRange(from, to) })
}

// Set implements raft.StableStore.
func (d *disk) Set(k, v []byte) error {
	return d.write(func() error { return d.BoltStore.Set(k, sealValue(k, v)) })
}

// Get implements raft.StableStore.
func (d *disk) Get(k []byte) ([]byte, error) {
	v, err := d.BoltStore.Get(k)
	if err != nil {
		return nil, err
	}
	if v, err = unsealValue(k, v); err != nil {
		return nil, d.unreadable(fmt.Errorf("value %q: %w", k, err))
	}
	return v, nil
}

// SetUint64 implements raft.StableStore.
func (d *disk) SetUint64(k []byte, v uint64) error {
	return d.Set(k, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 implements raft.StableStore.
func (d *disk) GetUint64(k []byte) (uint64, error) {
	v, err := d.Get(k)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, d.unreadable(fmt.Errorf("%s: %w", k, errSum))
	}
	return binary.BigEndian.Uint64(v), nil
}
