package allgather

import (
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab/setting"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the Allgather benchmark in a lab file: every rank has a block that all
// others get.
type Settings struct {
	Label      string             `yaml:"label" doc:"name in reports" default:"allgather"`
	Schemes    []setting.Scheme   `yaml:"schemes" doc:"algorithms: ring, linear, recursive-doubling, multicast" required:"true"`
	Ranks      setting.Hosts      `yaml:"ranks" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" doc:"bytes per rank, at most 2GiB over all ranks" required:"true"`
	Iterations setting.Iterations `yaml:"iterations" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" doc:"iterations before those that are measured" default:"0"`
	Memory     string             `yaml:"memory" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
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

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	b := apps.BlockSettings{Label: w.Label, Memory: w.Memory, Schemes: w.Schemes, Sizes: w.Sizes, Iterations: w.Iterations, WarmUp: w.WarmUp}
	hosts := w.Ranks.Resolve(s.Graph)
	p, steps := b.Blocks(len(hosts), s.Seed)
	return apps.Prepared{Input: p, Hosts: hosts, Steps: steps}, nil
}

// Links implements apps.Kind.
func (w *Settings) Links(g *topo.Graph, _ int, row *apps.Row) int {
	i := setting.SchemeIndex(w.Schemes, row.Scheme)
	if i < 0 {
		return 0
	}
	hosts := w.Ranks.Resolve(g)
	hops := func(a, b int) int { return g.Hops(hosts[a], hosts[b]) }
	return collective.AllgatherLinks(w.Schemes[i].Name, w.Schemes[i].Options(len(hosts)), len(hosts), hops)
}

// Only implements apps.Kind.
func (w *Settings) Only(row *apps.Row) apps.Kind {
	i := setting.SchemeIndex(w.Schemes, row.Scheme)
	if i < 0 {
		return nil
	}
	one := *w
	one.Schemes, one.Sizes = w.Schemes[i:i+1], []setting.Size{setting.Size(row.SizeBytes)}
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
