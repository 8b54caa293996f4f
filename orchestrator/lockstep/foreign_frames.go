// SPDX-License-Identifier: Apache-2.0

//go:build linux

package lockstep

import (
	"fmt"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
)

// tellForeign marks a run into which programs that are no nodes have sent frames (exec). A lab on several servers, where none can,
// has refused them, and says so.
func (r *lockstepRun) tellForeign() {
	var ports []string
	all := uint64(0)
	for i, n := range r.nodes {
		for p, x := range n.state.Links {
			if x.Foreign > 0 {
				all += x.Foreign
				ports = append(ports, r.d.Graph.PortName(topo.End{Node: i, Port: p}))
			}
		}
	}
	if all == 0 {
		return
	}
	format := "not deterministic: %d frames of programs that are no nodes have come in at %s"
	if !r.d.Access.Local() {
		format = "%d frames that no node has sent were refused at %s"
	}
	text := fmt.Sprintf(format, all, strings.Join(ports, ", "))
	r.Report.Fidelity.Reason += ", " + text
	if r.o.Say != nil {
		r.o.Say("%s", text)
	}
}
