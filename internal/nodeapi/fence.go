// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// epochKey is the key of a call's metadata with the epoch in which its caller leads.
const epochKey = "mcastlab-epoch"

// WithEpoch returns a context whose calls carry a leader's epoch.
func WithEpoch(ctx context.Context, epoch uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, epochKey, strconv.FormatUint(epoch, 10))
}

// EpochOf returns the epoch that a call carries; 0: none.
func EpochOf(ctx context.Context) (uint64, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	v := md.Get(epochKey)
	if len(v) == 0 {
		return 0, nil
	}
	e, err := strconv.ParseUint(v[len(v)-1], 10, 64)
	if err != nil || e == 0 {
		return 0, status.Errorf(codes.InvalidArgument, "epoch %q is not a number from 1 up", v[len(v)-1])
	}
	return e, nil
}

// Fence keeps out leaders of the past. A node that has seen an epoch refuses older ones, and
// when a newer one is admitted no call of an older one is under way any more.
type Fence struct {
	calls sync.RWMutex // held for reading by every call that is admitted

	mu      sync.Mutex
	highest uint64
}

// Highest returns the highest epoch that was admitted.
func (f *Fence) Highest() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// Raise makes sure that epochs before this one are over.
func (f *Fence) Raise(epoch uint64) {
	f.calls.Lock() // those of older epochs end first
	defer f.calls.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.highest = max(f.highest, epoch)
}

// Enter admits a call, which calls leave when it has ended, or refuses it.
func (f *Fence) Enter(epoch uint64) (leave func(), err error) {
	if epoch > f.Highest() {
		f.Raise(epoch)
	}
	f.calls.RLock()
	if highest := f.Highest(); epoch < highest {
		f.calls.RUnlock()
		return nil, status.Errorf(codes.FailedPrecondition, "epoch %d is over: a leader of epoch %d was here", epoch, highest)
	}
	return f.calls.RUnlock, nil
}

// leaders are the calls that in a lab with controllers only the leader makes.
var leaders = []string{Node_AddFaults_FullMethodName, Node_ResetFaults_FullMethodName, Node_SetMulticast_FullMethodName}

// Intercept keeps calls out that carry an older epoch than was seen, and those without one that
// are the leader's.
func (f *Fence) Intercept(ctx context.Context, q any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	epoch, err := EpochOf(ctx)
	if err != nil {
		return nil, err
	}
	if epoch == 0 && !slices.Contains(leaders, info.FullMethod) {
		return handler(ctx, q)
	}
	leave, err := f.Enter(epoch)
	switch {
	case err != nil && epoch == 0:
		return nil, status.Error(codes.FailedPrecondition, "the lab has controllers, and only their leader does this")
	case err != nil:
		return nil, err
	}
	defer leave()
	return handler(ctx, q)
}
