// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"testing"

	"github.com/mcastlab/mcastlab/drivers/live"
)

// clocksAhead are nodes on servers whose clocks are ahead, in ns.
type clocksAhead struct {
	NodeAccess
	ns map[string]int64
}

// Ahead returns by how much.
func (c clocksAhead) Ahead(node string) int64 { return c.ns[node] }

// TestRateAt: nodes get the lab's clock in that of their server.
func TestRateAt(t *testing.T) {
	d := &Deployed{Access: clocksAhead{ns: map[string]int64{"h0": 10, "h1": -500}}}
	for node, want := range map[string]int64{"h0": 1010, "h1": 500} {
		if got := agentCallsOf(d).rateAt(node, live.Rate{Mono: 1000, Lab: 7, Dilation: 2}); got.Mono != want || got.Lab != 7 || got.Dilation != 2 {
			t.Errorf("%s gets %v, want it from %d", node, got, want)
		}
	}
}
