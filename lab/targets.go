// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
)

// Names is one word or a list of them: names, patterns, kinds.
type Names []string

// Label names a set of nodes.
type Label struct {
	Name  string `yaml:"name" json:"name,omitzero" doc:"the label; label:NAME means the nodes and their links" required:"true"`
	Nodes Names  `yaml:"nodes" json:"nodes,omitzero" doc:"nodes: names, patterns h*, ranges h0..h7, expressions re:^agg[01]$, tiers tier:leaf" required:"true"`
}

// tiers are the words after tier:, by topo.Tier.
var tiers = []string{"host", "leaf", "agg", "core"}

// matcher finds the nodes and links that words of a lab file select.
type matcher struct {
	l *Lab
	g *topo.Graph
}

// nodes returns the nodes that one of the words means, in order. It is an error if a word
// means none. depth is of labels within labels.
func (m matcher) nodes(words Names, depth int) (nodes []int, err error) {
	for _, w := range words {
		some, err := m.node(w, depth)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			return nil, fmt.Errorf("there is no node %q%s", w, setting.Suggest(w, m.names()))
		}
		nodes = append(nodes, some...)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

func (m matcher) names() (all []string) {
	for i := range m.g.Nodes {
		all = append(all, m.g.Nodes[i].Name)
	}
	return all
}

// node returns the nodes that a word means.
func (m matcher) node(w string, depth int) (nodes []int, err error) {
	if name, ok := strings.CutPrefix(w, "label:"); ok {
		return m.labelled(name, depth)
	}
	if from, to, ranged := strings.Cut(w, ".."); ranged {
		a, okA := m.g.Find(from)
		b, okB := m.g.Find(to)
		if !okA || !okB || a > b {
			return nil, fmt.Errorf("%q is not a range of nodes, from the first to the last", w)
		}
		for i := a; i <= b; i++ {
			nodes = append(nodes, i)
		}
		return nodes, nil
	}
	ok, err := m.test(w)
	if err != nil {
		return nil, err
	}
	for i := range m.g.Nodes {
		if n := &m.g.Nodes[i]; ok(n.Name, n.Tier) {
			nodes = append(nodes, i)
		}
	}
	return nodes, nil
}

// test returns a function that reports whether a node is selected by a pattern, an expression or a
// tier.
func (m matcher) test(w string) (func(name string, t topo.Tier) bool, error) {
	if tier, ok := strings.CutPrefix(w, "tier:"); ok {
		i := slices.Index(tiers, tier)
		if i < 0 {
			return nil, fmt.Errorf("%q is not a tier%s", tier, setting.Suggest(tier, tiers))
		}
		return func(_ string, t topo.Tier) bool { return int(t) == i }, nil
	}
	if expr, ok := strings.CutPrefix(w, "re:"); ok {
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, fmt.Errorf("%q is not a regular expression: %w", expr, err)
		}
		return func(name string, _ topo.Tier) bool { return re.MatchString(name) }, nil
	}
	if _, err := path.Match(w, ""); err != nil {
		return nil, fmt.Errorf("%q is not a pattern: %w", w, err)
	}
	return func(name string, _ topo.Tier) bool { ok, _ := path.Match(w, name); return ok }, nil
}

// labelled returns the nodes with a label.
func (m matcher) labelled(name string, depth int) ([]int, error) {
	var known []string
	for _, k := range m.l.Labels {
		if k.Name == name && depth < len(m.l.Labels) {
			return m.nodes(k.Nodes, depth+1)
		}
		known = append(known, k.Name)
	}
	if slices.Contains(known, name) {
		return nil, fmt.Errorf("label %q contains itself", name)
	}
	return nil, fmt.Errorf("there is no label %q%s", name, setting.Suggest(name, known))
}

// links returns the links that one of the words means, in order: their name fits the
// pattern or expression, with or without ports and in either direction; one end has the
// label; or the ends are of the tiers.
func (m matcher) links(words Names) (links []int, err error) {
	for _, w := range words {
		ok, err := m.link(w)
		if err != nil {
			return nil, err
		}
		some := false
		for i := range m.g.Links {
			if ok(&m.g.Links[i]) {
				links, some = append(links, i), true
			}
		}
		if !some {
			return nil, fmt.Errorf("no link is called %q (a link is, for example, %s)", w, m.g.LinkName(0))
		}
	}
	slices.Sort(links)
	return slices.Compact(links), nil
}

// link returns a function that reports whether a link is selected by a word.
func (m matcher) link(w string) (func(l *topo.Link) bool, error) {
	if name, ok := strings.CutPrefix(w, "label:"); ok {
		nodes, err := m.labelled(name, 0)
		return func(l *topo.Link) bool {
			return slices.Contains(nodes, l.A.Node) || slices.Contains(nodes, l.B.Node)
		}, err
	}
	if both, ok := strings.CutPrefix(w, "tier:"); ok {
		a, b, two := strings.Cut(both, "-")
		low, err := m.test("tier:" + a)
		if err != nil {
			return nil, err
		}
		high := low
		if two {
			if high, err = m.test("tier:" + b); err != nil {
				return nil, err
			}
		}
		return func(l *topo.Link) bool {
			x, y := m.g.Nodes[l.A.Node].Tier, m.g.Nodes[l.B.Node].Tier
			if !two {
				return low("", x) || low("", y)
			}
			return low("", x) && high("", y) || low("", y) && high("", x)
		}, nil
	}
	ok, err := m.test(w)
	if err != nil {
		return nil, err
	}
	return func(l *topo.Link) bool {
		a, b := m.g.Nodes[l.A.Node].Name, m.g.Nodes[l.B.Node].Name
		pa, pb := m.g.PortName(l.A), m.g.PortName(l.B)
		return ok(a+"-"+b, 0) || ok(b+"-"+a, 0) || ok(pa+"-"+pb, 0) || ok(pb+"-"+pa, 0)
	}, nil
}

func (c *checking) checkLabels() {
	for i, k := range c.l.Labels {
		at := fmt.Sprintf("labels[%d]", i)
		if !c.item(at) {
			continue
		}
		for _, o := range c.l.Labels[:i] {
			if o.Name == k.Name {
				c.failf(at+".name", "two labels are called %q", k.Name)
			}
		}
		if !setting.LabelOK(k.Name) {
			c.failf(at+".name", setting.BadLabel, k.Name)
		}
		if _, err := (matcher{c.l, c.g}).labelled(k.Name, 0); err != nil {
			c.failf(at+".nodes", "label %s: %v", k.Name, err)
		}
	}
}
