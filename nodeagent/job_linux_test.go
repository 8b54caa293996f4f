// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// holder is a program that makes one of each object a rank can make, has more to send than it ever
// will, and then ends as the test asks.
func holder(stuck <-chan struct{}) rank.Program {
	return rank.Program{Name: "holder", Run: func(r *rank.Rank, _ []string) error {
		b, err := r.Alloc(8<<20, rank.MemoryHashed)
		if err != nil {
			return err
		}
		part, err := r.Sub("part", []int{0})
		if err != nil {
			return err
		}
		if _, err := part.Alloc(1<<10, rank.MemoryBytes); err != nil {
			return err
		}
		r.Go("leader", func() error {
			_, err := r.NewGroup("g", 0)
			return err
		})
		if _, err := r.NewMulticast("u", rank.Datagrams, 16); err != nil {
			return err
		}
		c, err := r.Connect(1)
		if err != nil {
			return err
		}
		for range 16 {
			if _, err := c.Send(b, 0, b.Len()); err != nil {
				return err
			}
		}
		switch what := r.Get("what"); string(what) {
		case "error":
			return errors.New("it failed")
		case "panic":
			panic("on purpose")
		case "panics":
			for i := range 4 {
				r.Go("worker", func() error { panic(i) })
			}
			r.Get("nothing")
		case "stuck":
			<-stuck // the test sees that it waits
			<-stuck
		}
		return nil
	}}
}

// jobs is an agent, its one node, and the stream over which its rank runs; the test is the
// orchestrator and the other end of the link.
type jobs struct {
	t    *testing.T
	a    *agent
	c    nodeapi.NodeClient
	link int
	pool wire.Pool
	end  context.CancelFunc
	s    nodeapi.Node_JobClient
	last uint64 // the request for the next step, which waits for its answer
	led  bool   // the member's queue pair was asked for
	came uint64 // frames taken from the link
}

func newJobs(t *testing.T, p rank.Program) *jobs {
	t.Helper()
	a := &agent{programs: []rank.Program{p}}
	far := configureAs(t, a, "h0", 1)
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := a.server()
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		<-served
		if err := a.halt(); err != nil {
			t.Error(err)
		}
	})
	return &jobs{t: t, a: a, c: nodeapi.NewNodeClient(conn), link: far[0]}
}

// start starts the rank and returns when its data flows.
func (j *jobs) start() {
	j.t.Helper()
	ctx, end := context.WithCancel(j.t.Context())
	j.end = end
	var err error
	if j.s, err = j.c.Job(ctx); err != nil {
		j.t.Fatal(err)
	}
	j.tell(&nodeapi.ToRank{What: &nodeapi.ToRank_Start{Start: &nodeapi.Start{
		App: program.Name, Params: []byte(`{"workload":"w","program":"holder"}`), Names: []string{"h0", "h1"}, Ips: []uint32{0x0a000001, 0x0a000002},
		Job: "job", Lab: int64(j.a.node.loop.Now()),
	}}})
	for j.last, j.led = 0, false; j.last == 0 || !j.led; {
		m, err := j.s.Recv()
		if err != nil {
			j.t.Fatal(err)
		}
		j.answer(m)
	}
	j.until("data to flow", func() bool { roce, _ := j.frames(); return roce > 0 })
}

// answer answers a rank's calls before its request for the next step.
func (j *jobs) answer(m *nodeapi.FromRank) {
	j.t.Helper()
	r := &nodeapi.ToRank{Id: m.Id}
	switch q := m.What.(type) {
	case *nodeapi.FromRank_Put, *nodeapi.FromRank_Record:
		return
	case *nodeapi.FromRank_Get:
		if q.Get == "what" {
			j.last = m.Id
			return
		}
		v := binary.BigEndian.AppendUint32(nil, 17) // a queue pair that does not exist
		if strings.HasPrefix(q.Get, "conn/") {
			v = binary.BigEndian.AppendUint32(v, 100)
		}
		j.led = j.led || q.Get == "group/g/qp/1"
		r.What = &nodeapi.ToRank_Value{Value: v}
	case *nodeapi.FromRank_Barrier:
		r.What = &nodeapi.ToRank_Release{Release: int64(j.a.node.loop.Now())}
	case *nodeapi.FromRank_Lease:
		r.What = &nodeapi.ToRank_Lease{Lease: &nodeapi.Lease{Group: wire.GroupNet | 1}}
	case *nodeapi.FromRank_Multicast:
		r.What = &nodeapi.ToRank_Lease{Lease: &nodeapi.Lease{Group: wire.MulticastNet | 1}}
	case *nodeapi.FromRank_Report:
		r.What = &nodeapi.ToRank_Ok{Ok: true}
	default:
		j.t.Fatalf("the rank says %v", m)
	}
	j.tell(r)
}

func (j *jobs) tell(m *nodeapi.ToRank) {
	j.t.Helper()
	if err := j.s.Send(m); err != nil {
		j.t.Fatal(err)
	}
}

// have has the program do something.
func (j *jobs) have(what string) {
	j.t.Helper()
	j.tell(&nodeapi.ToRank{Id: j.last, What: &nodeapi.ToRank_Value{Value: []byte(what)}})
}

// done returns the end of the rank, by its own report.
func (j *jobs) done() string {
	j.t.Helper()
	for {
		m, err := j.s.Recv()
		if err != nil {
			j.t.Fatal(err)
		}
		if d := m.GetDone(); d != nil {
			return d.Error
		}
	}
}

// frames takes the frames that have arrived on the link: packets of RoCE, and DELETEs of groups.
func (j *jobs) frames() (roce, deletes int) {
	j.t.Helper()
	b := make([]byte, 1<<14)
	for {
		n, err := unix.Read(j.link, b)
		if errors.Is(err, unix.EAGAIN) {
			return roce, deletes
		}
		if err != nil {
			j.t.Fatal(err)
		}
		f, err := j.pool.Parse(b[:n])
		if err != nil {
			j.t.Fatal(err)
		}
		j.came++
		switch f.Kind() {
		case wire.KindRoCE:
			roce++
		case wire.KindMRP:
			if p, err := wire.ParseMRP(f.Payload().Bytes()); err == nil && p.Flags&wire.MRPDelete != 0 {
				deletes++
			}
		}
		j.pool.Put(f)
	}
}

// until waits until something holds, within the time a test may take.
func (j *jobs) until(what string, holds func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !holds(); {
		if time.Now().After(deadline) {
			j.t.Fatalf("%s does not come: the node holds %+v", what, j.held())
		}
		<-time.After(time.Millisecond)
	}
}

func (j *jobs) state() counters.Node {
	j.t.Helper()
	s, err := j.a.node.state()
	if err != nil {
		j.t.Fatal(err)
	}
	return s
}

// held returns the objects of a run that the node holds; the process is the test's.
func (j *jobs) held() counters.Held {
	h := *j.state().Held
	h.Goroutines, h.Files = 0, 0
	return h
}

// TestWaysOut: whichever way a rank's job ends, no object of the rank is left on its host, nothing more
// is sent, and the switches are asked to delete the group that it leads.
func TestWaysOut(t *testing.T) {
	j := newJobs(t, holder(nil))
	fresh := j.held()
	gone := func() { j.end() }
	for _, way := range []struct {
		name string
		out  func()
		says string // of the rank
	}{
		{"success", func() { j.have("end") }, ""},
		{"error", func() { j.have("error") }, "it failed"},
		{"panic", func() { j.have("panic") }, "the program panicked: on purpose"},
		{"workers panic", func() { j.have("panics") }, "the program panicked: "},
		{"host crash", func() {
			j.a.node.loop.Call(vtime.Never, func(now vtime.Time) { target{j.a.node}.Restart(now, j.a.node.id) })
		}, nodeapi.Crashed},
		{"stream broken off", gone, "-"},
		{"stream closed", func() { _ = j.s.CloseSend() }, "-"},
		{"taken back", func() {
			if _, err := j.c.Release(t.Context(), &nodeapi.ReleaseRequest{}); err != nil {
				t.Error(err)
			}
		}, "-"},
	} {
		ok := t.Run(way.name, func(t *testing.T) {
			j.t = t
			j.start()
			j.until("all that it makes", func() bool {
				h := j.held()
				return h.QPs == 3 && h.MRs == 2 && h.CQs > 2 && h.PDs == 1 && h.Rank && h.Tasks == 2 && h.Registrations == 1 && h.Memberships == 1
			})
			way.out()
			if way.says != "-" {
				if got := j.done(); !strings.Contains(got, way.says) || way.says == "" && got != "" {
					t.Errorf("the rank says %q, want %q", got, way.says)
				}
				if h := j.held(); way.says != "" && h.QPs > 0 { // others may take long to end
					t.Errorf("after it has said so it has %d queue pairs", h.QPs)
				}
				if err := j.s.CloseSend(); err != nil {
					t.Error(err)
				}
			}
			deletes := 0
			j.until("the end of the job", func() bool {
				_, d := j.frames()
				deletes += d
				h := j.held()
				h.Registrations, h.Timers = 0, 0 // no member is there to confirm the group's end
				return reflect.DeepEqual(h, fresh)
			})
			j.until("the DELETE", func() bool {
				_, d := j.frames()
				deletes += d
				return deletes > 0 || way.name == "host crash" || way.name == "taken back" // these know no groups any more
			})
			// Frames that the node counts as sent may wait in it while the kernel has no room, and so
			// until the test reads: nothing is under way once the test has read as many as were sent.
			j.until("what was on its way", func() bool {
				s := j.state()
				j.frames()
				return s.Live == 0 && j.came == s.Ports[0].Sent
			})
			for range 100 {
				if roce, _ := j.frames(); roce > 0 {
					t.Fatalf("%d packets are sent after the end", roce)
				}
				<-time.After(time.Millisecond)
			}
			gone()
			if _, err := j.c.Release(t.Context(), &nodeapi.ReleaseRequest{}); err != nil {
				t.Fatal(err)
			}
			if h := j.held(); !reflect.DeepEqual(h, fresh) {
				t.Errorf("once more taken back the node holds %+v, when it was new %+v", h, fresh)
			}
		})
		if !ok {
			return // leftovers now would be found again
		}
	}
}

// TestStuckProgram: a program that waits for something outside package rank cannot be unwound (see
// endTasks), but its requests under way stop without delay; if it returns in time, the host takes part
// in the next run.
func TestStuckProgram(t *testing.T) {
	stuck := make(chan struct{})
	free := sync.OnceFunc(func() { close(stuck) })
	j := newJobs(t, holder(stuck))
	t.Cleanup(free)
	j.a.node.job.Lock()
	j.a.node.exit = func(int) { <-stuck } // the process is the test's, which may be slow
	j.a.node.job.Unlock()
	fresh := j.held()
	j.start()
	j.have("stuck")
	stuck <- struct{}{}
	j.end()
	j.until("silence", func() (still bool) {
		still = true
		j.a.node.loop.Call(vtime.Never, func(vtime.Time) {
			j.a.node.nic.QPs(func(q *virtrnic.QP) { still = still && q.State() == virtrnic.StateErr })
		})
		return still
	})
	free()
	if _, err := j.c.Release(t.Context(), &nodeapi.ReleaseRequest{}); err != nil {
		t.Fatal(err)
	}
	if h := j.held(); !reflect.DeepEqual(h, fresh) {
		t.Errorf("the node holds %+v, when it was new %+v", h, fresh)
	}
}
