package lab

import (
	"fmt"
	"reflect"
)

// Warnings returns a line for each choice that is valid and probably a mistake.
func (l *Lab) Warnings() (all []string) {
	all = l.unused()
	custom, marked := l.Topology.Custom != nil, l.Switches.ECN.Enabled && l.Switches.PFC.Alpha == 0
	if !l.Switches.PFC.Enabled || !custom && !marked {
		return all
	}
	g, err := l.graph()
	if err != nil {
		return append(all, err.Error())
	}
	if custom { // the other topologies have been proved free of it
		if err := g.CheckDeadlock(g.Routes()); err != nil {
			all = append(all, err.Error())
		}
	}
	if !marked {
		return all
	}
	spec := l.fabric(g)
	for i := g.Hosts; i < len(g.Nodes); i++ {
		xoff, kmin := spec.XOFF(i), spec.Kmin(i)
		if xoff < kmin {
			return append(all, fmt.Sprintf("switches.pfc: %s asks its neighbours to pause at %d bytes from a port, and switches.ecn marks no packet below %d: "+
				"pauses come before congestion control; use a larger buffer, alpha, a larger xoff or a smaller kmin", g.Nodes[i].Name, xoff, kmin))
		}
	}
	return all
}

// unused warns of settings of what is off.
func (l *Lab) unused() (all []string) {
	for _, x := range []struct {
		name    string
		enabled bool
		own     any
	}{{"ecn", l.Switches.ECN.Enabled, l.Switches.ECN}, {"watchdog", l.Switches.Watchdog.Enabled, l.Switches.Watchdog}} {
		if usual := defaultsOf(reflect.TypeOf(x.own)).Interface(); !x.enabled && !reflect.DeepEqual(x.own, usual) {
			all = append(all, fmt.Sprintf("switches.%s has settings and is off: add enabled: true, or leave them out", x.name))
		}
	}
	return all
}
