// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/rank"
)

// orchestrated is the orchestrator's end of a job, in memory.
type orchestrated struct {
	grpc.ServerStream
	ctx  context.Context
	in   chan *nodeapi.ToRank
	done chan string // the end of the rank
}

// Send implements nodeapi.Node_JobServer.
func (o *orchestrated) Send(m *nodeapi.FromRank) error {
	switch {
	case m.GetDone() != nil:
		o.done <- m.GetDone().Error
	case m.Id != 0:
		o.in <- &nodeapi.ToRank{Id: m.Id, What: &nodeapi.ToRank_Ok{Ok: true}}
	}
	return nil
}

// Recv implements nodeapi.Node_JobServer.
func (o *orchestrated) Recv() (*nodeapi.ToRank, error) {
	select {
	case m, ok := <-o.in:
		if ok {
			return m, nil
		}
	case <-o.ctx.Done():
	}
	return nil, io.EOF
}

// Context implements grpc.ServerStream.
func (o *orchestrated) Context() context.Context { return o.ctx }

// TestCrashBeforeJob: a host that crashes while it is idle ends no program, not the one that
// begins right after either.
func TestCrashBeforeJob(t *testing.T) {
	a := &agent{version: "test", programs: []rank.Program{{Name: "sleeper", Run: func(r *rank.Rank, _ []string) error {
		for range 5 {
			r.Sleep(vtime.Microsecond) // a millisecond on the wall
		}
		return nil
	}}}}
	configureAs(t, a, "h0", 1)
	defer a.replaceSockets(nil)
	n := a.node
	for i := range 50 {
		n.loop.Call(vtime.Never, func(now vtime.Time) { target{n}.Restart(now, n.id) })
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		o := &orchestrated{ctx: ctx, in: make(chan *nodeapi.ToRank, 16), done: make(chan string, 1)}
		o.in <- &nodeapi.ToRank{What: &nodeapi.ToRank_Start{Start: &nodeapi.Start{
			App: program.Name, Params: []byte(`{"workload":"w","program":"sleeper"}`), Names: []string{"h0"}, Ips: []uint32{0x0a000001}, Job: "job", Lab: int64(n.loop.Now()),
		}}}
		ended := make(chan error, 1)
		go func() { ended <- a.Job(o) }()
		select {
		case why := <-o.done:
			if why != "" {
				t.Errorf("job %d: %s", i, why)
			}
		case <-ctx.Done():
			t.Fatalf("job %d: its program was ended, and nobody told", i)
		}
		close(o.in)
		if err := <-ended; err != nil {
			t.Errorf("job %d: %v", i, err)
		}
		stop()
	}
}
