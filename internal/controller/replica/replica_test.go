// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// TestAnyReplica: every replica takes every call, each lease is given once, and the leader
// carries out the effects at nodes.
func TestAnyReplica(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 2)
	first := c.client(0)
	c.deploy(first)
	for i := range c.ids {
		x := c.client(i)
		r, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1", Holder: fmt.Sprint("rank ", i)})
		if err != nil || r.Lower != uint32(i)+1 {
			t.Errorf("%s: %+v, %v", c.ids[i], r, err)
		}
		s, err := x.Read(t.Context())
		if err != nil || len(s.Lab("lab1").Held()) != i+1 {
			t.Errorf("%s: %+v, %v", c.ids[i], s, err)
		}
	}
	_, err := first.Do(t.Context(), controller.Command{Kind: controller.KindFree, Lab: "lab1", Run: "run-1", Lower: 7})
	if !errors.Is(err, client.ErrRefused) || !strings.Contains(err.Error(), "run run-1 holds no group 7") {
		t.Errorf("free a group that the run does not hold: %v", err)
	}
	r, err := first.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1", Hosts: []uint32{1, 2}})
	if err != nil {
		t.Fatal(err)
	}
	add := controller.Command{Kind: controller.KindFaults, Lab: "lab1", Faults: []controller.Fault{{ID: "f1"}, {ID: "f2"}}}
	if _, err := first.Do(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	s := c.agree(first)
	if g := s.Lab("lab1").Group(r.Lower); g.Stage != controller.StageOn || !c.nodes[1].groups[r.Lower] {
		t.Errorf("group %+v, at the switch %v", g, c.nodes[1].groups)
	}
	leaders := 0
	for _, st := range first.Status(t.Context()) {
		if st.State == "leader" {
			leaders++
		}
		if st.Term == 0 || st.Applied == 0 || st.Leader != c.leader() {
			t.Errorf("%+v", st)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
}

// TestAnswerLost: a command takes effect and its answer is lost. The client sends it again, to
// other replicas too, and gets the first result.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	lost := 0
	lose := func(ctx context.Context, method string, q, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
		err := invoke(ctx, method, q, reply, cc, o...)
		if err == nil && method == nodeapi.Controller_Propose_FullMethodName {
			if lost++; lost%5 != 0 {
				return status.Error(codes.Unavailable, "the answer is lost")
			}
		}
		return err
	}
	c.deploy(c.client(0))
	x := c.client(1, grpc.WithUnaryInterceptor(lose))
	for want := uint32(1); want <= 3; want++ {
		r, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"})
		if err != nil || r.Lower != want {
			t.Errorf("%+v, %v, want %d", r, err, want)
		}
	}
	if held := c.agree(x).Lab("lab1").Held(); len(held) != 3 || lost != 15 {
		t.Errorf("leases: %v; %d answers", held, lost)
	}
}

// TestAllCrash: when all replicas crash and come back, nothing is lost that was acknowledged.
func TestAllCrash(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	x := c.client(0)
	c.deploy(x)
	for range 30 {
		if _, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.ids[:2] { // some of it is in a snapshot
		if err := c.all[id].Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range c.ids {
		if err := c.all[id].Crash(); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range x.Status(t.Context()) {
		if s.State != "crashed" {
			t.Errorf("%+v", s)
		}
	}
	c.heal()
	if got := c.agree(x).Lab("lab1").Held(); len(got) != 30 {
		t.Errorf("%d leases are left of 30", len(got))
	}
	if r, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"}); err != nil || r.Lower != 31 {
		t.Errorf("the next lease is %+v, %v", r, err)
	}
}

// TestLateFollower: a replica that was down for longer than the log reaches back gets a
// snapshot, and has the same state as the others.
func TestLateFollower(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	x := c.client(0)
	c.deploy(x)
	leader := c.leader()
	down := c.ids[(slices.Index(c.ids, leader)+1)%3]
	if err := c.all[down].Crash(); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		if _, err := x.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.all[c.leader()].Snapshot(); err != nil {
		t.Fatal(err)
	}
	c.heal()
	if got := c.agree(x).Lab("lab1").Held(); len(got) != 60 {
		t.Errorf("%d leases are left of 60", len(got))
	}
}

// TestStaleLeaderCannotAct: a leader is stopped right before it adds a fault at the nodes. Meanwhile
// another leads, has added the fault, and has removed it again. When the first resumes, the nodes
// refuse it.
func TestStaleLeaderCannotAct(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 3)
	x := c.client(0)
	c.deploy(x)
	old := c.leader()
	c.agree(x) // the nodes have adopted the old leader's epoch
	others := slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool { return id == old })
	// It commits the fault, and is frozen right after that.
	c.mu.Lock()
	c.frozen[old] = make(chan struct{})
	c.mu.Unlock()
	y := c.client(slices.Index(c.ids, others[0]))
	if _, err := y.Do(t.Context(), controller.Command{Kind: controller.KindFaults, Lab: "lab1", Faults: []controller.Fault{{ID: "f1"}}}); err != nil {
		t.Fatal(err)
	}
	c.nets[old].Freeze(true)
	next := c.leader(old)
	if next == old {
		t.Fatal("nobody else leads")
	}
	if _, err := y.Do(t.Context(), controller.Command{Kind: controller.KindReset, Lab: "lab1"}); err != nil {
		t.Fatal(err)
	}
	err := y.Await(t.Context(), "the reset", func(s *controller.State) bool { return len(s.Lab("lab1").Faults) == 0 })
	if err != nil {
		t.Fatal(err)
	}
	c.freeze(old, false)
	c.wait("the old leader's try", func() bool {
		c.nodes[0].mu.Lock()
		defer c.nodes[0].mu.Unlock()
		return c.nodes[0].refused > 0
	})
	if s := c.agree(y); len(s.Lab("lab1").Faults) != 0 {
		t.Errorf("faults: %+v", s.Lab("lab1").Faults)
	}
}

// TestAsymmetricPartition: a leader that hears the others and is not heard by them does not
// stay leader; a command that it is given meanwhile takes effect once.
func TestAsymmetricPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 5, 1)
	x := c.client(0)
	c.deploy(x)
	old := c.leader()
	others := slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool { return id == old })
	y := c.client(slices.Index(c.ids, old))
	c.nets[old].Cut(others)
	r, err := y.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"})
	if err != nil || r.Lower != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if now := c.leader(old); now == old || c.nets[old].Held() == 0 {
		t.Errorf("%s leads, %s held back %d times", now, old, c.nets[old].Held())
	}
	c.heal()
	if held := c.agree(x).Lab("lab1").Held(); !slices.Equal(held, []uint32{1}) {
		t.Errorf("leases: %v", held)
	}
}

// TestNoMajority: without a majority nothing is acknowledged, and the error has the remedy.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	x := c.client(0)
	c.deploy(x)
	for _, id := range c.ids[1:] {
		if err := c.all[id].Crash(); err != nil {
			t.Fatal(err)
		}
	}
	var one []client.Replica
	for _, id := range c.ids {
		one = append(one, client.Replica{ID: id, Target: "unix:" + filepath.Join(c.dir, id, "agent.sock")})
	}
	hasty, err := client.New(one, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer hasty.Close()
	_, err = hasty.Do(t.Context(), controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"})
	if !errors.Is(err, client.ErrUnknown) || !strings.Contains(err.Error(), "mcastlab deploy") {
		t.Errorf("%v", err)
	}
	c.heal()
	c.agree(x)
}

// TestCut: a message that is cut off waits, in one direction, and arrives when the cut ends. A
// call with a deadline gives up at it.
func TestCut(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ctl")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := func(id, name string) string { return filepath.Join(dir, id+name) }
	a, err := Listen("a", os.Stderr, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Listen("b", os.Stderr, socket)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := b.raft.side()
	var there net.Conn
	accepted := make(chan error, 1)
	go func() {
		var err error
		there, err = l.Accept()
		accepted <- err
	}()
	here, err := a.raft.dial("b", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	a.Cut([]string{"b"})
	if err := here.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := here.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write that is cut off: %v", err)
	}
	if _, err := a.raft.dial("b", 50*time.Millisecond); err == nil {
		t.Error("a connection is made through a cut")
	}
	if _, err := b.raft.dial("a", 50*time.Millisecond); err == nil {
		t.Error("a connection is made whose answer is cut off")
	}
	if _, err := there.Write([]byte("back")); err != nil { // this direction is as before
		t.Fatal(err)
	}
	buf := make([]byte, 4)
	if _, err := io.ReadFull(here, buf); err != nil || string(buf) != "back" {
		t.Errorf("%s, %v", buf, err)
	}
	if err := here.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := here.Write([]byte("late"))
		wrote <- err
	}()
	for a.Held() < 3 { // a write, a connection, and this
		select {
		case err := <-wrote:
			t.Fatalf("a write got through a cut, %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	a.Cut(nil)
	if _, err := io.ReadFull(there, buf); err != nil || string(buf) != "late" || <-wrote != nil {
		t.Errorf("%s, %v", buf, err)
	}
}

// TestBrokenDisk: after a write has failed none succeeds, even if the disk would take it, and the
// replica gets the error.
func TestBrokenDisk(t *testing.T) {
	var said []error
	d, err := openDisk(t.TempDir(), hclog.NewNullLogger(), func(err error) { said = append(said, err) })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.SetUint64([]byte("k"), 1); err != nil {
		t.Fatal(err)
	}
	first := d.write(func() error { return errors.New("no space left on device") })
	if again := d.SetUint64([]byte("k"), 2); first == nil || !errors.Is(again, first) || len(said) != 1 {
		t.Errorf("first %v, then %v; said %v", first, again, said)
	}
	if v, err := d.GetUint64([]byte("k")); err != nil || v != 1 {
		t.Errorf("%d, %v", v, err)
	}
}

// TestDiskHangs: a leader whose disk hangs lets another lead, though its heartbeats would continue.
// When the disk answers again it follows.
func TestDiskHangs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 1)
	x := c.client(0)
	c.deploy(x)
	old := c.leader()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { // the other replicas cannot answer
		select {
		case err := <-c.fails:
			c.fails <- err
			stop()
		case <-ctx.Done():
		}
	}()
	d := c.all[old].life.disk
	d.mu.Lock()
	next := ""
	func() {
		defer d.mu.Unlock()
		r, err := x.Do(ctx, controller.Command{Kind: controller.KindLease, Lab: "lab1", Run: "run-1"})
		if err != nil || r.Lower != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		next = c.leader(old)
	}()
	if next == old {
		t.Errorf("%s still leads", old)
	}
	if held := c.agree(x).Lab("lab1").Held(); !slices.Equal(held, []uint32{1}) {
		t.Errorf("leases: %v", held)
	}
}

// TestRestore: a damaged snapshot is refused, and the state stays as it was.
func TestRestore(t *testing.T) {
	m := newMachine()
	m.state.Leader = "controller1"
	b, err := m.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]byte{nil, b[:len(b)-1], bytes.Replace(b, []byte("/v4"), []byte("/v9"), 1), append(slices.Clone(b), '}')} {
		if err := m.Restore(io.NopCloser(bytes.NewReader(bad))); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	if after, err := m.read(); err != nil || !bytes.Equal(after, b) {
		t.Errorf("%s, %v", after, err)
	}
	if err := m.Restore(io.NopCloser(bytes.NewReader(b))); err != nil {
		t.Error(err)
	}
}

// TestUnknownEntry: a replica that does not understand an entry ends, and has applied nothing.
func TestUnknownEntry(t *testing.T) {
	m := newMachine()
	before, err := m.read()
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", `{"v":2,"at":1,"kind":"lead"}`, `{"v":4,"at":1,"kind":"lead","more":1}`} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken", bad)
				}
			}()
			m.Apply(&raft.Log{Index: 7, Term: 1, Data: []byte(bad)})
		}()
	}
	if after, err := m.read(); err != nil || !bytes.Equal(after, before) {
		t.Errorf("%s, %v", after, err)
	}
}

// TestLogOfAnotherVersion: a replica whose disk holds the log of another version does not start. It says so in
// one line with the remedy, and leaves the disk as it is.
func TestLogOfAnotherVersion(t *testing.T) {
	older := []byte(`{"v":2,"client":"c1","seq":1,"low":1,"at":1,"until":2,"kind":"deploy","lab":"lab1","file":"name: lab1\n","engine":"netns"}`)
	current, err := controller.Command{Kind: controller.KindLead, Replica: "controller0", At: 1}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	state, err := newMachine().read()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what     string
		snapshot []byte // nil: none
		entries  [][]byte
		want     string // empty: it is understood
	}{
		{"an entry", nil, [][]byte{current, older}, "entry 2: read command: it is of version 2, and this is 4: "},
		{"a snapshot", bytes.Replace(state, []byte("/v4"), []byte("/v2"), 1), nil, `read snapshot: it is "mcastlab/controller/v2", and this version knows "mcastlab/controller/v4": `},
		{"none of both", state, [][]byte{current, current}, ""},
	} {
		dir := t.TempDir()
		open := func() *disk {
			d, err := openDisk(dir, hclog.NewNullLogger(), func(err error) { t.Error(err) })
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			return d
		}
		d := open()
		if err := errors.Join(d.SetUint64([]byte("CurrentTerm"), 1), d.SetUint64([]byte("LastVoteTerm"), 1), d.Set([]byte("LastVoteCand"), []byte("controller0"))); err != nil {
			t.Fatal(err)
		}
		for i, b := range c.entries {
			if err := d.StoreLog(&raft.Log{Index: uint64(i) + 1, Term: 1, Type: raft.LogCommand, Data: b}); err != nil {
				t.Fatal(err)
			}
		}
		if c.snapshot != nil {
			sink, err := d.snapshots.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 1, nil)
			if err == nil {
				_, err = sink.Write(c.snapshot)
				err = errors.Join(err, sink.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		before, err := keeps(d)
		if err = errors.Join(err, d.Close()); err != nil {
			t.Fatal(err)
		}
		network, err := Listen("controller0", io.Discard, func(_, name string) string { return filepath.Join(dir, name) })
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{ID: "controller0", Replicas: []string{"controller0", "controller1", "controller2"}, Network: network, Data: dir, Log: io.Discard})
		want := "start controller controller0: the log in " + dir + " is of another version: " + c.want
		switch {
		case c.want == "" && err == nil:
			err = r.Close()
		case err == nil:
			err = errors.Join(errors.New("it starts"), r.Close())
		case c.want != "" && strings.HasPrefix(err.Error(), want) && strings.HasSuffix(err.Error(), "and deploy it again") && !strings.Contains(err.Error(), "\n"):
			err = nil
		}
		if err = errors.Join(err, network.Close()); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.want == "" {
			continue
		}
		d = open()
		after, err := keeps(d)
		if err = errors.Join(err, d.Close()); err != nil || !reflect.DeepEqual(after, before) {
			t.Errorf("%s: afterwards the disk holds %+v, %v, and before %+v", c.what, after, err, before)
		}
	}
}

// TestSnapshotHolds: a snapshot that is written late holds the state at the time it was taken.
func TestSnapshotHolds(t *testing.T) {
	m := newMachine()
	apply := func(id string) {
		b, err := controller.Command{Kind: controller.KindLead, Replica: id, At: 1}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(&raft.Log{Index: 1, Term: 1, Data: b})
	}
	apply("controller0")
	want, err := m.read()
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	apply("controller1")
	store := raft.NewInmemSnapshotStore()
	sink, err := store.Create(raft.SnapshotVersionMax, 1, 1, raft.Configuration{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Persist(sink); err != nil {
		t.Fatal(err)
	}
	_, r, err := store.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s, %v; when it was taken it was %s", got, err, want)
	}
}
