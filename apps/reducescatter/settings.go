// SPDX-License-Identifier: Apache-2.0

package reducescatter

import (
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the Reduce-scatter benchmark in a lab file: every rank gets a block of sums.
type Settings struct {
	Label      string             `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"reduce-scatter"`
	Schemes    []setting.Scheme   `yaml:"schemes" json:"schemes,omitzero" doc:"algorithms: ring, in-network" required:"true"`
	Ranks      setting.Hosts      `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" json:"sizes,omitzero" doc:"bytes of sums per rank, whole 32-bit numbers, at most 2GiB over all ranks" required:"true"`
	Numbers    string             `yaml:"numbers" json:"numbers,omitzero" doc:"type of the summands: int32 wraps, float32 is added in an order that the scheme fixes" default:"int32" enum:"int32,float32"`
	Iterations setting.Iterations `yaml:"iterations" json:"iterations,omitzero" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" json:"warmUp,omitzero" doc:"warm-up iterations, not measured" default:"0"`
	Memory     string             `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	ranks := c.Ranks(p, "a reduce-scatter", w.Ranks)
	if c.Failed() {
		return
	}
	c.Sizes(p, w.Sizes, w.WarmUp, len(ranks))
	c.Numbers(p, w.Sizes)
	c.Schemes(p, w.Algorithms(), w.Schemes, w.Sizes)
	c.AllInside(p, "a reduce-scatter", ranks)
}

// App implements apps.Kind.
func (*Settings) App(apps.Env) apps.App { return App{} }

// blocks returns the settings that all collectives over blocks share.
func (w *Settings) blocks() *apps.BlockSettings {
	return &apps.BlockSettings{
		Label: w.Label, Memory: w.Memory, Schemes: w.Schemes, Ranks: w.Ranks, Sizes: w.Sizes,
		Iterations: w.Iterations, WarmUp: w.WarmUp,
	}
}

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	p, run := w.blocks().Prepare(s)
	run.Input = Params{Blocks: p, Float32: w.Numbers == "float32"}
	return run, nil
}

// Links implements apps.Kind.
func (w *Settings) Links(g *topo.Graph, mtu int, row *apps.Row) int {
	return w.blocks().Links(g, row, func(s *setting.Scheme, ranks int, hops func(a, b int) int) int {
		return collective.ReduceScatterLinks(s.Name, ranks, row.SizeBytes, mtu, hops)
	})
}

// Rows implements apps.Rower.
func (w *Settings) Rows() []apps.Row { return apps.RowsOf(w.Schemes, w.Sizes) }

// Only implements apps.Kind.
func (w *Settings) Only(row *apps.Row) apps.Kind {
	one := *w
	if !apps.OnlyRow(&one.Schemes, &one.Sizes, row) {
		return nil
	}
	return &one
}

// Algorithms implements apps.Collective.
func (*Settings) Algorithms() setting.Algorithms { return setting.ReduceScatters() }
