// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Settings are the benchmark in a lab file.
type Settings struct {
	Label         string        `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"hpl"`
	Ranks         setting.Hosts `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges" default:"all"`
	Dat           string        `yaml:"dat" json:"dat,omitzero" doc:"HPL.dat to read n to swap-threshold from, in the lab file's folder or below it (no link may leave it)"`
	N             []int         `yaml:"n" json:"n,omitzero" doc:"orders of the matrix"`
	NB            []int         `yaml:"nb" json:"nb,omitzero" doc:"columns of a panel, 1 to 1024 and at most n; default: 64"`
	Grids         []string      `yaml:"grids" json:"grids,omitzero" doc:"process grids, rows by columns: 2x2; spare ranks are allowed"`
	Order         string        `yaml:"order" json:"order,omitzero" doc:"row: ranks fill the grid row by row; or column" default:"row" enum:"row,column"`
	Bcast         []string      `yaml:"bcast" json:"bcast,omitzero" doc:"panel broadcasts: HPL's 1ring, 1ringM, 2ring, 2ringM, long, longM, or any broadcast scheme"`
	Fallback      string        `yaml:"fallback" json:"fallback,omitzero" doc:"fallback of broadcasts and swaps by cepheus and gleam when multicast fails: off, full or partial (docs/fallback.md); default: off" enum:"off,full,partial,"`
	Slices        setting.Count `yaml:"slices" json:"slices,omitzero" doc:"pieces of panel broadcast chain: a number, or ranks" default:"ranks"`
	Depth         []int         `yaml:"depth" json:"depth,omitzero" doc:"look-ahead depth: panels factorised before the update before them is done, 0 or 1" default:"0"`
	PFact         []string      `yaml:"pfact" json:"pfact,omitzero" doc:"panel factorisations: left, crout, right; default: right"`
	RFact         []string      `yaml:"rfact" json:"rfact,omitzero" doc:"recursive panel factorisations: left, crout, right; default: crout"`
	NBMin         []int         `yaml:"nbmin" json:"nbmin,omitzero" doc:"columns at which the recursion ends" default:"4"`
	NDiv          []int         `yaml:"ndiv" json:"ndiv,omitzero" doc:"parts of a panel in the recursion" default:"2"`
	Swap          string        `yaml:"swap" json:"swap,omitzero" doc:"row swap: exchange (binary exchange), long (spread, equalise, roll), mix of the two, or multicast" default:"long" enum:"exchange,long,mix,multicast"`
	SwapThreshold int           `yaml:"swap-threshold" json:"swapThreshold,omitzero" doc:"columns up to which swap mix uses exchange" default:"64"`
	Threshold     float64       `yaml:"threshold" json:"threshold,omitzero" doc:"threshold of the residual; negative: none is computed" default:"16"`
	GFlops        float64       `yaml:"gflops" json:"gflops,omitzero" doc:"speed of a host, in 10^9 operations per second of lab time; 0: computing takes no time" default:"50"`
	CostOnly      bool          `yaml:"cost-only" json:"costOnly,omitzero" doc:"send the same messages without computing" default:"false"`
	Epochs        int           `yaml:"epochs" json:"epochs,omitzero" doc:"cost-only: panels after which the run ends; 0: all" default:"0"`
	Pivots        string        `yaml:"pivots" json:"pivots,omitzero" doc:"cost-only: where pivots come from: uniform, all process rows alike; or centralised, the last one" default:"uniform" enum:"uniform,centralised"`
	PanelRoots    string        `yaml:"panel-roots" json:"panelRoots,omitzero" doc:"cost-only: who broadcasts a panel: owner, the process that has it; or all, each process of a row an equal share, in turn" default:"owner" enum:"owner,all"`
}

// realMax bounds the matrix of a run that computes: 8 n^2 bytes over all ranks.
const realMax = 16384

// params returns the benchmark's parameters.
func (h *Settings) params() (Params, error) {
	in := Input{
		N: h.N, NB: h.NB, ColumnMajor: h.Order == "column", PFact: h.PFact, RFact: h.RFact, Bcast: h.Bcast,
		NBMin: h.NBMin, NDiv: h.NDiv, Depth: h.Depth, Swap: h.Swap, SwapThreshold: h.SwapThreshold, Slices: int(h.Slices),
	}
	for _, g := range h.Grids {
		p, q, ok := strings.Cut(g, "x")
		a, errP := strconv.Atoi(p)
		b, errQ := strconv.Atoi(q)
		if !ok || errP != nil || errQ != nil {
			return Params{}, fmt.Errorf("%q is not a grid: write rows x columns: 2x2", g)
		}
		in.Grids = append(in.Grids, [2]int{a, b})
	}
	p := Params{
		Workload: h.Label, Tests: in.Tests(), Threshold: h.Threshold, GFlops: h.GFlops, CostOnly: h.CostOnly, Epochs: h.Epochs,
		Pivots: h.Pivots, Roots: h.PanelRoots, Fallback: h.Fallback,
	}
	return p, nil
}

// Check implements apps.Kind; it copies the values of HPL.dat into the settings.
func (h *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, h.Label)
	ranks := c.Ranks(p, "a grid", h.Ranks)
	if !c.Failed() && h.Dat != "" {
		h.readDat(c, p)
	}
	if c.Failed() {
		return
	}
	c.Partial(p, h.Fallback)
	fillWord(&h.PFact, Right)
	fillWord(&h.RFact, Crout)
	if len(h.NB) == 0 {
		h.NB = []int{64}
	}
	for _, x := range []struct {
		key  string
		none bool
	}{{"n", len(h.N) == 0}, {"grids", len(h.Grids) == 0}, {"bcast", len(h.Bcast) == 0}} {
		if x.none {
			c.Failf(p, "%s needs %q, or %q", p, x.key, "dat")
		}
	}
	for i, n := range h.N {
		if n > realMax && !h.CostOnly {
			c.Failf(fmt.Sprintf("%s.n[%d]", p, i), "a matrix of order %d does not fit into memory (at most %d): use cost-only: true", n, realMax)
		}
	}
	for i, name := range h.Bcast {
		if collective.ByGroup(name) {
			c.NeedsSwitch(fmt.Sprintf("%s.bcast[%d]", p, i), name)
		}
	}
	if h.Swap == "multicast" {
		c.NeedsSwitch(p+".swap", "swap: multicast")
	}
	c.NoneOutside(p, ranks)
	params, err := h.params()
	if err == nil {
		err = params.Check(len(ranks))
	}
	if err != nil {
		c.Failf(p, "%s: %v", p, err)
	}
}

func fillWord(list *[]string, word string) {
	if len(*list) == 0 {
		*list = []string{word}
	}
}

// datBytesMax is more than any HPL.dat has.
const datBytesMax = 1 << 16

// readDat copies the values of HPL.dat.
func (h *Settings) readDat(c *setting.Checker, p string) {
	at := p + ".dat"
	if len(h.N) > 0 || len(h.NB) > 0 || len(h.Grids) > 0 || len(h.Bcast) > 0 {
		c.Failf(at, "%s says what n, nb, grids and bcast say: give either", h.Dat)
		return
	}
	text, err := c.ReadFile(h.Dat, datBytesMax)
	if err != nil {
		c.Failf(at, "%v", err)
		return
	}
	in, err := ParseDat(string(text))
	if err != nil {
		c.Failf(at, "%s, %v", h.Dat, err)
		return
	}
	h.Dat, h.N, h.NB, h.Bcast, h.Depth, h.Threshold = "", in.N, in.NB, in.Bcast, in.Depth, in.Threshold
	h.PFact, h.RFact, h.NBMin, h.NDiv, h.Swap, h.SwapThreshold = in.PFact, in.RFact, in.NBMin, in.NDiv, in.Swap, in.SwapThreshold
	h.Order = "row"
	if in.ColumnMajor {
		h.Order = "column"
	}
	for _, g := range in.Grids {
		h.Grids = append(h.Grids, fmt.Sprintf("%dx%d", g[0], g[1]))
	}
}

// App implements apps.Kind.
func (*Settings) App(apps.Env) apps.App { return App{} }

// Prepare implements apps.Kind: a step is a test.
func (h *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	p, err := h.params()
	return apps.Prepared{Input: p, Hosts: h.Ranks.Resolve(s.Graph), Steps: len(p.Tests)}, err
}

// Links implements apps.Kind: those of a test's messages that follow each other, each over
// as many links as there are between any two of its ranks at the most.
func (h *Settings) Links(g *topo.Graph, _ int, row *apps.Row) (links int) {
	p, err := h.params()
	if err != nil {
		return 0
	}
	far, hosts := 0, h.Ranks.Resolve(g)
	for _, a := range hosts {
		for _, b := range hosts {
			far = max(far, g.Hops(a, b))
		}
	}
	for i := range p.Tests {
		if t := &p.Tests[i]; t.Label == row.Scheme {
			links = max(links, t.SerialMessages(p.panelRoots(t))*far)
		}
	}
	return links
}

// Only implements apps.Kind: tests share a grid.
func (h *Settings) Only(*apps.Row) apps.Kind { return nil }

// NoBytes implements apps.CostOnly.
func (h *Settings) NoBytes() bool { return h.CostOnly }

// FallsBack implements apps.Faller.
func (h *Settings) FallsBack() bool { return setting.FallsBack(h.Fallback) }

// SchemeNames implements apps.Schemed.
func (*Settings) SchemeNames(string) []string { return Bcasts() }

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{"sum": {"broadcast", "swap", "factor", "broadcast-bytes", "swap-bytes"}}
}
