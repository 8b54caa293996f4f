package orchestrator

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// disk is what files are written to. A loss of power leaves of a file what was synced, and
// of a folder, which holds the names of its files, the same; of the rest it leaves any
// part. StateDir is in memory on most systems and lost with it; where it is not, nodes
// that an engine brings up again find their lab.
type disk interface {
	open(name string, flag int) (diskFile, error)
	rename(from, to string) error
}

type diskFile interface {
	io.WriteCloser
	Sync() error
}

// osDisk is the machine's.
type osDisk struct{}

func (osDisk) open(name string, flag int) (diskFile, error) { return os.OpenFile(name, flag, 0o600) }
func (osDisk) rename(from, to string) error                 { return os.Rename(from, to) }

// appendTo adds to a file, which it makes if need be. Once it has returned a loss of power
// takes nothing of it.
func appendTo(d disk, path string, b []byte) error {
	if err := writeSynced(d, path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, b); err != nil {
		return err
	}
	return syncFolder(d, filepath.Dir(path))
}

// replace gives a file another content. A loss of power meanwhile leaves the old one or the
// new one; once it has returned the new one. The order makes it so: a name must not lead
// to content that is not on the disk yet.
func replace(d disk, path string, b []byte) error {
	if err := writeSynced(d, path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, b); err != nil {
		return err
	}
	if err := d.rename(path+".tmp", path); err != nil {
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
