// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/mcastlab/mcastlab/internal/controller"
)

// kept is all that a disk holds.
type kept struct {
	Entries []raft.Log
	Values  map[string]string
}

func keeps(d *disk) (k kept, err error) {
	first, err := d.FirstIndex()
	if err != nil {
		return k, err
	}
	last, err := d.LastIndex()
	if err != nil {
		return k, err
	}
	for i := first; i > 0 && i <= last; i++ {
		var l raft.Log
		if err := d.GetLog(i, &l); err != nil {
			return k, err
		}
		k.Entries = append(k.Entries, l)
	}
	k.Values = map[string]string{}
	for _, key := range []string{"CurrentTerm", "LastVoteTerm", "LastVoteCand"} {
		v, err := d.Get([]byte(key))
		if err != nil {
			return k, err
		}
		k.Values[key] = string(v)
	}
	return k, nil
}

// oldLog fills a folder with a log that has been written and shortened, and has an overflow
// page.
func oldLog(t *testing.T, dir string) kept {
	t.Helper()
	d, err := openDisk(dir, hclog.NewNullLogger(), func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(60) {
		l := &raft.Log{Index: i + 1, Term: 3, Type: raft.LogCommand, Data: bytes.Repeat([]byte{byte(i)}, 150)}
		if i == 50 {
			l.Data, l.Extensions = bytes.Repeat([]byte("long"), 2000), []byte("more")
		}
		if err := d.StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	sink, err := d.snapshots.Create(1, 30, 3, raft.Configuration{}, 1, nil)
	if err == nil {
		_, err = sink.Write([]byte("a state"))
		err = errors.Join(err, sink.Close())
	}
	err = errors.Join(err, d.DeleteRange(1, 30), d.SetUint64([]byte("CurrentTerm"), 3), d.SetUint64([]byte("LastVoteTerm"), 3),
		d.Set([]byte("LastVoteCand"), []byte("controller1")))
	if err != nil {
		t.Fatal(err)
	}
	k, err := keeps(d)
	if err = errors.Join(err, d.Close()); err != nil || len(k.Entries) != 30 {
		t.Fatalf("%d entries, %v", len(k.Entries), err)
	}
	return k
}

// TestFlipped: whichever byte of a log is changed, either the replica does not start, with an
// error that names the folder and the remedy, or the byte is unused and the whole log is there.
// No byte causes a panic or another entry.
func TestFlipped(t *testing.T) {
	dir := t.TempDir()
	want := oldLog(t, dir)
	name := filepath.Join(dir, "raft.db")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	used := usedPages(t, whole)
	passed, refused, opened := 0, 0, 0
	flipped := bytes.Clone(whole)
	last := 0
	for at := range whole {
		inUse := used[uint64(at/os.Getpagesize())]
		if !inUse && at%17 != 0 {
			continue
		}
		flipped[last], last = whole[last], at
		flipped[at] ^= byte(1 << (at % 8))
		if err := verifyBolt(flipped, os.Getpagesize()); err != nil {
			refused++
			continue
		}
		passed++
		every := 211 // opening the database takes longer
		if !inUse {
			every = 17 * 241
		}
		if in := at % os.Getpagesize(); at < 2*os.Getpagesize() && in >= boltHeader && in < boltHeader+boltMetaSummed {
			every = 1
		}
		if at%every != 0 {
			continue
		}
		opened++
		if err := os.WriteFile(name, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := openDisk(dir, hclog.NewNullLogger(), func(err error) { t.Error(err) })
		if err != nil {
			if s := err.Error(); !strings.Contains(s, "the log in "+dir+" is damaged: ") || !strings.Contains(s, "remove the folder and deploy the lab again") || strings.Contains(s, "\n") {
				t.Errorf("byte %d: %v", at, err)
			}
			continue
		}
		got, err := keeps(d)
		for i := range got.Entries {
			if i < len(want.Entries) {
				got.Entries[i].AppendedAt = want.Entries[i].AppendedAt // only statistics use it
			}
		}
		if err = errors.Join(err, d.Close()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("byte %d: %v, and another log", at, err)
		}
	}
	t.Logf("of %d bytes %d are noticed by the pages' structure; of %d others %d were opened", len(whole), refused, passed, opened)
	if refused < 500 || opened < 50 {
		t.Errorf("%d refused, %d opened", refused, opened)
	}
}

// TestCutShort: a log that has been truncated is refused, wherever it was cut.
func TestCutShort(t *testing.T) {
	dir := t.TempDir()
	oldLog(t, dir)
	name := filepath.Join(dir, "raft.db")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	size := os.Getpagesize()
	f := &boltFile{b: whole, size: uint64(size)}
	if _, _, err := f.meta(); err != nil {
		t.Fatal(err)
	}
	end := int(f.high) * size // the pages behind have never been used
	for n := 1; n < end; n += 97 {
		if err := verifyBolt(whole[:n], size); err == nil {
			t.Errorf("%d of %d bytes are taken for the whole log", n, end)
		}
	}
}

// usedPages returns the pages of a database that are in use, without its list of free pages.
func usedPages(t *testing.T, b []byte) map[uint64]bool {
	t.Helper()
	f := &boltFile{b: b, size: uint64(os.Getpagesize()), seen: map[uint64]bool{0: true, 1: true}}
	root, _, err := f.meta()
	if err == nil {
		err = f.tree(root, nil, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.seen
}

// TestSnapshotFlipped: the same for the files of a snapshot.
func TestSnapshotFlipped(t *testing.T) {
	dir := t.TempDir()
	want := oldLog(t, dir)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(whole); at += 3 {
			flipped := bytes.Clone(whole)
			flipped[at] ^= 0x10
			if err := os.WriteFile(name, flipped, 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := openDisk(dir, hclog.NewNullLogger(), func(err error) { t.Error(err) })
			if err != nil {
				if !strings.Contains(err.Error(), "is damaged: ") {
					t.Errorf("%s, byte %d: %v", filepath.Base(name), at, err)
				}
				continue
			}
			err = d.readsSnapshot()
			if err = errors.Join(err, d.Close()); err != nil || len(want.Entries) == 0 {
				t.Errorf("%s, byte %d: %v", filepath.Base(name), at, err)
			}
		}
		if err := os.WriteFile(name, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// readsSnapshot returns an error if the newest snapshot is damaged.
func (d *disk) readsSnapshot() error {
	all, err := d.snapshots.List()
	if err != nil || len(all) != 1 || all[0].Index != 30 || all[0].Term != 3 {
		return fmt.Errorf("snapshots %v, %w", all, err)
	}
	_, r, err := d.snapshots.Open(all[0].ID)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(r)
	if string(b) != "a state" {
		err = errors.Join(err, fmt.Errorf("it holds %q", b))
	}
	return errors.Join(err, r.Close())
}

// TestDamagedReplica: a replica whose log has been damaged does not start and gives the reason; the
// others continue. With an empty folder it starts, and the others bring it up to date. A leader that
// finds the damage while it leads ends, and another replica leads.
func TestDamagedReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	x := c.client(0)
	c.deploy(x)
	lease := func(n int) {
		t.Helper()
		for range n {
			if _, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"}); err != nil {
				t.Fatal(err)
			}
		}
	}
	lease(5)
	c.agree(x) // a follower may be behind
	down := c.ids[(slices.Index(c.ids, c.leader())+1)%3]
	if err := c.all[down].Crash(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(c.dir, down, "raft.db")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(b, []byte(`"kind":"lease"`))
	if at < 0 {
		t.Fatal("no lease is in the log")
	}
	for ; at >= 0; at = bytes.LastIndex(b[:at], []byte(`"kind":"lease"`)) { // pages that are no longer used hold them, too
		b[at+8] ^= 1
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	err = c.all[down].Start()
	if err == nil || !strings.Contains(err.Error(), "start controller "+down+": the log in "+filepath.Join(c.dir, down)+" is damaged: entry ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("it starts: %v", err)
	}
	lease(5)
	if err := errors.Join(os.Remove(name), os.RemoveAll(filepath.Join(c.dir, down, "snapshots"))); err != nil {
		t.Fatal(err)
	}
	c.heal()
	if got := c.agree(x).Lab("lab1").Held(); len(got) != 10 {
		t.Errorf("%d leases are left of 10", len(got))
	}
	// Now the leader's log is damaged while it runs: a follower that was down asks for the
	// damaged entries.
	if err := c.all[down].Crash(); err != nil {
		t.Fatal(err)
	}
	lease(5)
	leader := c.leader()
	life, err := c.all[leader].alive()
	if err != nil {
		t.Fatal(err)
	}
	last, err := life.disk.LastIndex()
	if err == nil {
		err = life.disk.BoltStore.StoreLog(&raft.Log{Index: last - 2, Term: 1, Data: []byte("{}")})
	}
	if err == nil {
		err = c.all[down].Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-c.fails:
		if !strings.Contains(err.Error(), fmt.Sprintf("is damaged: entry %d: ", last-2)) {
			t.Errorf("the leader ends with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the leader goes on")
	}
	if err := c.all[leader].Crash(); err != nil {
		t.Error(err)
	}
	lease(5)
	if err := errors.Join(os.Remove(filepath.Join(c.dir, leader, "raft.db")), os.RemoveAll(filepath.Join(c.dir, leader, "snapshots"))); err != nil {
		t.Fatal(err)
	}
	c.heal()
	if got := c.agree(x).Lab("lab1").Held(); len(got) != 20 {
		t.Errorf("%d leases are left of 20", len(got))
	}
}
