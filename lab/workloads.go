package lab

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/internal/rankhost"
	"github.com/mcastlab/mcastlab/lab/setting"
)

// checker returns what the checks of workloads need of the lab.
func (c *checking) checker() *setting.Checker {
	k := &setting.Checker{
		Graph: c.g, Peers: map[string]*rankhost.Peer{}, Rules: c.l.Switches.Rules, Controllers: c.l.Controllers, Programs: c.programs, Broadcasts: c.broadcasts,
		DSCP: uint8(c.l.NICs.TrafficClass), Priority: c.l.NICs.TrafficClass.Priority(), LowClass: true, Lossless: true, ReadFile: c.readFile, Fail: c.failf,
	}
	if c.spoilt.has("switches", "nics", "links") {
		k.Rules = "gleam" // nobody knows which classes and rules are meant: take those that all workloads can do with
	} else {
		if f := c.l.switchSettings(); f.Classes != nil {
			k.Priority = int(f.Classes.DSCP[k.DSCP])
		}
		_, k.LowClass = c.l.lowClass()
		k.Lossless = c.l.Switches.PFC.Enabled && slices.Contains(c.l.Switches.PFC.Priorities, k.Priority)
	}
	for _, name := range c.l.Externals() {
		k.Peers[name] = c.l.ExternalHost(name).peer()
	}
	for i := range c.l.Faults {
		k.Faults = append(k.Faults, c.l.Faults[i].Kind())
	}
	return k
}

func (c *checking) checkWorkloads() {
	shared := c.checker()
	labels := map[string]bool{}
	for i := range c.l.Workloads {
		w, p := &c.l.Workloads[i], fmt.Sprintf("workloads[%d]", i)
		if !c.item(p) {
			continue
		}
		given := w.Given()
		if len(given) != 1 {
			c.failf(p, "a workload needs one kind: %s", setting.List(keysOf(reflect.TypeFor[Workload]())))
			continue
		}
		p += "." + given[0].Name
		k := *shared // which knows of one workload whether its check has failed
		given[0].Kind.Check(&k, p)
		if labels[w.Label()] {
			c.failf(p+".label", "two workloads are called %q: give one of them a label of its own", w.Label())
		}
		labels[w.Label()] = true
	}
}

func (c *checking) phantomOnly() bool {
	for _, w := range c.l.Workloads {
		for _, e := range w.Given() {
			if !e.Phantom() {
				return false
			}
		}
	}
	return true
}

// CheckLive returns an *Error if something in the lab cannot run in a running lab, else nil.
func (l *Lab) CheckLive() error {
	for i, w := range l.Workloads {
		e := w.Chosen()
		if k, ok := e.Kind.(apps.SimOnly); ok && l.Runtime.Clock != ClockLockstep {
			return &Error{File: "lab " + l.Name, Text: fmt.Sprintf("workloads[%d]: %s %s: "+
				"leave clock: dilated and --dilation out, or use --runtime sim", i, e.Name, k.WhySimOnly())}
		}
	}
	return nil
}
