// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// RankParams returns the settings of queue pairs and hosts.
func RankParams(l *lab.Lab) rankhost.Params {
	n := &l.NICs
	rules, _ := virtswitch.RulesByName(l.Switches.Rules) // the name has been checked
	p := rankhost.Params{
		MTU: n.MTU, TrafficClass: uint8(n.TrafficClass)<<2 | wire.ECNECT0, Timeout: uint8(n.Timeout),
		RetryCnt: uint8(n.Retries), RNRRetry: uint8(n.RNRRetries), MinRNRTimer: rnrCode(vtime.Duration(n.RNRTimer)),
		Activate: rules.Activate,
	}
	if fallsBack(l) {
		if g, err := Graph(l); err == nil {
			spec := Fabric(l, g)
			p.RTT = spec.RTT()
		}
		low, _ := of(l).LowClass() // that there is one has been checked
		p.LowClass = low<<2 | wire.ECNECT0
	}
	if c := n.HostCost; c != nil {
		p.Cost = rankhost.HostCost{
			Post: vtime.Duration(c.Post), Poll: vtime.Duration(c.Poll), Stack: vtime.Duration(c.Stack),
			Connection: vtime.Duration(c.Connection), Jitter: vtime.Duration(c.Jitter),
		}
	}
	return p
}

// fallsBack reports whether some workload has a scheme with a fallback.
func fallsBack(l *lab.Lab) bool {
	return slices.ContainsFunc(l.Workloads, func(w lab.Workload) bool {
		k, ok := w.Chosen().Kind.(apps.Faller)
		return ok && k.FallsBack()
	})
}

// rnrCode returns the timer code with the shortest wait that is at least d.
func rnrCode(d vtime.Duration) (code uint8) {
	for c := uint8(1); c < 32; c++ {
		if w := virtrnic.RNRTimer(c); w >= d && (code == 0 || w < virtrnic.RNRTimer(code)) {
			code = c
		}
	}
	return code // 0, the longest of all, if none is long enough
}
