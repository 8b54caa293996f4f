package lab

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps/manycast"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/topo"
)

// ManyToMany is the benchmark of the cyclic multicast paper: in each iteration sources and
// members are drawn anew, and each source sends one message to all members of its group but
// itself.
type ManyToMany struct {
	Label      string     `yaml:"label" doc:"name in reports" default:"many-to-many"`
	Schemes    []Scheme   `yaml:"schemes" doc:"cyclic, a tree per source; cyclic-class, one per group and class of sources; opensm, one per group; opensm-drawn, likewise, of equally good roots one that is drawn; unicast" required:"true"`
	Sources    Share      `yaml:"sources" doc:"hosts that send: a number, a share such as 40%, or all" default:"all"`
	Group      Share      `yaml:"group" doc:"hosts of a group, likewise" default:"all"`
	Groups     string     `yaml:"groups" doc:"shared: all sources send to one group; per-source: each to one of its own" default:"shared" enum:"shared,per-source"`
	Sizes      []Size     `yaml:"sizes" doc:"message sizes, at most 2GiB" required:"true"`
	Iterations Iterations `yaml:"iterations" doc:"draws of sources and members; auto: 30" default:"auto"`
	Memory     string     `yaml:"memory" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// groupsPerSource: each source sends to a group of its own.
const groupsPerSource = "per-source"

// drawsDefault is how many iterations auto is (CYC-20).
const drawsDefault = 30

// Share is a number of hosts: above 0 itself, below 0 a percentage.
type Share int

const shareAll Share = -100

func (x *Share) parse(s string) error {
	if s == "all" {
		*x = shareAll
		return nil
	}
	num, percent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseUint(num, 10, 20)
	switch {
	case err != nil || v == 0 || percent && v > 100:
		return fmt.Errorf("%q is not a number from 1 on, a share from 1%% to 100%%, or all", s)
	case percent:
		*x = -Share(v)
	default:
		*x = Share(v)
	}
	return nil
}

// String prints the share.
func (x Share) String() string {
	switch {
	case x == shareAll:
		return "all"
	case x < 0:
		return fmt.Sprintf("%d%%", -x)
	}
	return strconv.Itoa(int(x))
}

// Of returns the share of so many hosts, rounded to the nearest number and 1 at least.
func (x Share) Of(hosts int) int {
	if x > 0 {
		return int(x)
	}
	return max(1, (hosts*int(-x)+50)/100)
}

// Program returns the benchmark's parameters on a graph, and the hosts of its ranks. Seed
// and label are left to the caller.
func (m *ManyToMany) Program(g *topo.Graph, t *MPortNTree) (p manycast.Params, hosts []int) {
	p = manycast.Params{M: t.M, N: t.N, Sources: m.Sources.Of(g.Hosts), Members: m.Group.Of(g.Hosts), Iterations: int(m.Iterations)}
	p.PerSource = m.Groups == groupsPerSource
	if p.Iterations == 0 {
		p.Iterations = drawsDefault
	}
	for _, s := range m.Schemes {
		p.Schemes = append(p.Schemes, manycast.Scheme{Label: s.Label, Name: s.Name})
	}
	for _, s := range m.Sizes {
		p.Sizes = append(p.Sizes, int(s))
	}
	for h := range g.Hosts {
		hosts = append(hosts, h)
	}
	return p, hosts
}

func manycasts() algorithms {
	return algorithms{"many-to-many", manycast.Names(), nil}
}

// check verifies a many-to-many benchmark.
func (m *ManyToMany) check(c *checking, p string) {
	c.checkLabel(p, m.Label)
	t := c.g.NTree()
	if t == nil {
		c.failf(p, "many-to-many goes by the LIDs of an m-port n-tree, and this is none: write topology: {m-port-n-tree: {m: 8, n: 3}}")
		return
	}
	if _, err := t.LIDs(); err != nil {
		c.failf("topology", "many-to-many goes by LIDs, and %v", err)
		return
	}
	for _, x := range []struct {
		name string
		of   Share
	}{{"sources", m.Sources}, {"group", m.Group}} {
		if n := x.of.Of(c.g.Hosts); n > c.g.Hosts {
			c.failf(p+"."+x.name, "%s of %d hosts: the lab has %d", x.name, n, c.g.Hosts)
		}
	}
	c.checkSizes(p, m.Sizes, 0, 1)
	c.checkSchemes(p, manycasts(), m.Schemes, m.Sizes)
	c.checkNothingLost(p)
	if n := c.l.Externals(); len(n) > 0 {
		c.failf(p, "many-to-many needs every host to run a program, and %s is external", n[0])
	}
}

// checkNothingLost makes sure that no packet is lost on purpose: of unreliable messages
// none is sent again, and whoever waits for one waits for ever.
func (c *checking) checkNothingLost(p string) {
	s := &c.l.Switches
	prio := c.l.NICs.TrafficClass.Priority()
	if f := c.l.fabricSwitch(); f.Classes != nil {
		prio = int(f.Classes.DSCP[c.l.NICs.TrafficClass])
	}
	if !s.PFC.Enabled || !slices.Contains(s.PFC.Priorities, prio) {
		c.failf("switches.pfc", "many-to-many sends unreliable messages, and switches drop packets of priority %d when they are full: "+
			"write pfc: {priorities: [%d]}", prio, prio)
	}
	for i := range c.l.Faults {
		switch k := c.l.Faults[i].Kind(); k {
		case faults.KindRateCut, faults.KindPause, faults.KindPauseStorm, faults.KindStall, faults.KindSlowReceiver: // nothing is lost
		default:
			c.failf(fmt.Sprintf("faults[%d]", i), "many-to-many sends unreliable messages, of which a packet that is lost or late ends one for good: "+
				"leave the fault %s out, or %s", k, p)
		}
	}
}

// CheckLive says what of a lab cannot run on a wall clock; the error is an *Error.
func (l *Lab) CheckLive() error {
	for i, w := range l.Workloads {
		if w.ManyToMany != nil {
			return &Error{File: "lab " + l.Name, Text: fmt.Sprintf("workloads[%d]: many-to-many runs in a simulation only, "+
				"where multicast tables are filled and hosts have LIDs: use mcastlab run with runtime sim", i)}
		}
	}
	for i := range l.Faults {
		if err := l.Faults[i].CheckLive(); err != nil {
			return &Error{File: "lab " + l.Name, Text: fmt.Sprintf("faults[%d]: %v", i, err)}
		}
	}
	return nil
}
