// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path"
	"slices"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// match returns the selector of frames that the file describes.
func (m matcher) match(f *Frames) (p faults.Match, err error) {
	for _, w := range f.Kind {
		c, ok := faults.ClassOf(w)
		if !ok {
			return p, fmt.Errorf("frames.kind: there is no kind of frame %q%s", w, setting.Suggest(w, faults.Classes()))
		}
		p.Classes |= c
	}
	for _, w := range f.Opcode {
		n := len(p.OpCodes)
		for o := range 256 {
			op := wire.OpCode(o)
			if ok, err := path.Match(w, op.String()); err != nil {
				return p, fmt.Errorf("frames.opcode: %q is not a pattern: %w", w, err)
			} else if ok && op.Is(wire.OpAssigned) {
				p.OpCodes = append(p.OpCodes, op)
			}
		}
		if len(p.OpCodes) == n {
			return p, fmt.Errorf("frames.opcode: there is no opcode %q%s", w, setting.Suggest(w, opcodeNames()))
		}
	}
	if f.PSN != nil {
		p.PSN, p.First, p.Last = true, f.PSN[0], f.PSN[1]
	}
	if f.QP != nil {
		p.QP = wire.QPN(*f.QP)
	}
	if p.Src, err = m.addresses(f.From); err != nil {
		return p, fmt.Errorf("frames.from: %w", err)
	}
	to := slices.DeleteFunc(slices.Clone(f.To), func(w string) bool { return w == "group" })
	if p.Dst, err = m.addresses(to); err != nil {
		return p, fmt.Errorf("frames.to: %w", err)
	}
	p.Group, p.Groups = len(to) < len(f.To), m.g.Groups
	return p, nil
}

func opcodeNames() (all []string) {
	for o := range 256 {
		if op := wire.OpCode(o); op.Is(wire.OpAssigned) {
			all = append(all, op.String())
		}
	}
	return all
}

// addresses returns the addresses of hosts, nil for no words.
func (m matcher) addresses(words Names) (ips []uint32, err error) {
	nodes, err := m.nodes(words, 0)
	for _, n := range nodes {
		ips = append(ips, m.g.Nodes[n].IP)
	}
	return ips, err
}

func (c *checking) checkFaults() {
	for i := range c.l.Faults {
		f := &c.l.Faults[i]
		p := fmt.Sprintf("faults[%d]", i)
		if !c.item(p) {
			continue
		}
		k, settings, kinds := f.kind()
		if kinds != 1 {
			c.failf(p, "a fault is one of %s; this is %d of them", setting.List(kindNames()), kinds)
			continue
		}
		c.checkTimes(p, f, k)
		if _, given := c.at[p+".in"]; given && f.In != FaultInRun && c.l.Controllers > 1 {
			c.failf(p+".in", "the controllers of a lab keep one timeline for the run: use in: run, or leave in out")
		} else if c.l.Controllers > 1 {
			f.In = FaultInRun
		}
		at := p + "." + string(k)
		switch x := settings.(type) {
		case *LinkFault:
			c.checkLinkFault(at, k, x)
		case *PauseFault:
			c.checkPriority(at, x.Priority)
		case *StormFault:
			c.checkPriority(at, x.Priority)
			if vtime.Duration(x.Gap) < vtime.Nanosecond {
				c.failf(at+".gap", "%s.gap of %v is less than a nanosecond", k, x.Gap)
			}
		case *RoomFault:
			if x.Room < 0 {
				c.failf(at+".room", "%s.room of %d is negative", k, x.Room)
			}
		}
		s, err := f.spec(c.l, c.g, "")
		if err != nil {
			c.failf(at+place(settings), "%s: %v", k, err)
			continue
		}
		c.checkKindOfNodes(at, k, s.Nodes)
	}
}

// place returns which key of a fault names its links or nodes.
func place(settings any) string {
	switch settings.(type) {
	case *LinkFault, *CutFault, *DownFault:
		return ".links"
	case *PauseFault, *StormFault:
		return ".node"
	case *ControlFault, *ControllerDown:
		return ".controllers"
	}
	return ".nodes"
}

func kindNames() (all []string) {
	for _, k := range faults.Kinds() {
		all = append(all, string(k))
	}
	return all
}

func (c *checking) checkTimes(p string, f *Fault, k faults.Kind) {
	if k == faults.KindAgentCrash && f.For == nil {
		again := Duration(AgentCrashDefault)
		f.For = &again
	}
	switch {
	case f.For != nil && *f.For <= 0:
		c.failf(p+".for", "for of %v: use a longer time, or leave for out if the fault lasts to the end", *f.For)
	case f.For != nil && !k.Lasts():
		c.failf(p+".for", "%s happens at once: leave for out", k)
	case f.Every != nil && *f.Every <= 0:
		c.failf(p+".every", "every of %v: use a longer time", *f.Every)
	case f.Every != nil && k.Lasts() && f.For == nil:
		c.failf(p+".every", "a fault with every needs for, the time that it lasts")
	case f.Every != nil && k.Lasts() && *f.For > *f.Every:
		c.failf(p+".for", "for of %v is longer than every, %v: the fault would come again before it ends", *f.For, *f.Every)
	case !(f.Probability > 0 && f.Probability <= 1):
		c.failf(p+".probability", "probability of %v is not above 0 to 1", f.Probability)
	}
}

// checkLinkFault verifies the settings that decide about frames.
func (c *checking) checkLinkFault(at string, k faults.Kind, f *LinkFault) {
	chosen := 0
	for _, given := range []bool{f.Rate != nil, f.Nth != nil, f.EveryNth != 0, f.GilbertElliott != nil} {
		if given {
			chosen++
		}
	}
	late := k == faults.KindDuplicate || k == faults.KindReorder || k == faults.KindDelay
	switch {
	case f.Rate != nil && !(*f.Rate >= 0 && *f.Rate <= 1):
		c.failf(at+".rate", "%s.rate of %v is not a probability: use 0 to 1, or 0%% to 100%%", k, *f.Rate)
	case k == faults.KindDelay && chosen > 0:
		c.failf(at, "delay applies to all frames: leave rate, nth, every-nth and gilbert-elliott out")
	case k == faults.KindDelay && f.Delay == nil && f.Jitter == nil:
		c.failf(at, "delay needs delay, or jitter, or both")
	case k != faults.KindDelay && chosen == 0:
		c.failf(at, `%s needs "rate": probability per frame, 0 to 1; or nth, or every-nth`, k)
	case chosen > 1:
		c.failf(at, "%s takes only one of rate, nth, every-nth and gilbert-elliott", k)
	case f.GilbertElliott != nil && k != faults.KindLoss:
		c.failf(at+".gilbert-elliott", "gilbert-elliott is a model of loss, not of %s", k)
	case f.EveryNth < 0:
		c.failf(at+".every-nth", "%s.every-nth of %d is not 1 or more", k, f.EveryNth)
	case f.Delay != nil && !late:
		c.failf(at+".delay", "%s has no delay: duplicate, reorder and delay have", k)
	case f.Jitter != nil && k != faults.KindDelay:
		c.failf(at+".jitter", "%s has no jitter: delay has", k)
	case k == faults.KindDelay && f.Delay == nil:
		zero := Duration(0)
		f.Delay = &zero
	}
	for i, n := range f.Nth {
		if n < 1 {
			c.failf(fmt.Sprintf("%s.nth[%d]", at, i), "frames are counted from 1: there is no frame %d", n)
		}
	}
	if g := f.GilbertElliott; g != nil {
		for _, p := range []struct {
			name string
			v    Probability
		}{{"to-bad", g.ToBad}, {"to-good", g.ToGood}, {"loss-bad", g.LossBad}, {"loss-good", g.LossGood}} {
			if !(p.v >= 0 && p.v <= 1) {
				c.failf(at+".gilbert-elliott."+p.name, "%s of %v is not a probability: use 0 to 1, or 0%% to 100%%", p.name, p.v)
			}
		}
	}
}

func (c *checking) checkPriority(at string, priority int) {
	if priority < 0 || priority > 7 {
		c.failf(at+".priority", "priority %d is not 0 to 7", priority)
	}
}

// checkKindOfNodes makes sure that a fault of hosts concerns hosts, and one of switches
// switches.
func (c *checking) checkKindOfNodes(at string, k faults.Kind, nodes []int) {
	for _, n := range nodes {
		node := &c.g.Nodes[n]
		external := c.l.ExternalHost(node.Name) != nil
		switch k {
		case faults.KindPause, faults.KindPauseStorm:
			if node.Kind != topo.Host {
				c.failf(at+".node", "%s is a switch: pauses come from hosts", node.Name)
			}
		case faults.KindStall, faults.KindSlowReceiver:
			if node.Kind != topo.Host || external {
				c.failf(at+".nodes", "%s has no adapter in the lab: %s applies to hosts", node.Name, k)
			}
		case faults.KindWipe, faults.KindRoom:
			if node.Kind != topo.Switch {
				c.failf(at+".nodes", "%s is a host: %s applies to switches", node.Name, k)
			}
		case faults.KindCrash, faults.KindAgentCrash, faults.KindRestart:
			if external {
				c.failf(at+".nodes", "%s is external: it cannot be crashed by a fault", node.Name)
			}
		}
	}
}
