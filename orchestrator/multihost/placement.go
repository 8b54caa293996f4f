// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/place"
)

// checkSpread fails if a lab has a part that several servers do not support yet.
func (t *testbed) checkSpread() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("lab %s does not go over several servers: %s: deploy it on one", t.Lab.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case t.WantsManagement() && t.Lab.Runtime.Clock == lab.ClockLockstep:
		return refuse("its time is virtual, and that of its management network is not (clock: dilated under runtime helps)")
	case t.Lab.Runtime.IO == "trains":
		return refuse("frames of io: trains do not go from server to server")
	}
	return nil
}

// vniMax is the largest network identifier of VXLAN.
const vniMax = 1<<24 - 1

// crossing counts the links between servers.
func (t *testbed) crossing(at []int) (n int) {
	for _, k := range t.Graph.Links {
		if at[k.A.Node] != at[k.B.Node] {
			n++
		}
	}
	return n
}

// place decides which node goes where.
func (t *testbed) place(ctx context.Context) (*engine.Placement, error) {
	all, absent, port, err := t.servers.Servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, why := range absent {
		t.Announce("server %s: it takes no part", why)
	}
	if all, err = selectServers(all, t.Lab.Runtime.Hosts); err != nil {
		return nil, fmt.Errorf("lab %s: runtime.hosts: %w", t.Lab.Name, err)
	}
	var servers []place.Server
	for _, m := range all {
		servers = append(servers, place.Server{Name: m.Name, Cores: m.Cores, Memory: m.Memory})
	}
	at, err := place.Nodes(t.Graph, servers)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", t.Lab.Name, err)
	}
	p := &engine.Placement{Servers: all, At: at, VNI: 1 + rand.IntN(vniMax-len(t.Graph.Links)), Port: port}
	for i := range t.Lab.Replicas() { // no two together while there are servers for that
		p.Controllers = append(p.Controllers, i%len(all))
	}
	if p.Userspace, err = t.userspace(ctx, p); err != nil {
		return nil, err
	}
	return p, t.placeOutside(p)
}

// userspace returns the pairs of servers whose links are in user space.
func (t *testbed) userspace(ctx context.Context, p *engine.Placement) (pairs []shareapi.Pair, err error) {
	if t.crossing(p.At) == 0 {
		return nil, nil
	}
	switch t.Lab.Runtime.Links {
	case linksKernel:
		return nil, nil
	case linksUserspace:
		for a := range p.Servers {
			for b := a + 1; b < len(p.Servers); b++ {
				pairs = append(pairs, shareapi.Pair{A: a, B: b, Why: "runtime.links"})
			}
		}
	default:
		if pairs, err = t.servers.NoVXLAN(ctx, p.Servers, p.Port); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(pairs, func(u shareapi.Pair) bool { return !t.WantsManagement() && t.between(p.At, u.A, u.B) == 0 }), nil
}

// Values of runtime.links; the third is auto, also if it is not given.
const (
	linksKernel    = "vxlan"
	linksUserspace = "userspace"
)

// between counts the links between two servers.
func (t *testbed) between(at []int, a, b int) (n int) {
	for _, k := range t.Graph.Links {
		if x, y := at[k.A.Node], at[k.B.Node]; min(x, y) == min(a, b) && max(x, y) == max(a, b) {
			n++
		}
	}
	return n
}

// WritePlan writes which node goes where, and how much a rehearsal of the lab's workloads sends from server to server.
func (t *testbed) WritePlan(ctx context.Context, w io.Writer, _ []engine.Running) error {
	if err := t.checkSpread(); err != nil {
		return err
	}
	p, err := t.place(ctx)
	if err != nil {
		return err
	}
	carried, err := runner.Traffic(ctx, t.Lab, t.Env())
	if err != nil {
		return err
	}
	for i := range p.Servers {
		m := &p.Servers[i]
		var names []string
		for n, at := range p.At {
			if at == i {
				names = append(names, t.Graph.Nodes[n].Name)
			}
		}
		beside := ""
		for k, name := range t.Lab.Replicas() {
			if p.Controllers[k] == i {
				beside += " and " + name
			}
		}
		fmt.Fprintf(w, "server %s, %d cores, %.1f GiB: %d nodes: %s%s\n", m, m.Cores, float64(m.Memory)/(1<<30), len(names), strings.Join(names, " "), beside)
	}
	all := uint64(0)
	for a := range p.Servers {
		for b := a + 1; b < len(p.Servers); b++ {
			bytes := uint64(0)
			for k, l := range t.Graph.Links {
				if x, y := p.At[l.A.Node], p.At[l.B.Node]; min(x, y) == a && max(x, y) == b {
					bytes += carried[k]
				}
			}
			all += bytes
			fmt.Fprintf(w, "between %s and %s: %d links%s, %.1f MB in a run\n",
				p.Servers[a].Name, p.Servers[b].Name, t.between(p.At, a, b), how(p, a, b), float64(bytes)/1e6)
		}
	}
	_, err = fmt.Fprintf(w, "between servers: %d of %d links, %.1f MB in a run\n", t.crossing(p.At), len(t.Graph.Links), float64(all)/1e6)
	return err
}

// how describes the links between two servers, if they are not VXLAN.
func how(p *engine.Placement, a, b int) string {
	for _, u := range p.Userspace {
		if u.A == a && u.B == b {
			return " in user space (" + u.Why + ")"
		}
	}
	return ""
}
