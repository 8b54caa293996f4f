// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
)

const succeeded = "name: next\ntopology: {star: {hosts: 2}}\n"

// nodeProcess is a node in a process of its own, over sockets that lead to the test.
type nodeProcess struct {
	t   *testing.T
	c   nodeapi.NodeClient
	pid int
	far []int
}

const epochOfTest = 3

// newNodeProcess starts one and configures it.
func newNodeProcess(t *testing.T, name string, ports int) *nodeProcess {
	t.Helper()
	p := &nodeProcess{t: t}
	dir := t.TempDir()
	p.pid = startNode(t, dir)
	var near []*os.File
	for range ports {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		near, p.far = append(near, os.NewFile(uintptr(fds[0]), "port")), append(p.far, fds[1])
		t.Cleanup(func() { _ = unix.Close(fds[1]) })
	}
	if err := nodeapi.SendFiles(filepath.Join(dir, nodeapi.HandoverSocket), near); err != nil {
		t.Fatal(err)
	}
	for _, f := range near {
		_ = f.Close() // the node has its own
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, nodeapi.AgentSocket), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(nodeapi.Again))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	p.c = nodeapi.NewNodeClient(conn)
	m, err := live.NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.c.Configure(t.Context(), &nodeapi.ConfigureRequest{
		Node: name, Lab: messageOfLab(t, succeeded), Rate: &nodeapi.Rate{Mono: m.Now(), Dilation: 1000}, Epoch: epochOfTest,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// state returns the node's report of itself.
func (p *nodeProcess) state() counters.Node {
	p.t.Helper()
	r, err := p.c.Inspect(p.t.Context(), &nodeapi.InspectRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := r.Decode()
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// fault returns a fault that is given as in a lab file.
func (p *nodeProcess) fault(id, entry string) *nodeapi.Fault {
	p.t.Helper()
	l, err := lab.Parse("lab", []byte(succeeded))
	if err != nil {
		p.t.Fatal(err)
	}
	return &nodeapi.Fault{Id: id, Text: entry, Message: faultMessage(p.t, l, entry)}
}

// crash makes the agent crash, for ten seconds on the wall.
func (p *nodeProcess) crash(id, node string) {
	p.t.Helper()
	now := vtime.Time(p.state().LabUS * float64(vtime.Microsecond))
	f := p.fault(id, "{for: 10ms, agent-crash: {nodes: "+node+"}}")
	f.Origin = int64(now)
	_, err := p.c.AddFaults(nodeapi.WithEpoch(p.t.Context(), epochOfTest), &nodeapi.FaultList{Faults: []*nodeapi.Fault{f}})
	if err != nil {
		p.t.Fatal(err)
	}
}

// reset takes the faults away.
func (p *nodeProcess) reset() {
	p.t.Helper()
	if _, err := p.c.ResetFaults(nodeapi.WithEpoch(p.t.Context(), epochOfTest), &nodeapi.ResetRequest{}); err != nil {
		p.t.Fatal(err)
	}
}

// executed reports whether the process is one that has taken another's place.
func (p *nodeProcess) executed() bool {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return bytes.Contains(b, []byte(legacyEnv+"="))
}

// send gives the node invalid frames, and returns once it has counted inAll of them.
func (p *nodeProcess) send(frames int, inAll uint64) {
	p.t.Helper()
	for range frames {
		if _, err := unix.Write(p.far[0], []byte("no frame")); err != nil {
			p.t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := p.state().Ports[0].Malformed
		if got >= inAll {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("it has counted %d frames, want %d", got, inAll)
		}
	}
}

// holds waits until the node holds the wanted objects and has no more goroutines: that of a call or a
// connection ends a moment after its caller has the answer.
func (p *nodeProcess) holds(when string, want counters.Held) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := *p.state().Held
		if got.Goroutines < want.Goroutines {
			got.Goroutines = want.Goroutines
		}
		if reflect.DeepEqual(got, want) {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("%s: it holds %+v, want %+v", when, got, want)
		}
	}
}

// joins has the host at the first port join a group, and returns once the switch knows.
func (p *nodeProcess) joins(group uint32) {
	p.t.Helper()
	var pool wire.Pool
	w := wire.Reporter{IP: 0x0a000001}
	f := w.Report(&pool, []wire.GroupRecord{{Type: wire.ChangeToExclude, Group: group}})
	if _, err := unix.Write(p.far[0], f.AppendTo(nil)); err != nil {
		p.t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); len(p.state().Joined) == 0; {
		if time.Now().After(deadline) {
			p.t.Fatal("the switch has not heard of the group")
		}
	}
}

// TestSwitchSuccessor: the process of a switch whose agent has crashed, twice, is executed again under its number.
// Counters, clock, faults, groups of programs, the controllers' entries and the epoch are those of before, and it
// holds the objects of a new one. Frames that arrive meanwhile are lost at its links.
func TestSwitchSuccessor(t *testing.T) {
	p := newNodeProcess(t, "leaf0", 2)
	leader := nodeapi.WithEpoch(t.Context(), epochOfTest)
	if _, err := p.c.SetMulticast(leader, &nodeapi.MulticastEntry{Group: 0xe1000001, Ports: []uint32{0, 1}}); err != nil {
		t.Fatal(err)
	}
	slow := p.fault("slow", "{rate-cut: {links: h0-leaf0, rate: 1Gbps}}")
	if _, err := p.c.AddFaults(leader, &nodeapi.FaultList{Faults: []*nodeapi.Fault{slow}}); err != nil {
		t.Fatal(err)
	}
	p.send(3, 3)
	p.joins(0xe1000002)
	fresh := p.state()
	if p.executed() {
		t.Fatal("the node has taken another's place before it crashed")
	}
	for i, id := range []string{"first", "second"} {
		p.crash(id, "leaf0")
		now := p.state()
		if !p.executed() {
			t.Fatalf("%s: the process is the one that crashed", id)
		}
		p.holds(id, *fresh.Held)
		if now.LabUS <= fresh.LabUS || *now.Rate != *fresh.Rate {
			t.Errorf("%s: its clock is %v, %+v, and was %v, %+v", id, now.LabUS, *now.Rate, fresh.LabUS, *fresh.Rate)
		}
		p.send(1, uint64(4+i))
		if !reflect.DeepEqual(now.Joined, fresh.Joined) {
			t.Errorf("%s: groups of programs are %+v, and were %+v", id, now.Joined, fresh.Joined)
		}
		all, err := p.c.ListFaults(t.Context(), &nodeapi.InspectRequest{})
		if err != nil || len(all.Faults) != 2+i || all.Faults[0].Id != "slow" || !all.Faults[0].On {
			t.Fatalf("%s: the faults are %v, %v", id, all, err)
		}
		if f := all.Faults[len(all.Faults)-1]; f.Id != id || !f.On || f.Seen != 1 {
			t.Errorf("%s: it is %v", id, f)
		}
	}
	if _, err := p.c.ResetFaults(t.Context(), &nodeapi.ResetRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a call of no epoch: %v", err)
	}
	p.reset()
	if s := p.state(); s.Ports[0].Malformed != 5 || s.Held.Multicast != 1 {
		t.Errorf("in the end it is %+v, and holds %+v", s.Ports[0], *s.Held)
	}
}

// watch collects events until their stream ends.
func watchAll(w nodeapi.Node_WatchClient, err error) (all []*nodeapi.Event, end error) {
	for err == nil {
		var b *nodeapi.EventBatch
		if b, err = w.Recv(); err == nil {
			all = append(all, b.Events...)
		}
	}
	return all, err
}

// TestHostSuccessor: the job on a host whose agent crashes ends with the reason, also if its program
// could not be ended otherwise, and the next one is run by the new process. A watcher gets every event
// once.
func TestHostSuccessor(t *testing.T) {
	p := newNodeProcess(t, "h0", 1)
	start := func(name string) nodeapi.Node_JobClient {
		j, err := p.c.Job(t.Context())
		if err == nil {
			err = j.Send(&nodeapi.ToRank{What: &nodeapi.ToRank_Start{Start: &nodeapi.Start{
				App: program.Name, Params: []byte(`{"workload":"w","program":"` + name + `"}`), Names: []string{"h0"}, Ips: []uint32{0x0a000001}, Job: "job",
			}}})
		}
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	begin := func(j nodeapi.Node_JobClient) { // lets the program continue that has reported its state
		m, err := j.Recv()
		if err == nil {
			err = j.Send(&nodeapi.ToRank{Id: m.Id, What: &nodeapi.ToRank_Ok{Ok: true}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	done := func(j nodeapi.Node_JobClient) string {
		for {
			m, err := j.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if d := m.GetDone(); d != nil {
				return d.Error
			}
			if m.Id == 0 {
				continue // it wants no answer
			}
			if err := j.Send(&nodeapi.ToRank{Id: m.Id, What: &nodeapi.ToRank_Ok{Ok: true}}); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	}
	first, err := p.c.Watch(t.Context(), &nodeapi.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	j := start("stuck")
	begin(j)
	p.crash("dead", "h0")
	if why := done(j); !strings.HasPrefix(why, nodeapi.Crashed+"h0 at ") {
		t.Errorf("the job ended with %q", why)
	}
	if _, err := j.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("its stream ended with %v", err)
	}
	told, err := watchAll(first, nil)
	if !errors.Is(err, io.EOF) {
		t.Errorf("the first stream of events ended with %v", err)
	}
	second, err := p.c.Watch(t.Context(), &nodeapi.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := second.Recv() // the process that is there next is meant, and not the one after it
	if err != nil {
		t.Fatal(err)
	}
	told = append(told, batch.Events...)
	p.reset()
	if h := *p.state().Held; h.Rank || h.Tasks != 0 || !p.executed() {
		t.Errorf("the new process has %+v", h)
	}
	j = start("idle")
	if why := done(j); why != "" {
		t.Errorf("the next job ended with %q", why)
	}
	if err := j.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the next job's stream ended with %v", err)
	}
	p.crash("again", "h0")
	more, err := watchAll(second, nil)
	if !errors.Is(err, io.EOF) {
		t.Errorf("the second stream of events ended with %v", err)
	}
	var kinds []string
	for _, e := range append(told, more...) {
		kinds = append(kinds, machine.EventKind(e.Kind).String())
	}
	if got := strings.Join(kinds, " "); got != "fault-added fault-removed fault-added" {
		t.Errorf("the events are %s", got)
	}
}
