// SPDX-License-Identifier: Apache-2.0

package sim

// The simulator ends tasks that wait beside the fabric when a request has failed.

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
)

// failing runs a job of which rank 0 has a request that fails.
func failing(t *testing.T, part bool, waits func(r *rank.Rank, q *rank.Request) error) error {
	t.Helper()
	n := newStar(t)
	n.NewTimeline(20*vtime.Microsecond).Add(0, simlab.LinkDown(1, vtime.Time(vtime.Microsecond)))
	p := simlab.Params()
	p.Timeout, p.RetryCnt = 1, 1
	return n.Run(Job{Name: "fails", Hosts: []int{0, 1, 2}, Params: p, Program: simlab.FailedSend(part, waits)})
}

// gaveUp is a job whose ranks wait for each other beside the fabric when one of them has a
// request that fails, or only after that.
func gaveUp(t *testing.T, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 101))
	for _, sync := range []bool{false, true} {
		for _, looks := range []bool{false, true} {
			err := failing(t, r.IntN(2) == 0, func(k *rank.Rank, q *rank.Request) error {
				if k.Sleep(vtime.Duration(r.IntN(int(40 * vtime.Microsecond)))); k.ID() > 0 {
					k.Get("nothing")
				}
				if looks { // and continues
					_ = k.Wait(q)
				}
				if sync {
					k.Sync()
				}
				k.Get("nothing")
				return nil
			})
			if err == nil || !strings.HasSuffix(err.Error(), "rank 0, send to rank 1: transport retry counter exceeded") {
				t.Errorf("seed %d, sync %v, looks %v: %v", seed, sync, looks, err)
			}
		}
	}
}
