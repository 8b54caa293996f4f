// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"math"
	"reflect"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// LinkTiers gives the links between two tiers a rate and a delay of their own. The order of
// the fields is that of the tiers, from the hosts up.
type LinkTiers struct {
	HostLeaf  *TierLink `yaml:"host-leaf" json:"hostLeaf,omitzero" doc:"links between hosts and leaf switches"`
	LeafSpine *TierLink `yaml:"leaf-spine" json:"leafSpine,omitzero" doc:"links between leaf and spine switches of a leaf-spine"`
	LeafAgg   *TierLink `yaml:"leaf-agg" json:"leafAgg,omitzero" doc:"links between leaf switches and the tier above, of other topologies"`
	AggCore   *TierLink `yaml:"agg-core" json:"aggCore,omitzero" doc:"links between aggregation and core switches; of an m-port-n-tree between the second level and the third"`
	CoreCore  *TierLink `yaml:"core-core" json:"coreCore,omitzero" doc:"links above the third level of an m-port-n-tree or of a topology by hand"`
}

// TierLink holds the settings in which the links between two tiers differ from the others.
type TierLink struct {
	Rate  *Rate     `yaml:"rate" json:"rate,omitzero" doc:"bits per second in each direction; default: that of links"`
	Delay *Duration `yaml:"delay" json:"delay,omitzero" doc:"propagation delay of one direction; default: that of links"`
}

// pick returns the settings of links between two tiers and the name they go by in the lab's
// topology; none, if the tiers are one and the same below the core.
func (t *LinkTiers) pick(a, b topo.Tier, spines bool) (name string, s *TierLink) {
	switch lo, hi := min(a, b), max(a, b); {
	case lo == topo.TierHost:
		return "host-leaf", t.HostLeaf
	case lo == topo.TierLeaf && hi > lo && spines:
		return "leaf-spine", t.LeafSpine
	case lo == topo.TierLeaf && hi > lo:
		return "leaf-agg", t.LeafAgg
	case lo == topo.TierAgg && hi > lo:
		return "agg-core", t.AggCore
	case lo >= topo.TierCore:
		return "core-core", t.CoreCore
	}
	return "", nil
}

// retier gives the links of a graph the parameters of their tiers. Links of a topology by hand that
// state a rate or delay keep it.
func (l *Lab) retier(g *topo.Graph) {
	t := l.Links.Tiers
	if t == nil {
		return
	}
	for i := range g.Links {
		x := &g.Links[i]
		_, s := t.pick(g.Nodes[x.A.Node].Tier, g.Nodes[x.B.Node].Tier, l.Topology.LeafSpine != nil)
		if s == nil {
			continue
		}
		var own CustomLink
		if c := l.Topology.Custom; c != nil {
			own = c.Links[i]
		}
		if s.Rate != nil && own.Rate == nil {
			x.Rate = int64(*s.Rate)
		}
		if s.Delay != nil && own.Delay == nil {
			x.Delay = vtime.Duration(*s.Delay)
		}
	}
}

// HostRate returns the rate of the links that join hosts, in bit/s; a link by hand may have another.
func (l *Lab) HostRate() Rate {
	if t := l.Links.Tiers; t != nil && t.HostLeaf != nil && t.HostLeaf.Rate != nil {
		return *t.HostLeaf.Rate
	}
	return l.Links.Rate
}

// soonest returns the least time in which a packet of the path MTU can be acknowledged, from when
// its first bit is sent: it is on the wire of a host, and it and the answer pass one switch, if
// there is one.
func (c *checking) soonest() vtime.Duration {
	soonest, links := vtime.Duration(math.MaxInt64), vtime.Duration(4)
	if c.g.Switches() == 0 {
		links = 2
	}
	for h := range c.g.Hosts {
		link := &c.g.Links[c.g.Nodes[h].Links[0]]
		bits := float64(c.l.NICs.MTU+wire.HeaderCap) * 8
		soonest = min(soonest, vtime.Picoseconds(bits/float64(link.Rate)*float64(vtime.Second))+links*link.Delay)
	}
	return soonest + (links-2)*vtime.Duration(c.l.Switches.Latency)
}

// checkTiers verifies that the tiers named are there.
func (c *checking) checkTiers() {
	t := c.l.Links.Tiers
	if t == nil {
		return
	}
	there := map[string]bool{}
	for i := range c.g.Links {
		x := &c.g.Links[i]
		name, _ := t.pick(c.g.Nodes[x.A.Node].Tier, c.g.Nodes[x.B.Node].Tier, c.l.Topology.LeafSpine != nil)
		there[name] = true
	}
	v := reflect.ValueOf(t).Elem()
	var has []string
	for _, key := range keysOf(v.Type()) {
		if there[key] {
			has = append(has, key)
		}
	}
	for i := range v.NumField() {
		s, key := v.Field(i).Interface().(*TierLink), v.Type().Field(i).Tag.Get("yaml")
		path := "links.tiers." + key
		switch {
		case s == nil:
		case !there[key]:
			c.failf(path, "%s: this topology has no such links, it has %s", path, setting.List(has))
		case s.Rate == nil && s.Delay == nil:
			c.failf(path, "%s: give a rate, a delay, or both", path)
		case s.Delay != nil:
			c.checkSecond(path+".delay", *s.Delay)
		}
	}
}
