// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// StateDir has what the server keeps that `servers up` ran on: the authority and this deployer's credentials. It is root's own, and
// not below /run, so that not even the daemon on this server sees the authority's key.
//
//	authority.pem  key and certificate of the authority
//	deployer.pem   key and certificate of this deployer, and the authority's certificate
//	lock           held by the command that is at work
const StateDir = "/var/lib/mcastlab-hosts"

const (
	authorityFile = "authority.pem"
	deployerFile  = "deployer.pem"
)

// store is StateDir, or a test's.
type store struct {
	dir  string
	lock *os.File
}

// open makes the directory if need be and takes its lock, waiting for the command that holds it.
func (s *store) open(ctx context.Context, say func(format string, args ...any)) error {
	for told := false; ; {
		if err := os.MkdirAll(s.dir, 0o700); err != nil {
			return fmt.Errorf("open %s: %w", s.dir, needRoot(err))
		}
		f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a `servers down` has removed the folder
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", s.dir, needRoot(err))
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		var held, there unix.Stat_t
		if err == nil && unix.Fstat(int(f.Fd()), &held) == nil && unix.Stat(f.Name(), &there) == nil && held.Ino == there.Ino {
			s.lock = f
			return nil
		}
		if cerr := f.Close(); cerr != nil || err != nil && !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: %w", s.dir, errors.Join(err, cerr))
		}
		if err != nil && !told {
			say("waiting for another mcastlab servers command")
			told = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollEvery):
		}
	}
}

func needRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%w: run as root", err)
	}
	return err
}

func (s *store) close() {
	if s.lock != nil {
		_ = s.lock.Close() // which releases the lock; nothing was written
		s.lock = nil
	}
}

// remove removes the folder, the lock with it.
func (s *store) remove() error {
	err := failpoint.At("remove the authority", func() error { return os.RemoveAll(s.dir) })
	if err != nil {
		return fmt.Errorf("remove %s: %w", s.dir, needRoot(err))
	}
	return nil
}

// write replaces a file, which is root's alone.
func (s *store) write(name string, b []byte) error {
	return failpoint.At("write "+name, func() error {
		f, err := os.CreateTemp(s.dir, name+".*")
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		_, err = f.Write(b)
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), filepath.Join(s.dir, name))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
		}
		return nil
	})
}

// authority returns the authority, and makes one if there is none that holds.
func (s *store) authority(now time.Time) (*trust.Authority, error) {
	file, err := os.ReadFile(filepath.Join(s.dir, authorityFile))
	if err == nil {
		if a, err := trust.ParseAuthority(file); err == nil && now.Add(trust.Renew).Before(a.Ends()) {
			return a, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the authority: %w", needRoot(err))
	}
	a, err := trust.NewAuthority(now)
	if err != nil {
		return nil, err
	}
	if file, err = a.Marshal(); err != nil {
		return nil, err
	}
	return a, s.write(authorityFile, file)
}

// deployer returns credentials of this server as a deployer, and makes them if there are none that hold.
func (s *store) deployer(a *trust.Authority, node string, now time.Time) (*trust.Credentials, error) {
	id := trust.Identity{Role: trust.Deployer, Node: node}
	if c, err := s.credentials(); err == nil && c.Signed(a) && c.Identity() == id && now.Add(trust.Renew).Before(c.Ends()) {
		return c, nil
	}
	c, err := a.Issue(id, now)
	if err != nil {
		return nil, err
	}
	file, err := c.Marshal()
	if err != nil {
		return nil, err
	}
	return c, s.write(deployerFile, file)
}

// credentials reads those of this deployer.
func (s *store) credentials() (*trust.Credentials, error) {
	file, err := os.ReadFile(filepath.Join(s.dir, deployerFile))
	if err != nil {
		return nil, needRoot(err)
	}
	return trust.ParseCredentials(file)
}

// share makes credentials of the share of a lab on a server.
func (s *store) share(lab, node string, now time.Time) ([]byte, error) {
	file, err := os.ReadFile(filepath.Join(s.dir, authorityFile))
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", needRoot(err))
	}
	a, err := trust.ParseAuthority(file)
	if err != nil {
		return nil, err
	}
	c, err := a.Issue(trust.Identity{Role: trust.Share, Node: node, Lab: lab}, now)
	if err != nil {
		return nil, err
	}
	return c.Marshal()
}
