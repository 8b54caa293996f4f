// SPDX-License-Identifier: Apache-2.0

// Package guards checks that every guard of the cores fires in the sweeps: a guard that
// nothing reaches is untested, or dead.
package guards

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cores are the packages whose guards count.
var cores = []string{"virtrnic", "virtswitch", "core/mrp", "internal/external", "drivers/sim"}

// sweeps are the tests that draw their inputs by seed. Coverage is counted over them
// alone: a guard that only a scene written for it reaches does not count as fired.
var sweeps = []struct {
	pkg, test string
	args      []string
}{
	{"virtrnic", "TestGuardsFire", nil},
	{"virtswitch", "TestGuardsFire", nil},
	{"core/mrp", "TestGuardsFire", nil},
	{"internal/external", "TestConservation", nil},
	{"internal/external", "TestJoinsOfDevice|TestDeviceQueried", nil}, // a device that joins groups, behind a switch
	// That many seeds are enough for guards that only whole labs reach. A second run of a seed reaches
	// those of the first.
	{"drivers/sim", "TestGuardsFire", []string{"-args", "-seeds", "16"}},
	{"drivers/sim", "TestSeedSweep", []string{"-args", "-seeds", "120", "-once"}},
	{"drivers/sim", "TestJoins.*", nil},           // hosts that join groups and leave them, across fabrics
	{"nodeagent/verbs", "TestHostileMemory", nil}, // programs that ask for objects beyond their limits
	{"drivers/sim", "TestSkip", nil},              // random labs in which periods repeat, and others in which they must not be left out
}

// guard is a branch that turns something away.
type guard struct {
	file string // relative to the module's root
	fn   string
	cond string // the text of the condition, or of the case
	pos  token.Position
	body token.Position // of its first statement
}

func (g guard) String() string { return fmt.Sprintf("%s:%d: %s: %s", g.file, g.pos.Line, g.fn, g.cond) }

// name is argued's name of a guard: it survives changes of other lines.
func (g guard) name() string { return g.file + " " + g.fn + ": " + g.cond }

// collect returns the guards of a package in the order of its text.
func collect(t *testing.T, pkg string) (all []guard) {
	t.Helper()
	files, err := filepath.Glob("../../../" + pkg + "/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("listing %s: %v", pkg, err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		c := collector{fset: fset, text: text, file: filepath.ToSlash(strings.TrimPrefix(name, "../../../"))}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil && f.Name.Name != "String" {
				c.fn = f.Name.Name
				ast.Inspect(f.Body, c.visit)
			}
		}
		all = append(all, c.guards...)
	}
	return all
}

type collector struct {
	fset   *token.FileSet
	text   []byte
	file   string
	fn     string
	guards []guard
}

func (c *collector) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		c.branch(n.Cond, c.source(n.Cond.Pos(), n.Cond.End()), n.Body.List)
		if b, ok := n.Else.(*ast.BlockStmt); ok {
			c.branch(n.Else, "else of "+c.source(n.Cond.Pos(), n.Cond.End()), b.List)
		}
	case *ast.CaseClause:
		cond := "default"
		if len(n.List) > 0 {
			cond = c.source(n.List[0].Pos(), n.List[len(n.List)-1].End())
		}
		c.branch(n, cond, n.Body)
	}
	return true
}

func (c *collector) source(from, to token.Pos) string {
	return strings.Join(strings.Fields(string(c.text[c.fset.Position(from).Offset:c.fset.Position(to).Offset])), " ")
}

// branch notes a branch if it turns something away.
func (c *collector) branch(at ast.Node, cond string, body []ast.Stmt) {
	if len(body) > 0 && slices.ContainsFunc(body, turnsAway) {
		c.guards = append(c.guards, guard{c.file, c.fn, cond, c.fset.Position(at.Pos()), c.fset.Position(body[0].Pos())})
	}
}

// away are the functions that turn something away.
var away = []string{"drop", "refuse", "failf", "fail", "failOldest", "panic", "event", "impliedNak"}

// turnsAway reports whether a statement of a branch, nested branches left out, drops, refuses,
// answers with a NAK, counts something ignored, or returns early with nothing done.
func turnsAway(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return len(s.Results) == 0 || slices.ContainsFunc(s.Results, negative)
	case *ast.BranchStmt:
		return s.Tok == token.CONTINUE
	case *ast.IncDecStmt:
		counter := s.X
		if i, ok := counter.(*ast.IndexExpr); ok {
			counter = i.X
		}
		text := lastName(counter)
		return text == "Drops" || text == "Ignored"
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok {
			return slices.Contains(away, lastName(call.Fun))
		}
	case *ast.AssignStmt:
		for _, l := range s.Lhs {
			if n := lastName(l); n == "dead" || n == "refused" || n == "why" || n == "status" {
				return true
			}
		}
	}
	return false
}

// negative reports whether a result means that something is refused: false, nil, an error made here, a
// reason, a NAK.
func negative(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name == "false" || e.Name == "nil" || strings.HasPrefix(e.Name, "Drop") || strings.HasPrefix(e.Name, "WC")
	case *ast.SelectorExpr:
		return strings.HasPrefix(e.Sel.Name, "Syndrome")
	case *ast.CallExpr:
		return lastName(e.Fun) == "Errorf" || lastName(e.Fun) == "failf"
	}
	return false
}

func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// block is a stretch of text that coverage counts.
type block struct {
	fromLine, fromCol, toLine, toCol int
	fired                            bool
}

// holds reports whether a position is in the block.
func (b block) holds(p token.Position) bool {
	after := p.Line > b.fromLine || p.Line == b.fromLine && p.Column >= b.fromCol
	return after && (p.Line < b.toLine || p.Line == b.toLine && p.Column < b.toCol)
}

// cover runs the sweeps of all cores under coverage and returns the blocks by file.
func cover(t *testing.T) map[string][]block {
	t.Helper()
	blocks := map[string][]block{}
	var pkgs []string
	for _, c := range cores {
		pkgs = append(pkgs, "github.com/mcastlab/mcastlab/"+c)
	}
	for i, sweep := range sweeps {
		profile := filepath.Join(t.TempDir(), fmt.Sprint(i))
		args := []string{"test", "-vet=off", "-count=1", "-timeout=30m", "-covermode=set", "-coverpkg=" + strings.Join(pkgs, ","), "-coverprofile=" + profile, "-run", "^" + sweep.test + "$", "./" + sweep.pkg}
		run := exec.Command("go", append(args, sweep.args...)...)
		run.Dir = "../../.."
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%s of %s: %v\n%s", sweep.test, sweep.pkg, err, out)
		}
		read(t, profile, blocks)
	}
	return blocks
}

// read adds a profile to the blocks.
func read(t *testing.T, profile string, blocks map[string][]block) {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		line, ok := strings.CutPrefix(s.Text(), "github.com/mcastlab/mcastlab/")
		if !ok {
			continue
		}
		name, rest, _ := strings.Cut(line, ":")
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.fromLine, &b.fromCol, &b.toLine, &b.toCol, &statements, &count); err != nil {
			t.Fatalf("profile %s: %q: %v", profile, s.Text(), err)
		}
		b.fired = count > 0
		blocks[name] = append(blocks[name], b)
	}
}

// TestEveryGuardFires: each guard of the cores turns something away in the sweeps, except those for
// which argued has the reason why they cannot, and these do not.
func TestEveryGuardFires(t *testing.T) {
	if testing.Short() || os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "" {
		t.Skip("builds and runs the sweeps of all cores under coverage, half a minute: set MCASTLAB_REQUIRE_TOOLS")
	}
	blocks := cover(t)
	quiet := map[string]bool{}
	total, fired := 0, 0
	for _, core := range cores {
		for _, g := range collect(t, core) {
			total++
			hit, known := false, false
			for _, b := range blocks[g.file] {
				if b.holds(g.body) {
					hit, known = hit || b.fired, true
				}
			}
			switch {
			case !known:
				t.Errorf("%v: coverage does not know it", g)
			case hit:
				fired++
				if argued[g.name()] != "" {
					t.Errorf("%v fires, though argued.go says that it cannot: %s", g, argued[g.name()])
				}
			default:
				quiet[g.name()] = true
				if argued[g.name()] == "" {
					t.Errorf("%v never fires: reach it in a sweep, take it out, or say in argued.go why it cannot and is needed", g)
				}
			}
		}
	}
	for name := range argued { // independent of each other
		if !quiet[name] {
			t.Errorf("argued.go: there is no such guard, or it fires: %s", name)
		}
	}
	t.Logf("%d guards, %d fire, %d cannot and are argued", total, fired, len(quiet))
}
