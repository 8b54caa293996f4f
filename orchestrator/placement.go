//go:build linux

package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/mcastlab/mcastlab/internal/checksum"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/place"
)

// checkSpread says what of a lab does not go over several machines yet.
func (d spreadDeployment) checkSpread() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("lab %s does not go over several machines: %s: deploy it on one", d.Lab.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case d.Managed(&state{}) && d.Lab.Runtime.Clock == lab.ClockLockstep:
		return refuse("its time is virtual, and that of its management network is not (clock: dilated under runtime helps)")
	case d.trains():
		return refuse("frames of io: trains do not go from machine to machine")
	}
	return nil
}

// vniMax is the largest network identifier of VXLAN.
const vniMax = 1<<24 - 1

// bringUpSpread makes the lab on the machines of a testbed.
func (d spreadDeployment) bringUpSpread(ctx context.Context, e engine.Spread) error {
	if err := d.checkSpread(); err != nil {
		return err
	}
	message, err := labspec.Encode(d.Lab)
	if err != nil {
		return err
	}
	if err := e.Remove(ctx, d.Lab.Name); err != nil { // what an unfinished deployment has left
		return err
	}
	p, err := d.place(ctx, e)
	if err != nil {
		return err
	}
	if err := d.Store.intend("deploy", d.Lab.Name); err != nil {
		return err
	}
	if err := d.Store.write(labFile, checksum.Comment(message)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err == nil {
		err = d.Store.write(engine.PlacementFile, checksum.Object(append(text, '\n')))
	}
	if err != nil {
		return err
	}
	st := state{
		Schema: stateSchema, Lab: d.Lab.Name, Engine: e.Name(), Phase: phaseDeploying, Since: time.Now().UTC(), Version: d.Options.Version,
		Management: d.Managed(&state{}), Attach: d.Options.Attach,
	}
	if err := d.Store.put(st); err != nil {
		return err
	}
	for _, u := range p.Userspace {
		d.Announce("between %s and %s: %d links%s", p.Machines[u.A].Name, p.Machines[u.B].Name, d.between(p.At, u.A, u.B), how(p, u.A, u.B))
	}
	begin := time.Now()
	servers := &serverNodes{d: d.Deployed, placement: p}
	d.Access = servers
	if err := servers.makeShares(ctx, e, message); err != nil {
		return err
	}
	made := time.Now()
	if err := agentCallsOf(d.Deployed).open(); err != nil {
		return err
	}
	all := map[int]bool{}
	for i := range d.Graph.Nodes {
		all[i] = true
	}
	if err := agentCallsOf(d.Deployed).configureAll(ctx, all, d.Lab.Replicas(), nil); err != nil {
		return err
	}
	d.Log("%d nodes and %d links, %d of them between machines, made in %v, agents configured in %v", len(d.Graph.Nodes), len(d.Graph.Links),
		d.crossing(p.At), made.Sub(begin).Round(time.Millisecond), time.Since(made).Round(time.Millisecond))
	st.Phase = phaseUp
	return d.Store.put(st)
}

// makeShares has each machine make its share, tries the links between them, and then has nodes get the sockets.
func (s *serverNodes) makeShares(ctx context.Context, e engine.Spread, message []byte) error {
	p := s.placement
	err := s.eachMachine(func(i int, m *engine.Machine) error {
		if err := e.Share(ctx, s.d.Lab.Name, m); err != nil {
			return err
		}
		share := &shareapi.Share{
			Lab: message, At: p.At, Own: i, VNI: p.VNI, Port: p.Port, Controllers: p.Controllers, Userspace: p.Userspace, Management: s.d.Managed(&state{}),
		}
		var err error
		if share.Attach, err = s.attachHere(i); err != nil {
			return err
		}
		for _, m := range p.Machines {
			share.Hosts, share.Names = append(share.Hosts, m.Address), append(share.Names, m.Name)
		}
		if slices.Contains(p.Controllers, i) || slices.ContainsFunc(p.Userspace, func(u shareapi.Pair) bool { return u.A == i }) {
			if share.Peers, err = e.Peers(s.d.Lab.Name, m); err != nil {
				return err
			}
		}
		c, err := s.callShare(ctx, m, shareapi.Request{Do: shareapi.Start, Share: share})
		if err != nil {
			return err
		}
		return c.Close()
	})
	if err != nil {
		return err
	}
	if err := controllerSetupOf(s.d).tellPlane(ctx, message); err != nil {
		return err
	}
	if err := s.probeLinks(ctx); err != nil {
		return err
	}
	if _, err := s.d.phase(ctx, controller.PhaseWiring); err != nil {
		return err
	}
	return s.eachMachine(func(_ int, m *engine.Machine) error {
		c, err := s.callShare(ctx, m, shareapi.Request{Do: shareapi.Ready})
		if err != nil {
			return err
		}
		return c.Close()
	})
}

// crossing counts the links between machines.
func (d spreadDeployment) crossing(at []int) (n int) {
	for _, k := range d.Graph.Links {
		if at[k.A.Node] != at[k.B.Node] {
			n++
		}
	}
	return n
}

// place decides which node goes where.
func (d spreadDeployment) place(ctx context.Context, e engine.Spread) (*engine.Placement, error) {
	all, absent, port, err := e.Machines(ctx)
	if err != nil {
		return nil, err
	}
	for _, why := range absent {
		d.Announce("machine %s: it takes no part", why)
	}
	if all, err = selectServers(all, d.Lab.Runtime.Hosts); err != nil {
		return nil, fmt.Errorf("lab %s: runtime.hosts: %w", d.Lab.Name, err)
	}
	var machines []place.Machine
	for _, m := range all {
		machines = append(machines, place.Machine{Name: m.Name, Cores: m.Cores, Memory: m.Memory})
	}
	at, err := place.Nodes(d.Graph, machines)
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", d.Lab.Name, err)
	}
	p := &engine.Placement{Machines: all, At: at, VNI: 1 + rand.IntN(vniMax-len(d.Graph.Links)), Port: port}
	for i := range d.Lab.Replicas() { // no two together while there are machines for that
		p.Controllers = append(p.Controllers, i%len(all))
	}
	if p.Userspace, err = d.userspace(ctx, e, p); err != nil {
		return nil, err
	}
	return p, d.placeOutside(p)
}

// userspace returns the pairs of machines whose links are in user space.
func (d spreadDeployment) userspace(ctx context.Context, e engine.Spread, p *engine.Placement) (pairs []shareapi.Pair, err error) {
	if d.crossing(p.At) == 0 {
		return nil, nil
	}
	switch d.Lab.Runtime.Links {
	case linksKernel:
		return nil, nil
	case linksUserspace:
		for a := range p.Machines {
			for b := a + 1; b < len(p.Machines); b++ {
				pairs = append(pairs, shareapi.Pair{A: a, B: b, Why: "runtime.links"})
			}
		}
	default:
		if pairs, err = e.NoVXLAN(ctx, p.Machines, p.Port); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(pairs, func(u shareapi.Pair) bool { return !d.Managed(&state{}) && d.between(p.At, u.A, u.B) == 0 }), nil
}

// Values of runtime.links; the third is auto, also if it is not given.
const (
	linksKernel    = "vxlan"
	linksUserspace = "userspace"
)

// between counts the links between two machines.
func (d spreadDeployment) between(at []int, a, b int) (n int) {
	for _, k := range d.Graph.Links {
		if x, y := at[k.A.Node], at[k.B.Node]; min(x, y) == min(a, b) && max(x, y) == max(a, b) {
			n++
		}
	}
	return n
}

// writePlacement writes which node goes where, and how much a rehearsal of the lab's workloads sends from machine to machine.
func (d spreadDeployment) writePlacement(ctx context.Context, e engine.Spread, w io.Writer) error {
	if err := d.checkSpread(); err != nil {
		return err
	}
	p, err := d.place(ctx, e)
	if err != nil {
		return err
	}
	carried, err := runner.Traffic(ctx, d.Lab, d.Env())
	if err != nil {
		return err
	}
	for i := range p.Machines {
		m := &p.Machines[i]
		var names []string
		for n, at := range p.At {
			if at == i {
				names = append(names, d.Graph.Nodes[n].Name)
			}
		}
		beside := ""
		for k, name := range d.Lab.Replicas() {
			if p.Controllers[k] == i {
				beside += " and " + name
			}
		}
		fmt.Fprintf(w, "machine %s, %d cores, %.1f GiB: %d nodes: %s%s\n", m, m.Cores, float64(m.Memory)/(1<<30), len(names), strings.Join(names, " "), beside)
	}
	all := uint64(0)
	for a := range p.Machines {
		for b := a + 1; b < len(p.Machines); b++ {
			bytes := uint64(0)
			for k, l := range d.Graph.Links {
				if x, y := p.At[l.A.Node], p.At[l.B.Node]; min(x, y) == a && max(x, y) == b {
					bytes += carried[k]
				}
			}
			all += bytes
			fmt.Fprintf(w, "between %s and %s: %d links%s, %.1f MB in a run\n",
				p.Machines[a].Name, p.Machines[b].Name, d.between(p.At, a, b), how(p, a, b), float64(bytes)/1e6)
		}
	}
	_, err = fmt.Fprintf(w, "between machines: %d of %d links, %.1f MB in a run\n", d.crossing(p.At), len(d.Graph.Links), float64(all)/1e6)
	return err
}

// how says what the links between two machines are, if they are not VXLAN.
func how(p *engine.Placement, a, b int) string {
	for _, u := range p.Userspace {
		if u.A == a && u.B == b {
			return " in user space (" + u.Why + ")"
		}
	}
	return ""
}

// loadSpread reads the placement of a lab that is up.
func (d *Deployed) loadSpread() error {
	if _, ok := d.Options.Engine.(engine.Spread); !ok {
		return nil
	}
	p := &engine.Placement{}
	b, err := os.ReadFile(filepath.Join(d.Store.Dir, engine.PlacementFile))
	if err == nil {
		err = checksum.ReadObject(b, p)
	}
	if err == nil && (len(p.At) != len(d.Graph.Nodes) || len(p.Controllers) != len(d.Lab.Replicas())) {
		err = fmt.Errorf("it is of %d nodes and %d controllers", len(p.At), len(p.Controllers))
	}
	if err != nil {
		return fmt.Errorf("read the placement of lab %s: %w", d.Lab.Name, NeedRoot(err))
	}
	d.Access = &serverNodes{d: d, placement: p}
	return nil
}

// eachMachine calls f for all machines of the lab at once.
func (s *serverNodes) eachMachine(f func(i int, m *engine.Machine) error) error {
	errs := make([]error, len(s.placement.Machines))
	var all sync.WaitGroup
	for i := range s.placement.Machines {
		all.Go(func() { errs[i] = f(i, &s.placement.Machines[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// askShare asks the process of a machine's share something.
func (s *serverNodes) askShare(ctx context.Context, m *engine.Machine, q shareapi.Request) (a shareapi.Answer, err error) {
	c, err := s.d.Options.Engine.(engine.Spread).Dial(ctx, s.d.Lab.Name, m)
	if err != nil {
		return a, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if a, err = shareapi.Ask(c, q); err != nil {
		err = fmt.Errorf("machine %s: %w", m, err)
	}
	_ = c.Close() // nothing is under way
	return a, err
}

// callShare calls the process of a machine's share. The connection is what the answer leaves.
func (s *serverNodes) callShare(ctx context.Context, m *engine.Machine, q shareapi.Request) (net.Conn, error) {
	c, err := s.d.Options.Engine.(engine.Spread).Dial(ctx, s.d.Lab.Name, m)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := shareapi.Ask(c, q); err != nil {
		_ = c.Close() // nothing is under way
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("machine %s: %w", m, err)
	}
	return c, nil
}

// Where returns the name of a node, with that of its machine if the lab has several.
func (s *serverNodes) Where(node string) string {
	at, ok := s.machineOf(node)
	if !ok {
		return node
	}
	return fmt.Sprintf("%s on machine %s", node, &s.placement.Machines[at])
}

// ServerOf returns the server of a node or controller of a lab on several.
func (s *serverNodes) ServerOf(node string) (server *engine.Machine, ok bool) {
	at, ok := s.machineOf(node)
	if !ok {
		return nil, false
	}
	return &s.placement.Machines[at], true
}

// Call calls the server of a node. The connection is what the answer leaves.
func (s *serverNodes) Call(ctx context.Context, node string, q shareapi.Request) (net.Conn, error) {
	server, ok := s.ServerOf(node)
	if !ok {
		return nil, fmt.Errorf("no machine of lab %s has it", s.d.Lab.Name)
	}
	return s.callShare(ctx, server, q)
}

// Local reports that nodes are on several servers.
func (s *serverNodes) Local() bool { return false }

// Await does nothing: the servers have waited for their nodes.
func (s *serverNodes) Await(context.Context) error { return nil }

// machineOf returns the machine of a node or controller of a lab on several.
func (s *serverNodes) machineOf(node string) (machine int, ok bool) {
	if i, found := s.d.Graph.Find(node); found {
		return s.placement.At[i], true
	}
	return controllerAt(s.d, node, s.placement.Controllers)
}

// Dial prepares the connection to the agent of a node, wherever it is.
func (s *serverNodes) Dial(node int) (*Agent, error) {
	name := s.d.Graph.Nodes[node].Name
	m := &s.placement.Machines[s.placement.At[node]]
	return dialAt(name, "passthrough:///"+name, callWait, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return s.callShare(ctx, m, shareapi.Request{Do: shareapi.Agent, Node: name})
	}))
}
