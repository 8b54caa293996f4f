// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// disk is the file system that state is written to. After a loss of power, what was synced of a
// file is there, and so are the names that were synced of a folder; of the rest any part may be.
// StateDir is in memory on most systems and lost with it; where it is not, nodes that an engine
// brings up again find their lab.
type disk interface {
	open(name string, flag int) (diskFile, error)
	rename(from, to string) error
	remove(name string) error
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// osDisk is the server's file system.
type osDisk struct{}

func (osDisk) open(name string, flag int) (diskFile, error) { return os.OpenFile(name, flag, 0o600) }
func (osDisk) rename(from, to string) error                 { return os.Rename(from, to) }
func (osDisk) remove(name string) error                     { return os.Remove(name) }

// appendTo appends to a file, which it creates if necessary. Once it has returned, the content
// survives a loss of power.
func appendTo(d disk, path string, b []byte) error {
	if err := writeSynced(d, path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, b); err != nil {
		return err
	}
	return syncFolder(d, filepath.Dir(path))
}

// replace replaces a file's content. A loss of power meanwhile leaves the old or the new content,
// and after replace has returned the new one. That is why it writes and syncs before it renames:
// a name must not lead to content that is not on disk yet.
func replace(d disk, path string, b []byte) error {
	err := writeSynced(d, path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, b)
	if err == nil {
		err = d.rename(path+".tmp", path)
	}
	if err != nil {
		_ = d.remove(path + ".tmp") // on a full disk it holds room that others need
		return err
	}
	return syncFolder(d, filepath.Dir(path))
}

// writeSynced writes to a file, and to the disk.
func writeSynced(d disk, path string, flag int, b []byte) error {
	f, err := d.open(path, flag)
	if err != nil {
		return err
	}
	if _, err = f.Write(b); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFolder makes the names in a folder durable.
func syncFolder(d disk, dir string) error {
	f, err := d.open(dir, os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
