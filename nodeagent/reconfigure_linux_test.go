// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// TestReconfigureUnderCalls: while a node is ended and configured again, many times, calls of all kinds
// are made. Each is carried out by one configuration or refused, and none reaches a descriptor that
// another socket has by then.
func TestReconfigureUnderCalls(t *testing.T) {
	a := &agent{version: "test"}
	over := make(chan struct{})
	var callers sync.WaitGroup
	var served, refused atomic.Int64
	hammer := func(name string, f func(ctx context.Context) error) {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				runtime.Gosched()
				err := f(t.Context())
				if err == nil {
					served.Add(1)
					continue
				}
				refused.Add(1)
				if status.Code(err) != codes.FailedPrecondition && err.Error() != "the node is not configured yet" {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	hammer("rate", func(ctx context.Context) error {
		_, err := a.SetRate(ctx, &nodeapi.Rate{Dilation: 1000})
		return err
	})
	hammer("inspect", func(ctx context.Context) error {
		_, err := a.Inspect(ctx, &nodeapi.InspectRequest{})
		return err
	})
	hammer("group", func(ctx context.Context) error {
		_, err := a.SetMulticast(ctx, &nodeapi.MulticastEntry{Group: 0xe1000001, Ports: []uint32{0, 1}})
		return err
	})
	hammer("list of faults", func(ctx context.Context) error {
		_, err := a.ListFaults(ctx, &nodeapi.InspectRequest{})
		return err
	})
	hammer("reset of faults", func(ctx context.Context) error {
		_, err := a.ResetFaults(ctx, &nodeapi.ResetRequest{})
		return err
	})
	hammer("metrics", func(context.Context) error {
		_, err := a.snapshot()
		return err
	})
	more := func(n *atomic.Int64) { // lets the callers be served, or refused, some times more together
		for target := n.Load() + 40; n.Load() < target; {
			runtime.Gosched()
		}
	}
	for range 30 {
		configureAs(t, a, "leaf0", 2)
		more(&served)
		a.replaceSockets(nil)
		var planted []int
		for range 8 { // they get the lowest numbers there are: those that were closed
			fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			planted = append(planted, fd)
		}
		more(&refused)
		for _, fd := range planted {
			var b [8]byte
			if _, err := unix.Read(fd, b[:]); !errors.Is(err, unix.EAGAIN) {
				t.Errorf("descriptor %d, which another socket has, was written to (%v)", fd, err)
			}
			_ = unix.Close(fd) // it is the test's
		}
	}
	close(over)
	callers.Wait()
}

// TestFenceBeforeNode: from the moment at which a node begins to be configured for an epoch,
// calls of earlier ones are refused, also while the old node has not ended yet.
func TestFenceBeforeNode(t *testing.T) {
	a := &agent{version: "test"}
	configureAs(t, a, "leaf0", 2)
	defer a.replaceSockets(nil)
	_, busy, err := a.configured() // a call that takes its time
	if err != nil {
		t.Fatal(err)
	}
	again, ended := messageOfLab(t, "name: metrics\ntopology: {star: {hosts: 2}}\n"), make(chan error, 1)
	go func() {
		_, err := a.Configure(context.Background(), &nodeapi.ConfigureRequest{
			Node: "leaf0", Lab: again, Rate: &nodeapi.Rate{Dilation: 1000}, Epoch: 2,
		})
		ended <- err
	}()
	for deadline := time.Now().Add(5 * time.Second); a.fence.Highest() != 2 && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	if leave, err := a.fence.Enter(1); err == nil {
		leave()
		t.Error("a call of the epoch before is admitted to the node to come")
	}
	busy()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestConfigureByFile: nodes and controllers get a lab as its message. The text of a lab file, which older
// versions sent, is refused with one line.
func TestConfigureByFile(t *testing.T) {
	q := &nodeapi.ConfigureRequest{Node: "leaf0", Lab: []byte("name: metrics\ntopology: {star: {hosts: 2}}\n"), Rate: &nodeapi.Rate{Dilation: 1000}}
	_, atNode := (&agent{version: "test"}).Configure(t.Context(), q)
	_, atController := (&controllerNode{o: ControllerOptions{Name: "controller0"}}).Configure(t.Context(), q)
	for _, err := range []error{atNode, atController} {
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), `: read lab: it is no message of schema "mcastlab/lab/v1": `) || strings.Contains(s.Message(), "\n") {
			t.Errorf("%v", err)
		}
	}
	l := &controller.Lab{Name: "metrics", Message: q.Lab}
	if err := newAgentClients(t.TempDir()).Adopt(t.Context(), 1, l); err == nil || !strings.HasPrefix(err.Error(), "read lab: it is no message") {
		t.Errorf("a leader whose state has the text of a file: %v", err)
	}
}
