// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// sumLen is the length of the checksum at the end of every value on the disk.
const sumLen = 4

var errSum = errors.New("it does not match its checksum")

// sumOf returns the checksum of a value under its key.
func sumOf(key, value []byte) []byte {
	h := crc32.NewIEEE()
	_, _ = h.Write(key) // it cannot fail
	_, _ = h.Write(value)
	return h.Sum(nil)
}

// entrySum returns the checksum of an entry of the log.
func entrySum(l *raft.Log) []byte {
	key := binary.BigEndian.AppendUint64(nil, l.Index)
	key = binary.BigEndian.AppendUint64(key, l.Term)
	key = append(binary.BigEndian.AppendUint64(key, uint64(len(l.Extensions))), byte(l.Type))
	return sumOf(append(key, l.Extensions...), l.Data)
}

// sealed returns an entry as it is written: its checksum is in the extensions, which raft
// leaves to its users.
func sealed(l *raft.Log) *raft.Log {
	s := *l
	s.Extensions = append(append([]byte(nil), l.Extensions...), entrySum(l)...)
	return &s
}

// unseal undoes sealed, if the entry is the one written under its index.
func unseal(index uint64, l *raft.Log) error {
	n := len(l.Extensions) - sumLen
	if n < 0 || l.Index != index {
		return errSum
	}
	sum := l.Extensions[n:]
	if l.Extensions = l.Extensions[:n:n]; n == 0 {
		l.Extensions = nil
	}
	if string(entrySum(l)) != string(sum) {
		return errSum
	}
	return nil
}

// unsealValue undoes sealValue, if the value is the one written under its key.
func unsealValue(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - sumLen
	if n < 0 || string(sumOf(key, sealed[:n])) != string(sealed[n:]) {
		return nil, errSum
	}
	return sealed[:n:n], nil
}

// sealValue returns a value as it is written.
func sealValue(key, value []byte) []byte {
	return append(append([]byte(nil), value...), sumOf(key, value)...)
}

// verifyEntries reads every entry and every snapshot once. The entries have no gap, and continue the
// newest snapshot.
func (d *disk) verifyEntries(dir string) error {
	first, err := d.FirstIndex()
	if err != nil {
		return err
	}
	last, err := d.LastIndex()
	if err != nil {
		return err
	}
	for i := first; first > 0 && i <= last; i++ {
		if err := d.entry(i, new(raft.Log)); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	from, err := d.verifySnapshots(filepath.Join(dir, "snapshots"))
	if err != nil {
		return err
	}
	if first > from+1 {
		return fmt.Errorf("entries %d to %d are missing", from+1, first-1)
	}
	return nil
}

// verifySnapshots reads all snapshots, and returns the index of the last entry that the newest
// one contains.
func (d *disk) verifySnapshots(dir string) (last uint64, err error) {
	all, err := d.snapshots.List()
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	known := map[string]bool{}
	for _, s := range all {
		known[s.ID] = true
		last = max(last, s.Index)
		if !strings.HasPrefix(s.ID, fmt.Sprintf("%d-%d-", s.Term, s.Index)) {
			return 0, fmt.Errorf("snapshot %s: its metadata have another term or index than its name", s.ID)
		}
		_, r, err := d.snapshots.Open(s.ID)
		if err != nil {
			return 0, fmt.Errorf("snapshot %s: %w", s.ID, err)
		}
		_, err = io.Copy(io.Discard, r)
		if err = errors.Join(err, r.Close()); err != nil {
			return 0, fmt.Errorf("snapshot %s: %w", s.ID, err)
		}
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	for _, n := range names {
		if len(all) < snapshotsKept && n.IsDir() && !strings.HasSuffix(n.Name(), ".tmp") && !known[n.Name()] {
			return 0, fmt.Errorf("snapshot %s cannot be read", n.Name())
		}
	}
	return last, nil
}
