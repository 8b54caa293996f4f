package orchestrator

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
)

// tellForeign marks a run into which programs that are no nodes have sent frames (exec), and says which frames were refused.
func (r *stepped) tellForeign() {
	var taken, refused foreign
	for i, n := range r.nodes {
		far := r.d.far(i)
		for p, x := range n.state.Links {
			to := &taken
			if slices.Contains(far, uint32(p)) {
				to = &refused
			}
			to.add(x.Foreign, r.d.Graph.PortName(topo.End{Node: i, Port: p}))
		}
	}
	taken.tell(r, "not deterministic: %d frames of programs that are no nodes have come in at %s")
	refused.tell(r, "%d frames that no node has sent have come in from other machines, and were refused, at %s")
}

// foreign are frames that no node has announced, and where they came in.
type foreign struct {
	frames uint64
	ports  []string
}

func (f *foreign) add(frames uint64, port string) {
	if frames > 0 {
		f.frames, f.ports = f.frames+frames, append(f.ports, port)
	}
}

func (f *foreign) tell(r *stepped, format string) {
	if f.frames == 0 {
		return
	}
	text := fmt.Sprintf(format, f.frames, strings.Join(f.ports, ", "))
	r.Report.Fidelity.Reason += ", " + text
	if r.o.Say != nil {
		r.o.Say("%s", text)
	}
}
