// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// releaseWait is the time that a rank may take to end. One that blocks only through package rank ends
// immediately, and with one that blocks outside it the node ends sooner than this (live.Host.Stop): the
// rest is a store that is slow to close.
const releaseWait = 5 * time.Second

// Release implements nodeapi.NodeServer. Between runs nothing on a node is in use: whatever a rank
// could not release itself is removed with everything else that its NIC holds.
func (a *agent) Release(ctx context.Context, _ *nodeapi.ReleaseRequest) (*nodeapi.ReleaseReply, error) {
	n, done, err := a.configured()
	if err != nil {
		return nil, err
	}
	defer done()
	if n.host != nil {
		if err := n.endRank(ctx); err != nil {
			return nil, err
		}
		defer n.job.Unlock()
	}
	return &nodeapi.ReleaseReply{}, n.call(n.reset)
}

// endRank ends the job that runs, and returns with n.job locked so that no other begins. The caller
// unlocks it.
func (n *node) endRank(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, releaseWait)
	defer stop()
	for tick := time.NewTicker(time.Millisecond); ; {
		if n.job.TryLock() {
			tick.Stop()
			return nil
		}
		if b := n.running.Load(); b != nil {
			b.release.Do(func() { close(b.released) })
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return status.Errorf(codes.FailedPrecondition, "its rank does not end within %v: its store does not answer%s",
				releaseWait, n.waits())
		case <-tick.C:
		}
	}
}

// waits returns the reasons of the waits of the host's tasks, or an empty string.
func (n *node) waits() string {
	why := n.host.Waiting()
	if len(why) == 0 {
		return ""
	}
	return " (" + strings.Join(why, ", ") + ")"
}

// reset removes the objects of runs on this node. The plain multicast groups of a lab with controllers
// are removed by those.
func (n *node) reset(now vtime.Time) {
	switch {
	case n.sw != nil:
		n.sw.WipeGroups()
		if len(n.lab.Replicas()) == 0 {
			n.sw.WipeMulticast()
		}
	case n.host != nil:
		n.agent.Restart()
		n.programs.Restart(now)
		n.nic.Restart(now)
	}
}
