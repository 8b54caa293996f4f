// SPDX-License-Identifier: Apache-2.0

// Package mutants breaks the cores on purpose: a mutant is a core with one comparison,
// number or check changed, and the tests are to notice. docs/ledgers/mutants.md has the result.
package mutants

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// cores are the packages that are mutated.
var cores = []string{"virtrnic", "virtswitch", "core/mrp"}

// Kinds of change.
const (
	kindCompare = "comparison"
	kindNumber  = "off by one"
	kindCheck   = "dropped check"
)

// mutant is one change: text between two offsets of a file replaced.
type mutant struct {
	core, file string // file is relative to the module's root
	function   string // with its receiver's type
	kind       string
	line       int
	start, end int
	old, new   string
	nth        int // of the same change in the same function, from 1

	// The same behind a switch: the text between these offsets becomes switched, with %d for the
	// mutant's number. Empty if the place takes no switch (see collector.number).
	from, to int
	switched string
}

// key names the change without its line, so that it is the same after changes elsewhere.
func (m *mutant) key() string {
	k := fmt.Sprintf("%s %s: %s `%s` -> `%s`", m.file, m.function, m.kind, flat(m.old), flat(m.new))
	if m.nth > 1 {
		k += fmt.Sprintf(" #%d", m.nth)
	}
	return k
}

func (m *mutant) String() string { return fmt.Sprintf("%s (line %d)", m.key(), m.line) }

// flat puts a text on one line.
func flat(s string) string { return strings.Join(strings.Fields(s), " ") }

var flipped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
}

// changes returns every change that the functions of a package offer, in the order of the
// text. Tables at package level are left to their golden tests, and String methods too.
func changes(p *pkg) (all []*mutant) {
	for _, s := range p.sources {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || f.Name.Name == "String" {
				continue
			}
			c := collector{pkg: p, source: s, function: functionName(f), seen: map[string]int{}}
			ast.PreorderStack(f.Body, nil, func(n ast.Node, stack []ast.Node) bool {
				c.visit(n, stack)
				return true
			})
			all = append(all, c.all...)
		}
	}
	return all
}

func functionName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	e := f.Recv.List[0].Type
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	if g, ok := e.(*ast.IndexExpr); ok {
		e = g.X
	}
	return e.(*ast.Ident).Name + "." + f.Name.Name
}

// collector collects the changes of one function.
type collector struct {
	*pkg
	source   *source
	function string
	seen     map[string]int
	all      []*mutant
}

func (c *collector) offset(p token.Pos) int { return c.fset.Position(p).Offset }

func (c *collector) text(n ast.Node) string {
	return string(c.source.text[c.offset(n.Pos()):c.offset(n.End())])
}

// add enters the change of a node's text.
func (c *collector) add(kind string, n ast.Node, replacement string) *mutant {
	m := &mutant{
		core: c.core, file: c.source.name, function: c.function, kind: kind, line: c.fset.Position(n.Pos()).Line,
		start: c.offset(n.Pos()), end: c.offset(n.End()), old: c.text(n), new: replacement,
	}
	c.seen[m.key()]++
	m.nth = c.seen[m.key()]
	m.from, m.to = m.start, m.end
	c.all = append(c.all, m)
	return m
}

func (c *collector) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if to, ok := flipped[n.Op]; ok {
			whole := c.text(n)
			at := c.offset(n.OpPos) - c.offset(n.Pos())
			m := c.add(kindCompare, n, whole[:at]+to.String()+whole[at+len(n.Op.String()):])
			m.switched = "(mutantNo != %[1]d && (" + verbatim(whole) + ") || mutantNo == %[1]d && (" + verbatim(m.new) + "))"
		}
	case *ast.BasicLit:
		v, err := strconv.Atoi(n.Value)
		if err != nil || n.Kind != token.INT {
			return
		}
		c.number(n, stack, v+1)
		if v > 0 {
			c.number(n, stack, v-1)
		}
	case *ast.IfStmt:
		if n.Else == nil && leaves(n.Body) {
			cond := c.text(n.Cond)
			m := c.add(kindCheck, n.Cond, "false && ("+cond+")")
			m.switched = "(mutantNo != %[1]d && (" + verbatim(cond) + "))"
		}
	}
}

// number enters an off-by-one. To switch it, the largest constant expression around the
// number becomes a call that returns one constant or the other, of the type that the
// type checker gives the expression.
func (c *collector) number(n *ast.BasicLit, stack []ast.Node, v int) {
	m := c.add(kindNumber, n, strconv.Itoa(v))
	var top ast.Expr = n
	for _, up := range slices.Backward(stack) {
		e, ok := up.(ast.Expr)
		if !ok || c.info.Types[e].Value == nil {
			break
		}
		top = e
	}
	name := c.typeName(top)
	if name == "" {
		return
	}
	m.from, m.to = c.offset(top.Pos()), c.offset(top.End())
	whole := c.text(top)
	changed := whole[:m.start-m.from] + m.new + whole[m.end-m.from:]
	m.switched = "mutantPick[" + name + "](%[1]d, " + verbatim(whole) + ", " + verbatim(changed) + ")"
}

// verbatim protects a text that becomes part of a format.
func verbatim(s string) string { return strings.ReplaceAll(s, "%", "%%") }

// leaves reports whether a block ends its function or loop: it returns, breaks or continues.
func leaves(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// draw returns the seed's order of all changes: the kinds in turn, each kind by a hash of
// the seed and the change. So an edit of a core moves none of the changes elsewhere.
func draw(pkgs map[string]*pkg, seed uint64) (order []*mutant) {
	byKind := map[string][]*mutant{}
	rank := map[*mutant]uint64{}
	for _, core := range cores {
		for _, m := range changes(pkgs[core]) {
			byKind[m.kind] = append(byKind[m.kind], m)
			sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.key()))
			rank[m] = binary.BigEndian.Uint64(sum[:])
		}
	}
	longest := 0
	kinds := []string{kindCompare, kindNumber, kindCheck}
	for _, k := range kinds {
		slices.SortFunc(byKind[k], func(a, b *mutant) int {
			if rank[a] < rank[b] {
				return -1
			}
			return 1
		})
		longest = max(longest, len(byKind[k]))
	}
	for i := range longest {
		for _, k := range kinds {
			if i < len(byKind[k]) {
				order = append(order, byKind[k][i])
			}
		}
	}
	return order
}

// TestDraw: a change has one name, and a seed gives one order.
func TestDraw(t *testing.T) {
	pkgs := load(t)
	order := draw(pkgs, 1)
	names := map[string]bool{}
	for _, m := range order {
		if names[m.key()] {
			t.Errorf("two changes are called %s", m.key())
		}
		names[m.key()] = true
	}
	for i, m := range order[:9] { // the same whatever else there is
		if again := draw(pkgs, 1)[i]; again.key() != m.key() {
			t.Errorf("change %d of seed 1 is %v, and then %v", i, m, again)
		}
	}
	if len(order) < 1000 {
		t.Errorf("the cores offer %d changes only", len(order))
	}
	t.Logf("%d changes", len(order))
}
