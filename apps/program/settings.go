// SPDX-License-Identifier: Apache-2.0

package program

import (
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
)

// Settings are a program of the user's own in a lab file.
type Settings struct {
	Label string        `yaml:"label" json:"label,omitzero" doc:"name in reports; default: the program's"`
	Name  string        `yaml:"name" json:"name,omitzero" doc:"name of the program in the binary" required:"true"`
	Args  []string      `yaml:"args" json:"args,omitzero" doc:"its arguments"`
	Ranks setting.Hosts `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	if c.Programs != nil && !slices.Contains(c.Programs, w.Name) {
		hint := ", which has none: run the lab with a binary of your own (docs/programs.md)"
		if len(c.Programs) > 0 {
			if hint = setting.Suggest(w.Name, c.Programs); hint == "" {
				hint = ": it has " + strings.Join(c.Programs, ", ")
			}
		}
		c.Failf(p+".name", "there is no program %q in this binary%s", w.Name, hint)
	}
	if w.Label == "" {
		w.Label = w.Name
	}
	c.Label(p, w.Label)
	c.NoneOutside(p, c.Ranks(p, "a program", w.Ranks))
}

// App implements apps.Kind.
func (*Settings) App(e apps.Env) apps.App { return App{Programs: e.Programs} }

// Prepare implements apps.Kind: a program is one step.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	return apps.Prepared{Input: Params{Workload: w.Label, Program: w.Name, Args: w.Args}, Hosts: w.Ranks.Resolve(s.Graph), Steps: 1}, nil
}

// Links implements apps.Kind. The use that a program makes of its time is unknown.
func (w *Settings) Links(g *topo.Graph, _ int, row *apps.Row) int { return apps.LinksAtMost(g, row) }

// Only implements apps.Kind: a program is one.
func (w *Settings) Only(*apps.Row) apps.Kind { return nil }
