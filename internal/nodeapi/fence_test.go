// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/prng"
)

// TestFence: who has seen an epoch refuses older ones, and a newer one waits until calls admitted
// before have ended.
func TestFence(t *testing.T) {
	var f Fence
	leave, err := f.Enter(3)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.Enter(3) // two calls of one leader
	if err != nil {
		t.Fatal(err)
	}
	in := make(chan func())
	go func() {
		leave, err := f.Enter(5)
		if err != nil {
			t.Error(err)
		}
		in <- leave
	}()
	again()
	select {
	case <-in:
		t.Fatal("a newer epoch is in while an older one is at work")
	case <-time.After(20 * time.Millisecond): // that it waits cannot be seen otherwise
	}
	leave()
	(<-in)()
	for _, old := range []uint64{1, 3, 4} {
		if _, err := f.Enter(old); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("epoch %d: %v", old, err)
		}
	}
	f.Raise(2) // changes nothing
	if f.Highest() != 5 {
		t.Errorf("the highest is %d", f.Highest())
	}
}

// TestFenceOrder: many leaders at once, in any order: admitted calls are carried out in the order of
// epochs.
func TestFenceOrder(t *testing.T) {
	for seed := range uint64(50) {
		var f Fence
		var mu sync.Mutex
		var done []uint64
		var all sync.WaitGroup
		random := prng.New(seed)
		for range 40 {
			epoch := uint64(random.IntN(10)) + 1
			all.Go(func() {
				leave, err := f.Enter(epoch)
				if err != nil {
					return
				}
				defer leave()
				mu.Lock()
				defer mu.Unlock()
				done = append(done, epoch)
			})
		}
		all.Wait()
		for i := 1; i < len(done); i++ {
			if done[i] < done[i-1] {
				t.Fatalf("seed %d: %v", seed, done)
			}
		}
	}
}

// TestIntercept: calls without an epoch may read, and may make changes only where no leader was.
func TestIntercept(t *testing.T) {
	var f Fence
	call := func(epoch, method string) error {
		ctx := t.Context()
		if epoch != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs(epochKey, epoch))
		}
		_, err := f.Intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	for _, c := range []struct {
		epoch, method string
		want          codes.Code
	}{
		{"", Node_AddFaults_FullMethodName, codes.OK},
		{"x", Node_ListFaults_FullMethodName, codes.InvalidArgument},
		{"0", Node_ListFaults_FullMethodName, codes.InvalidArgument},
		{"7", Node_ListFaults_FullMethodName, codes.OK},
		{"", Node_AddFaults_FullMethodName, codes.FailedPrecondition},
		{"", Node_ResetFaults_FullMethodName, codes.FailedPrecondition},
		{"", Node_SetMulticast_FullMethodName, codes.FailedPrecondition},
		{"", Node_SetRate_FullMethodName, codes.OK},
		{"6", Node_AddFaults_FullMethodName, codes.FailedPrecondition},
		{"7", Node_AddFaults_FullMethodName, codes.OK},
		{"8", Node_Inspect_FullMethodName, codes.OK},
		{"7", Node_AddFaults_FullMethodName, codes.FailedPrecondition},
	} {
		if err := call(c.epoch, c.method); status.Code(err) != c.want {
			t.Errorf("%s with epoch %q: %v", c.method, c.epoch, err)
		}
	}
}

// TestFenceWithoutEpoch: a leader's call without an epoch, of a lab that has no controllers
// yet, ends before the first epoch begins, and none is admitted after.
func TestFenceWithoutEpoch(t *testing.T) {
	var f Fence
	info := &grpc.UnaryServerInfo{FullMethod: Node_AddFaults_FullMethodName}
	at, goOn, ended := make(chan bool), make(chan bool), make(chan error, 1)
	go func() {
		_, err := f.Intercept(t.Context(), nil, info, func(context.Context, any) (any, error) { close(at); <-goOn; return nil, nil })
		ended <- err
	}()
	<-at
	raised := make(chan bool)
	go func() { f.Raise(1); close(raised) }()
	select {
	case <-raised:
		t.Error("an epoch is in while a call from before it is at work")
	case <-time.After(20 * time.Millisecond): // that it waits cannot be seen otherwise
	}
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	<-raised
	if _, err := f.Intercept(t.Context(), nil, info, nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a call without an epoch: %v", err)
	}
}
