// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// StateDir has the state of deployed labs: a directory each, owned by root.
const StateDir = "/run/mcastlab"

// Store is the folder of one lab: the plan it was deployed by, the log of intents, and a
// folder for each node.
//
//	lab.json      the lab, in the form for nodes (labspec.Encode)
//	state.json    what is deployed
//	intents.jsonl each effect, written before it happens
//	lock          held by the command that is at work
//	n/NODE/       a node's sockets; the node's user owns it
//	n/NODE.log    a node's standard error, of nodes that are processes
//	management    holds the network namespace of the management network
//	d/NODE/       what a node that is a process keeps across restarts; its user owns it
type Store struct {
	lab, Dir string
	lock     *os.File
}

// state is state.json.
type state struct {
	Schema  string    `json:"schema"`
	Lab     string    `json:"lab"`
	Engine  string    `json:"engine"`
	Phase   string    `json:"phase"` // deploying, up, destroying
	Since   time.Time `json:"since"`
	Version string    `json:"version"`
	Leased  uint32    `json:"leased"`            // McstIDs leased so far: none is used twice
	Mending []string  `json:"mending,omitempty"` // nodes whose repair has begun and not finished

	Management bool `json:"management,omitempty"` // it has a management network

	Attach  map[string]string       `json:"attach,omitempty"`  // interfaces of external hosts
	Indexes map[string]int          `json:"indexes,omitempty"` // and the kernel's numbers of them
	Members map[string]lab.External `json:"members,omitempty"` // what group add-member has set since
}

// labFile has the message of the lab in its folder. Older versions kept the text of the lab file, lab.yml.
const labFile = "lab.json"

const stateSchema = "mcastlab/state/v1"

// Phases of a deployed lab.
const (
	phaseDeploying  = "deploying"
	phaseUp         = "up"
	phaseDestroying = "destroying"
)

// StoreOf returns the folder of a lab. Names come from command lines too: one that cannot
// be a lab's could lead out of StateDir, where root then reads, writes and removes.
func StoreOf(name string) (*Store, error) {
	if !lab.NameOK(name) {
		return nil, fmt.Errorf("%q cannot be the name of a lab: a name has a lower-case letter, then up to 39 lower-case letters, digits and hyphens", name)
	}
	return &Store{lab: name, Dir: filepath.Join(StateDir, name)}, nil
}

// open makes the lab's directory if need be and takes its lock, waiting for the command that holds
// it; log, if not nil, reports the wait.
func (s *Store) open(log func(format string, args ...any)) error {
	if err := os.MkdirAll(s.Dir, 0o711); err != nil {
		return fmt.Errorf("open state of lab %s: %w", s.lab, NeedRoot(err))
	}
	for {
		f, err := os.OpenFile(filepath.Join(s.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(s.Dir, 0o711) == nil {
				continue // a destroy removed the folder
			}
			return fmt.Errorf("lock lab %s: %w", s.lab, NeedRoot(err))
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			if log != nil {
				log("waiting for another command that is running on lab %s", s.lab)
			}
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("lock lab %s: %w", s.lab, err), f.Close())
		}
		// The previous holder may have removed the folder: then this lock protects nothing.
		var held, there unix.Stat_t
		if unix.Fstat(int(f.Fd()), &held) == nil && unix.Stat(f.Name(), &there) == nil && held.Ino == there.Ino {
			s.lock = f
			if err := syncFolder(osDisk{}, filepath.Dir(s.Dir)); err != nil {
				return errors.Join(fmt.Errorf("open state of lab %s: %w", s.lab, err), s.close())
			}
			return nil
		}
		if err := f.Close(); err != nil {
			return fmt.Errorf("lock lab %s: %w", s.lab, err)
		}
		if err := os.MkdirAll(s.Dir, 0o711); err != nil {
			return fmt.Errorf("open state of lab %s: %w", s.lab, err)
		}
	}
}

// NeedRoot adds to an error of permission that the command needs root.
func NeedRoot(err error) error {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fmt.Errorf("%w: run as root", err)
	}
	return err
}

// close releases the lock.
func (s *Store) close() error {
	if s.lock == nil {
		return nil
	}
	f := s.lock
	s.lock = nil
	return f.Close()
}

// intend records an effect that is about to happen. Once it has returned, the record survives a
// loss of power.
func (s *Store) intend(effect, object string) error {
	b, err := json.Marshal(map[string]string{"at": time.Now().UTC().Format(time.RFC3339Nano), "effect": effect, "object": object})
	if err == nil {
		err = failpoint.At("write intent: "+effect, func() error { return appendTo(osDisk{}, filepath.Join(s.Dir, "intents.jsonl"), append(b, '\n')) })
	}
	if err != nil {
		return fmt.Errorf("write intent: %w", err)
	}
	return nil
}

// put replaces state.json. After a loss of power the file has the old or the new content, and once
// put has returned the new one.
func (s *Store) put(st state) error {
	b, err := json.MarshalIndent(st, "", "  ")
	if err != nil {
		return fmt.Errorf("write state of lab %s: %w", s.lab, err)
	}
	return s.Write("state.json", checksum.Object(append(b, '\n')))
}

// Write replaces a file of the folder.
func (s *Store) Write(name string, b []byte) error {
	path := filepath.Join(s.Dir, name)
	err := failpoint.At("write "+name, func() error { return replace(osDisk{}, path, b) })
	if err != nil {
		return fmt.Errorf("write state of lab %s: %w", s.lab, err)
	}
	return nil
}

// Get reads state.json; ok is false if the lab is not deployed.
func (s *Store) Get() (st state, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, false, nil
	}
	if err == nil {
		err = checksum.ReadObject(b, &st)
	}
	if err != nil {
		return st, false, fmt.Errorf("read state of lab %s: %w", s.lab, NeedRoot(err))
	}
	return st, true, nil
}

// deployed reads the lab as it was deployed. One that another version has deployed may be unreadable.
func (s *Store) deployed(st *state) (*lab.Lab, error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, labFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("lab %s was deployed by version %s, which has left no %s: destroy it, and deploy it again", s.lab, st.Version, labFile)
	case err != nil:
		return nil, fmt.Errorf("read deployed lab %s: %w", s.lab, NeedRoot(err))
	}
	var l *lab.Lab
	if b, err = checksum.CutComment(b); err == nil {
		l, err = labspec.Decode(b)
	}
	if err != nil {
		return nil, fmt.Errorf("lab %s was deployed by version %s: %w: destroy it, and deploy it again", s.lab, st.Version, err)
	}
	return l, nil
}

// under reports whether the lab was deployed under an engine.
func (s *Store) under(e engine.Engine) bool {
	st, ok, err := s.Get()
	return err != nil || ok && st.Engine == e.Name()
}

// NodeDir makes a node's folder, open to its user alone.
func (s *Store) NodeDir(node string) (string, error) {
	dir := s.NodePath(node)
	err := failpoint.At("make node folder", func() error {
		if err := os.RemoveAll(dir); err != nil { // sockets of a node that has died
			return err
		}
		return ownDir(dir)
	})
	if err != nil {
		return "", fmt.Errorf("make folder of node %s: %w", node, err)
	}
	return dir, nil
}

// dataDir makes the folder of what a node keeps, if there is none.
func (s *Store) dataDir(node string) (string, error) {
	dir := filepath.Join(s.Dir, "d", node)
	if err := failpoint.At("make data folder", func() error { return ownDir(dir) }); err != nil {
		return "", fmt.Errorf("make data folder of node %s: %w", node, err)
	}
	return dir, nil
}

// ownDir makes a folder of the nodes' user, in one that every user may pass.
func ownDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	return os.Chown(dir, engine.UID, engine.UID)
}

// forget removes the folders of what nodes keep.
func (s *Store) forget(nodes []string) error {
	for _, n := range nodes {
		if err := os.RemoveAll(filepath.Join(s.Dir, "d", n)); err != nil {
			return fmt.Errorf("remove data folder of node %s: %w", n, err)
		}
	}
	return nil
}

// NodePath is the folder of a node's sockets.
func (s *Store) NodePath(node string) string { return filepath.Join(s.Dir, "n", node) }

// Remove removes the folder, and with it the lock.
func (s *Store) Remove() error {
	if err := failpoint.At("remove management network", func() error { return netdev.Release(s.hubPath()) }); err != nil {
		return fmt.Errorf("remove lab %s: %w", s.lab, err)
	}
	if err := failpoint.At("remove state", func() error { return os.RemoveAll(s.Dir) }); err != nil {
		return fmt.Errorf("remove state of lab %s: %w", s.lab, err)
	}
	// The parent goes with the last lab; if others are there it stays.
	_ = os.Remove(StateDir)
	return nil
}

// LogFile returns where a node that is a process writes its standard error.
func LogFile(lab, node string) string {
	s := &Store{lab: lab, Dir: filepath.Join(StateDir, lab)}
	return s.NodePath(node) + ".log"
}

// Folder returns the directory of a lab's state.
func Folder(lab string) string { return filepath.Join(StateDir, lab) }
