// SPDX-License-Identifier: Apache-2.0

package fsdp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/reducescatter"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the benchmark in a lab file: an Allgather and a Reduce-scatter start together
// and share the hosts' links.
type Settings struct {
	Label      string             `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"fsdp"`
	Schemes    []PairSettings     `yaml:"schemes" json:"schemes,omitzero" doc:"pairs of algorithms" required:"true"`
	Ranks      setting.Hosts      `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" json:"sizes,omitzero" doc:"bytes per rank that are gathered, and of sums, whole 32-bit numbers, at most 2GiB over all ranks" required:"true"`
	Numbers    string             `yaml:"numbers" json:"numbers,omitzero" doc:"type of the summands: int32 wraps, float32 is added in an order that the scheme fixes" default:"int32" enum:"int32,float32"`
	Iterations setting.Iterations `yaml:"iterations" json:"iterations,omitzero" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" json:"warmUp,omitzero" doc:"warm-up iterations, not measured" default:"0"`
	Memory     string             `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// PairSettings are the collectives that run at one time.
type PairSettings struct {
	Label         string         `yaml:"label" json:"label,omitzero" doc:"name in reports; default: the names of the two, as in ring-ring"`
	Allgather     setting.Scheme `yaml:"allgather" json:"allgather,omitzero" doc:"algorithm of the Allgather: ring, linear, recursive-doubling, multicast" required:"true"`
	ReduceScatter setting.Scheme `yaml:"reduce-scatter" json:"reduceScatter,omitzero" doc:"algorithm of the Reduce-scatter: ring, in-network" required:"true"`
	ReduceClass   setting.Class  `yaml:"reduce-class" json:"reduceClass,omitzero" doc:"DSCP of the Reduce-scatter's packets, for a weight of its own in switches.scheduling; 0: the lab's traffic-class" default:"0"`
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	ranks := c.Ranks(p, "fsdp", w.Ranks)
	if c.Failed() {
		return
	}
	c.Sizes(p, w.Sizes, w.WarmUp, len(ranks))
	c.Numbers(p, w.Sizes)
	if len(w.Schemes) == 0 {
		c.Failf(p, "%s needs at least one pair of schemes and one size", p)
	}
	labels := map[string]bool{}
	for i := range w.Schemes {
		x := &w.Schemes[i]
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		c.Scheme(at+".allgather", setting.Allgathers(), &x.Allgather, w.Sizes)
		c.Scheme(at+".reduce-scatter", setting.ReduceScatters(), &x.ReduceScatter, w.Sizes)
		for _, s := range []*setting.Scheme{&x.Allgather, &x.ReduceScatter} {
			if s.Label != s.Name {
				c.Failf(at, "label %q is of one half: give the pair a label", s.Label)
			}
		}
		if x.Label == "" {
			x.Label = x.Allgather.Name + "-" + x.ReduceScatter.Name
		}
		switch {
		case !setting.LabelOK(x.Label):
			c.Failf(at, setting.BadLabel, x.Label)
		case labels[x.Label]:
			c.Failf(at, "two pairs are called %q: give one of them a label of its own", x.Label)
		}
		labels[x.Label] = true
	}
	c.AllInside(p, "fsdp", ranks)
}

// App implements apps.Kind.
func (*Settings) App(apps.Env) apps.App { return App{} }

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	hosts := w.Ranks.Resolve(s.Graph)
	p := Params{Workload: w.Label, WarmUp: w.WarmUp, Memory: apps.Memory(w.Memory), Seed: s.Seed, Float32: w.Numbers == "float32"}
	half := func(s *setting.Scheme) Scheme { return Scheme{Name: s.Name, Options: s.Options(len(hosts))} }
	for i := range w.Schemes {
		x := &w.Schemes[i]
		p.Pairs = append(p.Pairs, Pair{Label: x.Label, Allgather: half(&x.Allgather), ReduceScatter: half(&x.ReduceScatter), ReduceClass: uint8(x.ReduceClass)})
	}
	steps := 0
	for _, size := range w.Sizes {
		count := apps.Repeats(int(w.Iterations), int(size))
		p.Sizes, p.Iterations = append(p.Sizes, int(size)), append(p.Iterations, count)
		steps += len(p.Pairs) * (p.WarmUp + count)
	}
	return apps.Prepared{Input: p, Hosts: hosts, Steps: steps}, nil
}

// pair returns the index of the pair that a row is of, or -1.
func (w *Settings) pair(row *apps.Row) int {
	return slices.IndexFunc(w.Schemes, func(x PairSettings) bool { return x.Label == row.Scheme })
}

// Links implements apps.Kind: those of the half with more.
func (w *Settings) Links(g *topo.Graph, mtu int, row *apps.Row) int {
	i := w.pair(row)
	if i < 0 {
		return 0
	}
	x, hosts := &w.Schemes[i], w.Ranks.Resolve(g)
	hops := func(a, b int) int { return g.Hops(hosts[a], hosts[b]) }
	return max(collective.AllgatherLinks(x.Allgather.Name, x.Allgather.Options(len(hosts)), len(hosts), hops),
		collective.ReduceScatterLinks(x.ReduceScatter.Name, len(hosts), row.SizeBytes, mtu, hops))
}

// Rows implements apps.Rower.
func (w *Settings) Rows() (rows []apps.Row) {
	for _, x := range w.Schemes {
		for _, size := range w.Sizes {
			rows = append(rows, apps.Row{Scheme: x.Label, SizeBytes: int(size)})
		}
	}
	return rows
}

// Only implements apps.Kind.
func (w *Settings) Only(row *apps.Row) apps.Kind {
	i := w.pair(row)
	if i < 0 {
		return nil
	}
	one := *w
	one.Schemes, one.Sizes = w.Schemes[i:i+1], []setting.Size{setting.Size(row.SizeBytes)}
	return &one
}

// SchemeNames implements apps.Schemed.
func (*Settings) SchemeNames(path string) []string {
	if strings.Contains(path, reducescatter.Name) {
		return collective.ReduceScatterNames()
	}
	return collective.AllgatherNames()
}

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{"allgather": apps.Statistics(), "reduce-scatter": apps.Statistics()}
}
