// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestLeases: a McstID is assigned once in the life of a lab, however many commands request one.
func TestLeases(t *testing.T) {
	s := &Store{lab: "x", Dir: t.TempDir()}
	if _, err := (&Leases{Store: s, Plane: NoControllers(nil)}).Next(t.Context(), 0); err == nil {
		t.Error("a lab that is not up has a McstID")
	}
	if err := s.put(state{Schema: stateSchema, Lab: "x", Phase: phaseUp}); err != nil {
		t.Fatal(err)
	}
	for want := uint32(1); want < 7; {
		l := &Leases{Store: s, Plane: NoControllers(nil)} // another command
		for range 2 {
			got, err := l.Next(t.Context(), 0)
			if err != nil || got != want {
				t.Fatalf("McstID %d, %v; want %d", got, err, want)
			}
			want++
		}
	}
	if err := s.put(state{Schema: stateSchema, Lab: "x", Phase: phaseUp, Leased: LeasesMax}); err != nil {
		t.Fatal(err)
	}
	if id, err := (&Leases{Store: s, Plane: NoControllers(nil)}).Next(t.Context(), 0); err == nil {
		t.Errorf("when all are used there is %d", id)
	}
}

// stuck is an agent that takes calls and does not answer.
type stuck struct {
	nodeapi.UnimplementedNodeServer
	let chan struct{}
}

// Inspect implements nodeapi.NodeServer.
func (s *stuck) Inspect(_ context.Context, _ *nodeapi.InspectRequest) (*nodeapi.InspectReply, error) {
	<-s.let // and not when its own deadline has passed: the caller's is what is tested
	return nil, errors.New("too late")
}

// TestCallsEnd: a call of a node that does not answer ends, and says so.
func TestCallsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	a := &stuck{let: make(chan struct{})}
	s := grpc.NewServer()
	nodeapi.RegisterNodeServer(s, a)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	defer func() { close(a.let); s.Stop(); <-ended }()
	c, err := dial("h0", path, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer c.conn.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if _, err := c.Inspect(ctx, &nodeapi.InspectRequest{}); err == nil || !strings.Contains(err.Error(), "it has not answered for 50ms") {
		t.Errorf("a node that stands still: %v", err)
	}
}

// root skips a test that writes where only root may, or fails it where it must run.
func root(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
		t.Fatal("root is needed")
	}
	t.Skip("root is needed")
}

// storeFor returns the folder of a lab that may have that name.
func storeFor(t *testing.T, name string) *Store {
	t.Helper()
	s, err := StoreOf(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNamesStayInside: no name leads out of the folder of labs, whichever verb it is given
// to: what is there is not read, and not removed.
func TestNamesStayInside(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state.json")
	if err := os.WriteFile(state, []byte(`{"phase": "up", "engine": "process"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "/", "../../.." + dir, dir, "a/../../.." + dir, "a/b", "a\x00", "A", "-a", strings.Repeat("a", 41)} {
		_, attached := Attach(name, Options{})
		_, engines := EngineOf(name, nil)
		_, destroyed := Destroy(t.Context(), name, nil)
		for what, err := range map[string]error{"attach": attached, "engine": engines, "destroy": destroyed} { // independent of each other
			if err == nil || !strings.Contains(err.Error(), "cannot be the name of a lab") {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
}

// TestFoldersOfNodes: a node's folders are its user's alone; what is above may be passed
// through, and not be read. What a node keeps stays, and its sockets do not.
func TestFoldersOfNodes(t *testing.T) {
	root(t)
	s := &Store{lab: "x", Dir: t.TempDir()}
	for name, make := range map[string]func(string) (string, error){"sockets": s.NodeDir, "data": s.dataDir} { // independent of each other
		dir, err := make("h0")
		if err != nil {
			t.Fatal(err)
		}
		old := filepath.Join(dir, "old")
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if again, err := make("h0"); err != nil || again != dir {
			t.Errorf("%s: %s and then %s, %v", name, dir, again, err)
		}
		if _, err := os.Stat(old); (err == nil) != (name == "data") {
			t.Errorf("%s: what was there: %v", name, err)
		}
		for path, want := range map[string]fs.FileMode{dir: 0o700, filepath.Dir(dir): 0o711} { // independent of each other
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != want || path == dir && info.Sys().(*syscall.Stat_t).Uid != engine.UID {
				t.Errorf("%s: %s has mode %v, want %v", name, path, info.Mode(), want)
			}
		}
	}
}

// broken is an engine with nodes that cannot be asked, or not be ended.
type broken struct {
	engine.Engine
	name         string
	find, remove error
	nodes        []engine.Running
	removed      []string
}

// Name implements engine.Engine.
func (b *broken) Name() string { return b.name }

// Find implements engine.Engine.
func (b *broken) Find(context.Context, string) ([]engine.Running, error) { return b.nodes, b.find }

// Labs implements engine.Engine.
func (b *broken) Labs(context.Context) ([]string, error) { return nil, b.find }

// Remove implements engine.Engine.
func (b *broken) Remove(_ context.Context, lab string, _ ...string) error {
	if b.remove != nil {
		return b.remove
	}
	b.removed, b.nodes = append(b.removed, lab), nil
	return nil
}

// TestDestroyTrouble: a destruction takes whatever there is of a lab, from an empty folder
// to one whose state cannot be read, and nothing of its neighbours. It gives up with an
// error, and leaves the folder to those who try again, if an engine that has the lab does
// not answer or cannot end its nodes; one that never had it does not matter.
func TestDestroyTrouble(t *testing.T) {
	root(t)
	const name, neighbour = "t-destroy", "t-destroy-b"
	left, other := storeFor(t, name), storeFor(t, neighbour)
	t.Cleanup(func() { _ = left.Remove(); _ = other.Remove() })
	if err := other.open(nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.close() }()
	sick := errors.New("it is sick")
	up := func(s *Store) error { return s.put(state{Schema: stateSchema, Lab: name, Engine: "b", Phase: phaseUp}) }
	for _, c := range []struct {
		what    string
		prepare func(s *Store) error
		b       broken
		want    error
	}{
		{"an empty folder", nil, broken{}, nil},
		{"a folder with a state that was not written to its end", func(s *Store) error { return s.Write("state.json", []byte(`{"schema": "mcas`)) }, broken{}, nil},
		{"a lab that is up", up, broken{nodes: []engine.Running{{Name: "h0", PID: 1}}}, nil},
		{"a lab whose state cannot be written", func(s *Store) error {
			return errors.Join(up(s), os.Mkdir(filepath.Join(s.Dir, "state.json.tmp"), 0o700), os.WriteFile(filepath.Join(s.Dir, "state.json.tmp", "x"), nil, 0o600))
		}, broken{nodes: []engine.Running{{Name: "h0", PID: 1}}}, nil},
		{"an engine that does not answer and has the lab", up, broken{find: engine.ErrUnavailable}, engine.ErrUnavailable},
		{"an engine that does not answer and may have the lab", func(s *Store) error { return s.Write("state.json", []byte("{")) },
			broken{find: engine.ErrUnavailable}, engine.ErrUnavailable},
		{"an engine that does not answer and never had it", up, broken{name: "c", find: engine.ErrUnavailable}, nil},
		{"nodes that do not end", up, broken{nodes: []engine.Running{{Name: "h0", PID: 1}}, remove: sick}, sick},
	} {
		if err := left.open(nil); err != nil {
			t.Fatal(err)
		}
		if c.prepare != nil {
			if err := c.prepare(left); err != nil {
				t.Fatal(err)
			}
		}
		if err := left.close(); err != nil {
			t.Fatal(err)
		}
		b := c.b
		engines := []engine.Engine{&b}
		if b.name == "" {
			b.name = "b"
		} else {
			engines = append(engines, &broken{name: "b"})
		}
		existed, err := Destroy(t.Context(), name, engines)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || !existed {
			t.Errorf("%s: %v, there was something: %v; want %v", c.what, err, existed, c.want)
		}
		if _, err := os.Stat(left.Dir); (err == nil) != (c.want != nil) {
			t.Errorf("%s: the folder: %v", c.what, err)
		}
		if c.want == nil && b.find == nil && !slices.Equal(b.removed, []string{name}) {
			t.Errorf("%s: of the engine were removed %v", c.what, b.removed)
		}
		if _, err := os.Stat(other.Dir); err != nil {
			t.Fatalf("%s: the neighbour's folder: %v", c.what, err)
		}
	}
	if err := left.Remove(); err != nil {
		t.Fatal(err)
	}
	if existed, err := Destroy(t.Context(), name, []engine.Engine{&broken{name: "b"}}); existed || err != nil {
		t.Errorf("where nothing is: %v, %v", existed, err)
	}
}

// starting is an engine that looks, when it is to start nodes, at what is there of the lab.
type starting struct {
	broken
	start func() error
}

// Start implements engine.Engine.
func (s *starting) Start(_ context.Context, _ string, nodes []engine.Node, intend func(effect, object string) error) error {
	for _, n := range nodes {
		if err := intend("start", n.Name); err != nil {
			return err
		}
	}
	return s.start()
}

// TestStateFirst: before the first node is started the lab's plan, its state and what is
// going to be done are written: a crash from then on leaves nothing that nobody knows of.
// When nodes cannot be started all of it goes again.
func TestStateFirst(t *testing.T) {
	root(t)
	const name = "t-first"
	s := storeFor(t, name)
	t.Cleanup(func() { _ = s.Remove() })
	l, err := lab.Parse("lab", []byte("name: "+name+"\ntopology: {star: {hosts: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	sick, started := errors.New("it is sick"), false
	e := &starting{broken: broken{name: "b"}, start: func() error {
		started = true
		st, ok, err := s.Get()
		if err != nil || !ok || st.Phase != phaseDeploying || st.Engine != "b" || st.Lab != name {
			t.Errorf("state %+v, there: %v, %v", st, ok, err)
		}
		if plan, err := s.deployed(&st); err != nil || !reflect.DeepEqual(plan, l) {
			t.Errorf("plan: %+v, %v", plan, err)
		}
		intents, err := os.ReadFile(filepath.Join(s.Dir, "intents.jsonl"))
		for _, node := range []string{"h0", "h1", "leaf0"} {
			if err != nil || !strings.Contains(string(intents), `"effect":"start","object":"`+node+`"`) {
				t.Errorf("intents lack %s: %v\n%s", node, err, intents)
			}
		}
		return sick
	}}
	if _, _, err := Deploy(t.Context(), l, Options{Engine: e}); !errors.Is(err, sick) || !started {
		t.Errorf("the deployment ends with %v, and was to start nodes: %v", err, started)
	}
	if _, err := os.Stat(s.Dir); !errors.Is(err, fs.ErrNotExist) || !slices.Contains(e.removed, name) {
		t.Errorf("the folder: %v; removed from the engine: %v", err, e.removed)
	}
}

// TestUpStays: a deployment that is refused, because the lab is up with another file or under
// another engine, or that is interrupted before it has done anything, leaves the running lab as it
// is.
func TestUpStays(t *testing.T) {
	root(t)
	const name = "t-stays"
	s := storeFor(t, name)
	t.Cleanup(func() { _ = s.Remove() })
	parse := func(hosts int) *lab.Lab {
		l, err := lab.Parse("lab", fmt.Appendf(nil, "name: %s\ntopology: {star: {hosts: %d}}\n", name, hosts))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if err := s.open(nil); err != nil {
		t.Fatal(err)
	}
	message, err := labspec.Encode(parse(2))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Write(labFile, message), s.put(state{Schema: stateSchema, Lab: name, Engine: "b", Phase: phaseUp}), s.close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		l    *lab.Lab
		b    broken
		want string
	}{
		{"another file", parse(3), broken{name: "b"}, "is up with another lab file"},
		{"another engine", parse(2), broken{name: "c"}, "is up under b"},
		{"interrupted", parse(2), broken{name: "b", find: context.Canceled}, context.Canceled.Error()},
	} {
		_, _, err := Deploy(t.Context(), c.l, Options{Engine: &c.b})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if st, ok, err := s.Get(); err != nil || !ok || st.Phase != phaseUp || len(c.b.removed) != 0 {
			t.Fatalf("%s: afterwards the state is %+v, %v, %v; removed %v", c.what, st, ok, err, c.b.removed)
		}
	}
}

// TestOtherVersion: a lab that another version has deployed is not touched and not taken for this version's: the
// error says which version it was and what to do. Nothing of the lab has to be read to destroy it.
func TestOtherVersion(t *testing.T) {
	root(t)
	const name = "t-version"
	s := storeFor(t, name)
	t.Cleanup(func() { _ = s.Remove() })
	l, err := lab.Parse("lab", []byte("name: "+name+"\ntopology: {star: {hosts: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, file, text, want string }{
		{"the text of a lab file", "lab.yml", string(l.Resolved()), "which has left no lab.json: "},
		{"a later message", labFile, `{"schema":"mcastlab/lab/v9","name":"t-version"}`, `read lab: the schema is "mcastlab/lab/v9", and this version reads "mcastlab/lab/v1": `},
	} {
		st := state{Schema: stateSchema, Lab: name, Engine: "b", Phase: phaseUp, Version: "v0.0.1"}
		if err := errors.Join(s.open(nil), s.Write(c.file, []byte(c.text)), s.put(st), s.close()); err != nil {
			t.Fatal(err)
		}
		e := &broken{name: "b"}
		_, attach := Attach(name, Options{Engine: e})
		_, _, deploy := Deploy(t.Context(), l, Options{Engine: e})
		for _, err := range []error{attach, deploy} {
			if err == nil || !strings.HasPrefix(err.Error(), "lab t-version was deployed by version v0.0.1") || !strings.Contains(err.Error(), c.want+"destroy it, and deploy it again") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		if now, ok, err := s.Get(); err != nil || !ok || now.Phase != phaseUp || len(e.removed) != 0 {
			t.Errorf("%s: afterwards the state is %+v, %v, %v; removed %v", c.what, now, ok, err, e.removed)
		}
		if err := s.open(nil); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(remove(t.Context(), s, []engine.Engine{e}), s.close()); err != nil || !slices.Contains(e.removed, name) {
			t.Errorf("%s: destroyed with %v; removed %v", c.what, err, e.removed)
		}
	}
}

// TestDamagedState: what a lab's folder says is not believed if it is not as it was written, and an older version's is.
func TestDamagedState(t *testing.T) {
	s := &Store{lab: "x", Dir: t.TempDir()}
	l, err := lab.Parse("lab", []byte("name: x\ntopology: {star: {hosts: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	message, err := labspec.Encode(l)
	if err != nil {
		t.Fatal(err)
	}
	st := state{Schema: stateSchema, Lab: "x", Engine: "b", Phase: phaseUp, Version: "v1", Leased: 4242}
	if err := errors.Join(s.put(st), s.Write(labFile, checksum.Comment(message))); err != nil {
		t.Fatal(err)
	}
	read := func() error {
		_, ok, err := s.Get()
		if err == nil && !ok {
			err = errors.New("there is no state")
		}
		_, lerr := s.deployed(&st)
		return errors.Join(err, lerr)
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, from, to, want string }{
		{"state.json", "4242", "4243", "read state of lab x: it is not as it was written"},
		{labFile, `"x"`, `"y"`, "it is not as it was written"},
		{"state.json", checksum.Key, "older", ""},
	} {
		b, err := os.ReadFile(filepath.Join(s.Dir, c.name))
		if err != nil || !bytes.Contains(b, []byte(c.from)) {
			t.Fatalf("%s: %v\n%s", c.name, err, b)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, c.name), bytes.Replace(b, []byte(c.from), []byte(c.to), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := read(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %s: %v", c.name, c.to, err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, c.name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
