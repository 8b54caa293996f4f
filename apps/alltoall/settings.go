package alltoall

import (
	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab/setting"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the Alltoall benchmark in a lab file: every rank has a block for each other
// one.
type Settings struct {
	Label      string             `yaml:"label" doc:"name in reports" default:"alltoall"`
	Schemes    []setting.Scheme   `yaml:"schemes" doc:"algorithms: linear, pairwise" required:"true"`
	Ranks      setting.Hosts      `yaml:"ranks" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []setting.Size     `yaml:"sizes" doc:"bytes from each rank to each other one, at most 2GiB of a rank" required:"true"`
	Iterations setting.Iterations `yaml:"iterations" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int                `yaml:"warm-up" doc:"iterations before those that are measured" default:"0"`
	Memory     string             `yaml:"memory" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	ranks := c.Ranks(p, "an alltoall", w.Ranks)
	if c.Failed() {
		return
	}
	c.Sizes(p, w.Sizes, w.WarmUp, len(ranks))
	c.Schemes(p, w.Algorithms(), w.Schemes, w.Sizes)
	c.AllInside(p, "an alltoall", ranks)
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
	return collective.AlltoallLinks(w.Schemes[i].Name, len(hosts), hops)
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

// Algorithms implements apps.Collective.
func (*Settings) Algorithms() setting.Algorithms {
	return setting.Algorithms{Kind: Name, Names: collective.AlltoallNames(), Parameters: collective.AlltoallParameters}
}
