package lab

import "fmt"

// Warnings returns a line for each choice that is valid and probably a mistake.
func (l *Lab) Warnings() (all []string) {
	custom, marked := l.Topology.Custom != nil, l.Switches.ECN.Enabled && l.Switches.PFC.Alpha == 0
	if !l.Switches.PFC.Enabled || !custom && !marked {
		return nil
	}
	g, err := l.graph()
	if err != nil {
		return []string{err.Error()}
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
