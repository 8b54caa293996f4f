// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"net"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// completeWait limits the wait of a key press for the list of running labs.
const completeWait = 2 * time.Second

// labsUp returns the names of the labs that are up, as far as they answer soon.
func labsUp() (names []string) {
	ctx, stop := context.WithTimeout(context.Background(), completeWait)
	defer stop()
	labs, err := orchestrator.List(ctx, engines())
	if err != nil {
		return nil
	}
	for _, l := range labs {
		names = append(names, l.Name)
	}
	return names
}

// attach connects to the lab that the line names, or to the only running one.
func (w *completing) attach() *orchestrator.Deployed {
	name := cmp.Or(w.given["lab"], os.Getenv(labVariable))
	if labs := labsUp(); name == "" && len(labs) == 1 {
		name = labs[0]
	}
	e, err := orchestrator.EngineOf(name, engines())
	if err != nil {
		return nil
	}
	d, err := orchestrator.Attach(name, orchestrator.Options{Engine: e})
	if err != nil {
		return nil
	}
	_ = d.Close() // its graph and its lab file are all that is looked at
	return d
}

// liveValues returns the values that a flag can have because labs are up.
func (w *completing) liveValues(flag string) (all []string) {
	switch flag {
	case "lab":
		return labsUp()
	case "interface":
		found, err := net.Interfaces()
		if err != nil {
			return nil
		}
		for _, i := range found {
			all = append(all, i.Name)
		}
	case "node", "controller", "link":
		d := w.attach()
		if d == nil {
			return nil
		}
		switch flag {
		case "controller":
			return d.Lab.Replicas()
		case "link":
			for i := range d.Graph.Links {
				l := &d.Graph.Links[i]
				all = append(all, d.Graph.Nodes[l.A.Node].Name+"-"+d.Graph.Nodes[l.B.Node].Name)
			}
		default:
			for i := range d.Graph.Nodes {
				all = append(all, d.Graph.Nodes[i].Name)
			}
		}
	}
	return all
}

// liveArguments returns the possible arguments of a command about a running lab.
func (w *completing) liveArguments() (all []string) {
	switch w.verb {
	case "fault add":
		return liveKinds()
	case "logs":
		all = append(w.liveValues("node"), w.liveValues("controller")...)
	case "capture":
		if d := w.attach(); d != nil {
			for n := range d.Graph.Nodes {
				for port := range d.Graph.Nodes[n].Links {
					all = append(all, d.Graph.PortName(topo.End{Node: n, Port: port}))
				}
			}
		}
	case "group add-member", "group ready":
		if d := w.attach(); d != nil {
			for i := range d.Lab.Hosts {
				if n := d.Lab.Hosts[i].Name; d.Lab.ExternalHost(n) != nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}
