package lab

// Warnings returns a line for each choice that is valid and probably a mistake. Only custom
// topologies have any: the others have been proved free of it.
func (l *Lab) Warnings() (all []string) {
	if l.Topology.Custom == nil || !l.Switches.PFC.Enabled {
		return nil
	}
	g, err := l.graph()
	if err == nil { // a lab that was read has a graph
		err = g.CheckDeadlock(g.Routes())
	}
	if err != nil {
		all = append(all, err.Error())
	}
	return all
}
