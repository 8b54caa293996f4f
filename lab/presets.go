// SPDX-License-Identifier: Apache-2.0

package lab

import "github.com/mcastlab/mcastlab/core/topo"

// fill copies a preset's values for keys that the topology does not give (GEN-8).
func (t *Topology) fill() {
	switch {
	case t.ThreeLayer != nil:
		t.ThreeLayer.fill()
	case t.LeafSpine != nil:
		t.LeafSpine.fill()
	case t.Custom != nil:
		t.Custom.fill()
	}
}

// orElse sets numbers that are 0.
func orElse(have []*int, want ...int) {
	for i, h := range have {
		if *h == 0 {
			*h = want[i]
		}
	}
}

func (t *ThreeLayer) fill() {
	var p topo.ThreeLayerSpec
	switch t.Preset {
	case "ft1024":
		p = topo.FT1024()
	case "ft16384":
		p = topo.FT16384()
	case "fig2":
		p = topo.FIG2()
	}
	orElse([]*int{&t.Radix, &t.Pods, &t.Leaves, &t.Hosts, &t.Aggs, &t.Cores, &t.CoreGroups},
		p.Radix, p.Pods, p.Leaves, p.Hosts, p.Aggs, p.Cores, p.CoreGroups)
}

func (t *LeafSpine) fill() {
	p := topo.LeafSpineSpec{Parallel: 1}
	if t.Preset == "ucc188" {
		p = topo.UCC188()
	}
	if t.Leaves != 0 || t.Hosts != 0 {
		p.Total = 0 // it is that of other leaves
	}
	orElse([]*int{&t.Leaves, &t.Spines, &t.Hosts, &t.Parallel, &t.Total}, p.Leaves, p.Spines, p.Hosts, p.Parallel, p.Total)
}

func (c *Custom) fill() {
	var hosts, switches, links []string
	switch c.Preset {
	case "figtree":
		hosts, switches, links = topo.FigureTree()
	case "back-to-back":
		hosts, switches, links = topo.BackToBack()
	}
	if c.Hosts == nil {
		c.Hosts = hosts
	}
	if c.Switches == nil {
		c.Switches = switches
	}
	if c.Links == nil {
		for _, ends := range links {
			c.Links = append(c.Links, CustomLink{Ends: ends})
		}
	}
}
