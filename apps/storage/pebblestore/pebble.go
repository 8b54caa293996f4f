// SPDX-License-Identifier: Apache-2.0

// Package pebblestore stores the blocks of replicas: a Pebble database for each volume, in memory for
// simulations or in a folder.
package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/mcastlab/mcastlab/apps/storage"
)

// volume is a storage.Store: block to number of the write and data.
type volume struct {
	db    *pebble.DB
	guard *guard
	crash func() // removes writes that are not durable
}

// keyLen and numberLen are the lengths of a key, and of the number before the data.
const (
	keyLen    = 4
	numberLen = 8
)

// open opens the database of a folder below base. crash, if set, has the effect of a loss of power on
// fs.
func open(fs vfs.FS, base, name string, limit int64, crash func()) (storage.Store, error) {
	if limit > 0 {
		fs = &limited{FS: fs, left: limit}
	}
	dir, err := makeDir(fs, base, name)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	v := &volume{guard: newGuard(), crash: crash}
	err = v.guard.do(func() (err error) {
		v.db, err = pebble.Open(dir, &pebble.Options{
			FS: fs, Logger: v.guard, EventListener: &pebble.EventListener{BackgroundError: v.guard.background},
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return v, nil
}

// makeDir makes a folder below base that is there after a loss of power: the database syncs
// its own folder, but not those above, with which it would go.
func makeDir(fs vfs.FS, base, name string) (dir string, err error) {
	dir = base
	for _, part := range strings.Split(name, "/") {
		next := fs.PathJoin(dir, part)
		if err := fs.MkdirAll(next, 0o700); err != nil {
			return "", err
		}
		above, err := fs.OpenDir(dir)
		if err != nil {
			return "", err
		}
		if err := errors.Join(above.Sync(), above.Close()); err != nil {
			return "", err
		}
		dir = next
	}
	return dir, nil
}

// Put implements storage.Store.
func (v *volume) Put(records []storage.Record) error {
	return v.guard.do(func() error {
		b := v.db.NewBatch()
		for _, r := range records {
			op := b.SetDeferred(keyLen, numberLen+len(r.Data))
			binary.BigEndian.PutUint32(op.Key, r.Block)
			binary.BigEndian.PutUint64(op.Value, r.Number)
			copy(op.Value[numberLen:], r.Data)
			if err := op.Finish(); err != nil {
				return errors.Join(fmt.Errorf("write to store: %w", err), b.Close())
			}
		}
		if err := v.db.Apply(b, pebble.NoSync); err != nil {
			return errors.Join(fmt.Errorf("write to store: %w", err), b.Close())
		}
		return b.Close()
	})
}

// Sync implements storage.Store.
func (v *volume) Sync() error {
	return v.guard.do(func() error {
		if err := v.db.LogData(nil, pebble.Sync); err != nil {
			return fmt.Errorf("sync store: %w", err)
		}
		return nil
	})
}

// recordOf reads the record of a block.
func recordOf(key, value []byte) (storage.Record, error) {
	if len(key) != keyLen || len(value) < numberLen {
		return storage.Record{}, fmt.Errorf("read store: a record of %d and %d bytes", len(key), len(value))
	}
	return storage.Record{Block: binary.BigEndian.Uint32(key), Number: binary.BigEndian.Uint64(value), Data: value[numberLen:]}, nil
}

// Each implements storage.Store.
func (v *volume) Each(f func(storage.Record) error) error {
	return v.guard.do(func() error {
		it, err := v.db.NewIter(nil)
		if err != nil {
			return fmt.Errorf("read store: %w", err)
		}
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			var r storage.Record
			if r, err = recordOf(it.Key(), it.Value()); err == nil {
				err = f(r)
			}
		}
		return errors.Join(err, it.Close())
	})
}

// Get implements storage.Store.
func (v *volume) Get(block uint32) (r storage.Record, err error) {
	err = v.guard.do(func() error {
		key := binary.BigEndian.AppendUint32(nil, block)
		value, closer, err := v.db.Get(key)
		if err != nil {
			return fmt.Errorf("read block %d of store: %w", block, err)
		}
		r, err = recordOf(key, append([]byte(nil), value...))
		return errors.Join(err, closer.Close())
	})
	return r, err
}

// Crash implements storage.Store.
func (v *volume) Crash() {
	if v.crash != nil {
		v.crash()
	}
	// Its further writes go to deleted files.
	_ = v.Close()
}

// Close implements storage.Store. A store that has failed returns no further error.
func (v *volume) Close() error {
	if v.guard.failed() != nil {
		return nil // it is closed, or would wait for a write that cannot be done
	}
	err := v.guard.do(func() error {
		if err := v.db.Close(); err != nil {
			return fmt.Errorf("close store: %w", err)
		}
		return nil
	})
	v.guard.fail(errClosed)
	return err
}

var errClosed = errors.New("the store is closed")

// guard turns Pebble's fatal errors, which would end the process, into errors of its calls. After
// the first one the database is not used any more.
type guard struct {
	call sync.Mutex // held by the call that is made
	mu   sync.Mutex
	err  error
	dead chan struct{} // closed when there is an error
}

func newGuard() *guard { return &guard{dead: make(chan struct{})} }

// do calls f and returns its error, or the database's fatal error if one occurs meanwhile.
func (g *guard) do(f func() error) error {
	g.call.Lock()
	defer g.call.Unlock()
	if err := g.failed(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-g.dead:
		return g.failed()
	}
}

func (g *guard) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

func (g *guard) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = err
		close(g.dead)
	}
}

// background records an error of a flush and ends its goroutine: the database would repeat the
// flush without end.
func (g *guard) background(err error) {
	g.fail(fmt.Errorf("store: %w", err))
	runtime.Goexit()
}

// Infof implements pebble.Logger.
func (g *guard) Infof(string, ...any) {}

// Errorf implements pebble.Logger.
func (g *guard) Errorf(string, ...any) {}

// Fatalf implements pebble.Logger. It must not return.
func (g *guard) Fatalf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	for _, a := range args {
		if cause, ok := a.(error); ok {
			err = fmt.Errorf("store: %w", cause)
		}
	}
	g.fail(err)
	runtime.Goexit()
}

// Memory holds the stores of simulated hosts. A crash loses exactly the writes that were not
// synced, so that equal runs have equal ends.
type Memory struct {
	disks map[string]*vfs.MemFS // by host
}

// NewMemory returns hosts without any volume.
func NewMemory() *Memory { return &Memory{disks: map[string]*vfs.MemFS{}} }

// Open opens a host's store of a volume, new or as it was left; limit bounds its bytes; 0 is no
// bound.
func (m *Memory) Open(host, name string, limit int64) (storage.Store, error) {
	if m.disks[host] == nil {
		m.disks[host] = vfs.NewCrashableMem()
	}
	return open(m.disks[host], "/", name, limit, func() {
		m.disks[host] = m.disks[host].CrashClone(vfs.CrashCloneCfg{})
	})
}

// Folder holds the stores of one host in a folder of the file system.
type Folder string

// Open opens a volume as Memory.Open does; the folder belongs to one host, so the host's name
// is not used. Which unsynced writes survive a crash is decided by the kernel.
func (f Folder) Open(_, name string, limit int64) (storage.Store, error) {
	return open(vfs.Default, string(f), name, limit, nil)
}
