// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// checker returns the lab's data for the checks of workloads.
func (c *checking) checker() *setting.Checker {
	k := &setting.Checker{
		Graph: c.g, Peers: map[string]*rankhost.Peer{}, Rules: c.l.Switches.Rules, Controllers: c.l.Controllers, Programs: c.programs, Broadcasts: c.broadcasts,
		DSCP: uint8(c.l.NICs.TrafficClass), Priority: c.l.NICs.TrafficClass.Priority(), LowClass: true, Lossless: true, ReadFile: c.readFile, Fail: c.failf,
	}
	if c.spoilt.has("switches", "nics", "links") {
		k.Rules = "gleam" // the intended classes and rules are unknown: take those that all workloads can do with
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
		k := *shared // which records for one workload whether its check has failed
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
	if l.Switches.FlowControl == "credits" { // nodes promise each other that a frame takes some time, and a credit takes none
		return &Error{File: "lab " + l.Name, Text: "switches.flow-control: credits runs on the event clock alone: leave it out, or use --runtime sim"}
	}
	for i, w := range l.Workloads {
		e := w.Chosen()
		if k, ok := e.Kind.(apps.SimOnly); ok && l.Runtime.Clock != ClockLockstep {
			return l.workloadError(i, "%s %s: leave clock: dilated and --dilation out, or use --runtime sim", e.Name, k.WhySimOnly())
		}
		if k, ok := e.Kind.(apps.HostPrograms); ok && k.HostProgram().MPI && l.Runtime.Clock == ClockLockstep {
			return l.workloadError(i, "the processes that mpirun starts do not follow virtual time: set clock: dilated under runtime")
		}
	}
	return nil
}

// CheckSim returns an *Error if something in the lab cannot run in a simulation, else nil.
func (l *Lab) CheckSim() error {
	for i, w := range l.Workloads {
		e := w.Chosen()
		if _, ok := e.Kind.(apps.HostPrograms); ok {
			return l.workloadError(i, "%s runs programs of this server, which a simulation cannot: use --runtime netns or docker", e.Name)
		}
	}
	return nil
}

// CheckPrograms returns an *Error if the lab runs programs of this server and that is not allowed, or no
// dilation is set, since their duration is not known beforehand. Else it returns nil.
func (l *Lab) CheckPrograms(allowed bool, dilation float64) error {
	for i, w := range l.Workloads {
		e := w.Chosen()
		k, ok := e.Kind.(apps.HostPrograms)
		switch {
		case !ok:
		case !allowed:
			return l.workloadError(i, "%s runs %s on this server, as the user that calls mcastlab: read the file and, if you trust it, add --allow-programs",
				e.Name, k.HostProgram().Argv[0])
		case dilation == 0 && l.Runtime.Clock != ClockLockstep:
			return l.workloadError(i, "what the programs of %s take is not known beforehand, and so not how slow the clock has to be: "+
				"set dilation under runtime, for example dilation: 100", e.Name)
		}
	}
	return nil
}

// RunsPrograms reports whether the lab runs programs of this server.
func (l *Lab) RunsPrograms() bool { return l.CheckSim() != nil }

func (l *Lab) workloadError(i int, format string, args ...any) error {
	return &Error{File: "lab " + l.Name, Text: fmt.Sprintf("workloads[%d]: ", i) + fmt.Sprintf(format, args...)}
}
