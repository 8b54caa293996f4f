// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// deviceView is an external host as the lab sees it, for diagnosing mistakes.
type deviceView struct {
	name, address, iface string
	carrier              bool
	x                    lab.External
	source               bool
	step                 rankhost.Step // the step shown to its operator; zero: none yet
	seen                 counters.Device
	slowest              string // path of its group
}

// cause returns what is wrong with the device, as far as that shows from outside, or an empty
// string.
func (v *deviceView) cause() string {
	for _, f := range []func() string{v.absent, v.misled, v.refused, v.silent} {
		if s := f(); s != "" {
			return s
		}
	}
	return ""
}

// absent diagnoses a device that does not answer, or not under its address.
func (v *deviceView) absent() string {
	switch {
	case !v.carrier:
		return fmt.Sprintf("interface %s has no carrier: the device at its other end is down, or not plugged in", v.iface)
	case v.seen.Other != "" && v.seen.Frames == 0:
		return fmt.Sprintf("it sends from the address %s, and its address in the lab is %s: give it that one", v.seen.Other, v.address)
	case !v.seen.Heard:
		return fmt.Sprintf("no host answers for %s on interface %s: is it up, and is that its address?", v.address, v.iface)
	}
	return ""
}

// misled diagnoses a device that is connected to something else.
func (v *deviceView) misled() string {
	last, to := v.seen.Last, v.step.Address
	switch {
	case to == "":
		return ""
	case last != nil && last.To != to:
		return fmt.Sprintf("it sends to %s, and should be connected to %s", last.To, to)
	case last != nil && v.step.ToQPN != 0 && last.QPN != v.step.ToQPN:
		return fmt.Sprintf("it sends to QP %d at %s, and should be connected to QP %d there", last.QPN, to, v.step.ToQPN)
	case last == nil && v.seen.TimesAsked(to) == 0 && len(v.seen.Asked) > 0:
		return fmt.Sprintf("it looks for %s, and should be connected to %s", v.seen.Asked[len(v.seen.Asked)-1].Address, to)
	}
	return ""
}

// refused diagnoses a device that rejects what it gets, or whose packets are not accepted.
func (v *deviceView) refused() string {
	r, n := v.seen.Requests, v.seen.NAK
	behind := v.seen.Given > 0 && (v.seen.Acks == 0 || v.seen.AckPSN != v.seen.GivenPSN)
	switch {
	case v.source && r != nil && r.FirstPSN != v.step.SendPSN:
		return fmt.Sprintf("its first packet has PSN %d, and the lab expects %d: set its send PSN (sq_psn), or send-psn here", r.FirstPSN, v.step.SendPSN)
	case n != nil && behind && n.Reason == wire.SyndromePSNSequence.String() && v.seen.Acks == 0:
		return fmt.Sprintf("it asks for PSN %d, and the lab starts at PSN %d: set its receive PSN (rq_psn), or receive-psn here", n.PSN, v.step.ReceivePSN)
	case v.seen.Strange > 0 && v.seen.Acks == 0:
		return fmt.Sprintf("it acknowledges packets that it was not sent: the lab starts at PSN %d: set its receive PSN (rq_psn), or receive-psn here", v.step.ReceivePSN)
	case n != nil && behind && wire.SyndromeRNR.String() == n.Reason:
		return fmt.Sprintf("it has no receive posted for PSN %d", n.PSN)
	case n != nil && behind && n.Reason != wire.SyndromePSNSequence.String():
		return fmt.Sprintf("it refuses PSN %d with %s: are its memory, its length and its key right?", n.PSN, n.Reason)
	}
	return ""
}

// silent diagnoses a device that sends nothing, or nothing more.
func (v *deviceView) silent() string {
	behind := v.seen.Given > 0 && (v.seen.Acks == 0 || v.seen.AckPSN != v.seen.GivenPSN)
	switch {
	case v.source && v.seen.Requests == nil:
		return "it has sent nothing"
	case v.source && !behind:
		return ""
	case behind && v.seen.Frames == 0:
		return fmt.Sprintf("%d packets went to its QP %d and none was answered: is that the number of its queue pair, and is it connected to %s?",
			v.seen.Given, v.step.QPN, v.step.Address)
	case behind && v.seen.Acks > 0:
		return fmt.Sprintf("it has acknowledged PSN %d, and was sent up to PSN %d", v.seen.AckPSN, v.seen.GivenPSN)
	}
	return ""
}

// String returns the cause, and what has been seen, as a part of an error's line.
func (v *deviceView) String() string {
	cause := v.cause()
	if cause == "" {
		cause = "it has come no further"
	}
	seen := []string{fmt.Sprintf("%d frames from it", v.seen.Frames)}
	if l := v.seen.Last; l != nil {
		seen = append(seen, fmt.Sprintf("the last %s with PSN %d to QP %d at %s", l.OpCode, l.PSN, l.QPN, l.To))
	}
	if v.seen.Other != "" {
		seen = append(seen, "address "+v.seen.Other)
	} else if v.seen.Heard {
		seen = append(seen, "address "+v.address)
	}
	if v.slowest != "" {
		seen = append(seen, "slowest path "+v.slowest)
	}
	return fmt.Sprintf("external host %s: %s (seen: %s)", v.name, cause, strings.Join(seen, ", "))
}

// slowestPath returns the path that holds a group back, and how far it has acknowledged; empty:
// there is no such group. A path to a host takes precedence.
func slowestPath(trees []orchestrator.GroupTree, address, host string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		if ip, ok := wire.IPOf(a); ok {
			address = wire.AddrOf(ip).String()
		}
	}
	i := slices.IndexFunc(trees, func(t orchestrator.GroupTree) bool { return t.McstID == address })
	if i < 0 || len(trees[i].Roots) == 0 {
		return ""
	}
	for n := &trees[i].Roots[0]; ; {
		k := slices.IndexFunc(n.Paths, func(p orchestrator.TreePath) bool { return p.To == n.Slowest && !p.Source })
		if k < 0 {
			return ""
		}
		if same := slices.IndexFunc(n.Paths, func(p orchestrator.TreePath) bool { return p.To == host && p.AckPSN == n.Paths[k].AckPSN && !p.Source }); same >= 0 {
			k = same
		}
		p := &n.Paths[k]
		if p.Below == nil {
			return fmt.Sprintf("%s to %s, acknowledged PSN %d", p.Port, p.To, p.AckPSN)
		}
		n = p.Below
	}
}
