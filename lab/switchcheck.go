// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// checkSwitches verifies the settings of switches, one subject after the other.
func (c *checking) checkSwitches() {
	c.checkPFC()
	c.checkMarking()
	c.checkScheduling()
	c.checkInput()
	c.checkGroups()
	c.checkSecond("switches.reconverge", c.l.Switches.Reconverge)
	c.checkSecond("switches.latency", c.l.Switches.Latency)
	if c.err == nil {
		c.checkBuffer()
	}
}

// checkPFC verifies thresholds, pause times and the watchdog.
func (c *checking) checkPFC() {
	s := &c.l.Switches
	p := &s.PFC
	c.priorities("switches.pfc.priorities", p.Priorities)
	switch {
	case p.Alpha != 0 && !(p.Alpha >= 1./128 && p.Alpha <= 64):
		c.failf("switches.pfc.alpha", "switches.pfc.alpha of %v is not 0.0078125 to 64, or 0 for static thresholds", p.Alpha)
	case p.Alpha != 0 && (p.XOFF != nil || p.XON != nil):
		c.failf("switches.pfc.alpha",
			"switches.pfc has alpha, for dynamic thresholds, and static ones: leave xoff and xon out, or alpha (resume-offset goes with either)")
	case p.ResumeOffset != nil && p.XON != nil:
		c.failf("switches.pfc.resume-offset", "switches.pfc has resume-offset and xon, which say the same: leave one out")
	case p.ResumeOffset != nil && *p.ResumeOffset < 1:
		c.failf("switches.pfc.resume-offset", "switches.pfc.resume-offset of %v is not 1B or more", *p.ResumeOffset)
	case p.XON != nil && p.XOFF != nil && *p.XON > *p.XOFF:
		c.failf("switches.pfc.xon", "switches.pfc.xon of %v is above xoff, %v", p.XON, p.XOFF)
	}
	if p.Quanta < virtswitch.PauseQuantaMin || p.Quanta > 0xffff {
		c.failf("switches.pfc.quanta", "switches.pfc.quanta of %d is not %d to 65535", p.Quanta, virtswitch.PauseQuantaMin)
	}
	if s.Watchdog.Detect == 0 && s.Watchdog.Enabled {
		c.failf("switches.watchdog.detect", "switches.watchdog.detect of 0 takes every pause for a storm")
	}
}

// checkMarking verifies that the thresholds of every port are in order.
func (c *checking) checkMarking() {
	e := &c.l.Switches.ECN
	c.priorities("switches.ecn.priorities", e.Priorities)
	if !(e.Pmax >= 0 && e.Pmax <= 1) {
		c.failf("switches.ecn.pmax", "switches.ecn.pmax of %v is not a probability: use 0 to 1", e.Pmax)
	}
	if e.Kmin == nil && e.Kmax == nil {
		return
	}
	kmin, kmax := virtswitch.ECNThresholds(int64(c.l.Links.Rate))
	if e.Kmin != nil {
		kmin = int(*e.Kmin)
	}
	if e.Kmax != nil {
		kmax = int(*e.Kmax)
	}
	if kmin > kmax || kmax > 1<<40 {
		c.failf("switches.ecn", "switches.ecn: kmin of %v is above kmax, %v", Size(kmin), Size(kmax))
	}
}

func (c *checking) checkShares(at string, shares []int) {
	if n := len(shares); n != 0 && n != 8 {
		c.failf(at, "%s has %d shares: give one for each of the eight priorities, 0 for strict", at, n)
	}
	for i, w := range shares {
		if w < 0 || w > 255 {
			c.failf(fmt.Sprintf("%s[%d]", at, i), "share %d is not 0 to 255", w)
		}
	}
}

func (c *checking) checkScheduling() {
	s := &c.l.Switches
	c.checkShares("switches.scheduling", s.Scheduling)
	c.checkShares("nics.scheduling", c.l.NICs.Scheduling)
	for i, k := range s.Classes {
		at := fmt.Sprintf("switches.classes[%d]", i)
		switch {
		case (k.DSCP == nil) == (k.PCP == nil):
			c.failf(at, "%s needs either dscp or pcp", at)
		case k.DSCP != nil && (*k.DSCP < 0 || *k.DSCP > 63):
			c.failf(at+".dscp", "%d is not a DSCP from 0 to 63", *k.DSCP)
		case k.PCP != nil && (*k.PCP < 0 || *k.PCP > 7):
			c.failf(at+".pcp", "%d is not a priority code point from 0 to 7", *k.PCP)
		default:
			c.priorities(at+".priority", []int{k.Priority})
		}
	}
}

// checkInput refuses settings that act on the queues of an egress, where packets wait at the ingress.
func (c *checking) checkInput() {
	s := &c.l.Switches
	if s.FlowControl == "credits" {
		c.checkCredits()
	}
	if s.Queues != "input" {
		if s.Replication == "sync" {
			c.failf("switches.replication", "switches.replication can be sync only with queues: input; with queues: output every copy has a queue of its own")
		}
		return
	}
	for _, x := range []struct {
		key string
		on  bool
	}{{"ecn", s.ECN.Enabled}, {"watchdog", s.Watchdog.Enabled}, {"scheduling", len(s.Scheduling) > 0}, {"accelerator", s.Accelerator != "inline"}} {
		if x.on {
			c.failf("switches."+x.key, "switches.%s applies to packets that wait at their output port, and with queues: input none do: remove one of the two", x.key)
		}
	}
}

// checkCredits refuses faults that credits do not survive: a packet or a credit that is lost would stop a
// link for good.
func (c *checking) checkCredits() {
	s := &c.l.Switches
	switch {
	case s.Queues != "input":
		c.failf("switches.flow-control", "switches.flow-control can be credits only with queues: input, where packets wait at their input port")
	case !s.PFC.Enabled:
		c.failf("switches.flow-control", "switches.flow-control: credits is for the priorities of switches.pfc, which is off: leave pfc out")
	case s.PFC.XOFF != nil || s.PFC.XON != nil || s.PFC.Alpha > 0 || s.PFC.ResumeOffset != nil:
		c.failf("switches.pfc", "switches.pfc has thresholds, and with flow-control: credits an input holds one packet: remove xoff, xon, resume-offset and alpha")
	case len(c.l.Externals()) > 0:
		c.failf("switches.flow-control", "an external host sends without credits: remove it, or flow-control: credits")
	case len(c.l.Faults) > 0:
		c.failf("faults[0]", "faults can lose a credit, which stops a link for good: remove them, or flow-control: credits")
	}
	if c.l.Links.VLAN == 0 {
		return
	}
	for i, k := range s.Classes {
		if k.PCP != nil && *k.PCP != k.Priority {
			c.failf(fmt.Sprintf("switches.classes[%d]", i), "NICs count credits by the code point of a tagged packet, %d, "+
				"and switches would return them for priority %d, so both would wait for good: give priority %[1]d, or remove flow-control: credits", *k.PCP, k.Priority)
		}
	}
}

// checkGroups verifies the settings of groups and of the units that handle their feedback.
func (c *checking) checkGroups() {
	s := &c.l.Switches
	_, netErr := parseGroupNet(s.GroupNet)
	switch {
	case s.Groups < 1 || s.Groups > virtswitch.GroupsMax:
		c.failf("switches.groups", "switches.groups of %d is not 1 to %d", s.Groups, virtswitch.GroupsMax)
	case s.GroupMemory != nil && *s.GroupMemory < 1:
		c.failf("switches.group-memory", "switches.group-memory of %v has room for no group: use more, or leave it out", s.GroupMemory)
	case netErr != nil:
		c.failf("switches.group-net", "%v", netErr)
	case s.FanOut < 0:
		c.failf("switches.fan-out", "switches.fan-out of %d is negative", s.FanOut)
	case s.GroupAge != 0 && vtime.Duration(s.GroupAge) < vtime.Second:
		c.failf("switches.group-age", "switches.group-age of %v is below 1s, which a registration may take: use a longer time, or 0 for never", s.GroupAge)
	}
	if s.CNPFilter.Window == 0 && s.CNPFilter.Enabled {
		c.failf("switches.cnp-filter.window", "switches.cnp-filter.window of 0 counts nothing; to pass all notifications write cnp-filter: false")
	}
	if s.Accelerator == "look-aside" && c.g.Switches() != 1 {
		c.failf("switches.accelerator", "switches.accelerator can be look-aside in a lab of one switch only: "+
			"packets to a group cannot be routed between switches")
	}
	c.checkSecond("switches.feedback-delay", s.FeedbackDelay)
}

// bufferMin holds a handful of the largest frames.
const bufferMin = 64 << 10

// checkBuffer makes sure that thresholds and headroom fit the buffer of every switch.
func (c *checking) checkBuffer() {
	if b := c.l.Switches.Buffer; b < bufferMin {
		c.failf("switches.buffer", "switches.buffer of %v is too small for a few frames: use at least %v", b, Size(bufferMin))
		return
	}
	spec := c.l.fabric(c.g)
	for i := c.g.Hosts; i < len(c.g.Nodes); i++ {
		need := spec.Reserved(i)
		if room := int(c.l.Switches.Buffer); need > room*15/16 {
			c.failf("switches.buffer",
				"switches.buffer of %v is too small: PFC on the %d ports of %s reserves %d bytes; use a larger buffer, a smaller xoff, or pfc: false",
				c.l.Switches.Buffer, len(c.g.Nodes[i].Links), c.g.Nodes[i].Name, need)
			return
		}
		if xon, xoff := c.l.Switches.PFC.XON, spec.XOFF(i); xon != nil && int(*xon) > xoff {
			c.failf("switches.pfc.xon", "switches.pfc.xon of %v is above xoff, %d bytes by default on the %d ports of %s: use a smaller xon, or set xoff too",
				*xon, xoff, len(c.g.Nodes[i].Links), c.g.Nodes[i].Name)
			return
		}
	}
}

// priorities verifies that numbers are those of priorities.
func (c *checking) priorities(path string, all []int) {
	for i, p := range all {
		if p < 0 || p > 7 {
			c.failf(fmt.Sprintf("%s[%d]", path, i), "priority %d is not 0 to 7", p)
		}
	}
}
