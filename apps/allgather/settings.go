// SPDX-License-Identifier: Apache-2.0

package allgather

import (
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the Allgather benchmark in a lab file: every rank has a block that all
// others get.
type Settings struct {
	Label      string             `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"allgather"`
	Schemes    []setting.Scheme   `yaml:"schemes" json:"schemes,omitzero" doc:"algorithms: ring, linear, recursive-doubling, multicast" required:"true"`
	Ranks      setting.Hosts      `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" json:"sizes,omitzero" doc:"bytes per rank, at most 2GiB over all ranks" required:"true"`
	Iterations setting.Iterations `yaml:"iterations" json:"iterations,omitzero" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" json:"warmUp,omitzero" doc:"warm-up iterations, not measured" default:"0"`
	Memory     string             `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	ranks := c.Ranks(p, "an allgather", w.Ranks)
	if c.Failed() {
		return
	}
	c.Sizes(p, w.Sizes, w.WarmUp, len(ranks))
	c.Schemes(p, w.Algorithms(), w.Schemes, w.Sizes)
	c.AllInside(p, "an allgather", ranks)
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
	_, run := w.blocks().Prepare(s)
	return run, nil
}

// Links implements apps.Kind.
func (w *Settings) Links(g *topo.Graph, _ int, row *apps.Row) int {
	return w.blocks().Links(g, row, func(s *setting.Scheme, ranks int, hops func(a, b int) int) int {
		return collective.AllgatherLinks(s.Name, s.Options(ranks), ranks, hops)
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

// Trial implements apps.Trier. Sizes are over all ranks.
func (w *Settings) Trial(t apps.Trial) (apps.Kind, string) {
	i := t.Scheme
	if t.Among != nil {
		i = 0
	}
	if i >= len(w.Schemes) {
		return nil, ""
	}
	one := *w
	one.Schemes, one.Iterations, one.WarmUp, one.Sizes = w.Schemes[i:i+1], apps.TrialIterations, 0, nil
	for _, s := range t.Sizes {
		one.Sizes = append(one.Sizes, max(1, s/setting.Size(len(w.Ranks.Resolve(t.Graph)))))
	}
	return &one, one.Schemes[0].Label
}

// Algorithms implements apps.Collective.
func (*Settings) Algorithms() setting.Algorithms { return setting.Allgathers() }

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{apps.QuantityPhase: apps.PhaseNames()}
}
