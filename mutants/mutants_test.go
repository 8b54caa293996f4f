// Package mutants breaks the cores on purpose: a mutant is a core with one comparison,
// number or check changed, and the tests are to notice.
package mutants

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	seed    = flag.Uint64("seed", 0, "seed of the draw")
	count   = flag.Int("mutants", 0, "number of mutants to run; 0: only the rotation, where MCASTLAB_MUTANTS is set")
	from    = flag.Int("from", 0, "first of the seed's mutants to run")
	only    = flag.String("only", "", "numbers of the seed's mutants to run, by commas; all of -mutants if empty")
	minutes = flag.Int("minutes", 0, "start no mutant after so many minutes; 0: no limit")
)

// cores are the packages that are mutated.
var cores = []string{"virtrnic", "virtswitch", "mrp"}

// quick are the sweeps and scenes of the simulator that a mutant has to pass after its
// own package's tests.
const quick = "^Test(SeedSweep|Lossless|Walkthrough|FLT.*|IRN.*|Verbs.*|Congestion.*)"

// Limits of one test binary: a mutant may loop for ever and grow without end.
const (
	timeLimit   = 90 * time.Second
	memoryLimit = 8 << 20 // KiB of address space
)

// mutant is one change: text between two offsets of a file replaced.
type mutant struct {
	kind, file string // file is relative to the module's root
	line       int
	start, end int
	old, new   string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s `%s` -> `%s`", m.file, m.line, m.kind, m.old, m.new)
}

// Kinds of change.
const (
	kindCompare = "comparison"
	kindNumber  = "off by one"
	kindCheck   = "dropped check"
)

var flipped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR, token.EQL: token.NEQ, token.NEQ: token.EQL,
}

// collect returns every change that the cores offer, by kind, in the order of the text.
func collect(t *testing.T) map[string][]mutant {
	t.Helper()
	all := map[string][]mutant{}
	for _, core := range cores {
		files, err := filepath.Glob("../" + core + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("listing %s: %v", core, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range changes(t, filepath.ToSlash(strings.TrimPrefix(path, "../")), text) {
				all[m.kind] = append(all[m.kind], m)
			}
		}
	}
	return all
}

// changes returns the changes that a file's functions offer. Tables at package level are
// left to their golden tests.
func changes(t *testing.T, name string, text []byte) (all []mutant) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	add := func(kind string, start, end token.Pos, replacement string) {
		s, e := fset.Position(start).Offset, fset.Position(end).Offset
		all = append(all, mutant{kind: kind, file: name, line: fset.Position(start).Line, start: s, end: e, old: string(text[s:e]), new: replacement})
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil || f.Name.Name == "String" {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if to, ok := flipped[n.Op]; ok {
					s, e := fset.Position(n.Pos()).Offset, fset.Position(n.End()).Offset
					at := fset.Position(n.OpPos).Offset - s
					whole := string(text[s:e])
					add(kindCompare, n.Pos(), n.End(), whole[:at]+to.String()+whole[at+len(n.Op.String()):])
				}
			case *ast.BasicLit:
				if v, err := strconv.Atoi(n.Value); err == nil && n.Kind == token.INT {
					add(kindNumber, n.Pos(), n.End(), strconv.Itoa(v+1))
					if v > 0 {
						add(kindNumber, n.Pos(), n.End(), strconv.Itoa(v-1))
					}
				}
			case *ast.IfStmt:
				if n.Else == nil && leaves(n.Body) {
					s, e := fset.Position(n.Cond.Pos()).Offset, fset.Position(n.Cond.End()).Offset
					add(kindCheck, n.Cond.Pos(), n.Cond.End(), "false && ("+string(text[s:e])+")")
				}
			}
			return true
		})
	}
	return all
}

// leaves reports whether a block ends what is being done: it returns, breaks or continues.
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

// draw returns the seed's order of all changes: the kinds in turn, each kind shuffled.
func draw(t *testing.T, seed uint64) (order []mutant) {
	t.Helper()
	all := collect(t)
	r := rand.New(rand.NewPCG(seed, 60))
	kinds := []string{kindCompare, kindNumber, kindCheck}
	for _, k := range kinds {
		r.Shuffle(len(all[k]), func(i, j int) { all[k][i], all[k][j] = all[k][j], all[k][i] })
	}
	for i := 0; len(order) < len(all[kindCompare])+len(all[kindNumber])+len(all[kindCheck]); i++ {
		for _, k := range kinds {
			if i < len(all[k]) {
				order = append(order, all[k][i])
			}
		}
	}
	return order
}

// Outcomes of a mutant.
const (
	killed   = "killed"
	survived = "survived"
	invalid  = "does not compile"
)

// try builds and runs the tests under the change and returns the outcome and who killed it.
func (m mutant) try(t *testing.T) (outcome, by string) {
	t.Helper()
	work := t.TempDir()
	text, err := os.ReadFile("../" + m.file)
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(work, "changed.go")
	broken := slices.Concat(text[:m.start], []byte(m.new), text[m.end:])
	if err := os.WriteFile(changed, broken, 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs("../" + m.file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	overlayFile := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	own := strings.Split(m.file, "/")[0]
	for _, stage := range []struct{ pkg, run string }{{own, "."}, {"sim", quick}} {
		bin := filepath.Join(work, stage.pkg+".test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlayFile, "-o", bin, "./"+stage.pkg)
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			if stage.pkg != own {
				t.Fatalf("building the tests of %s under %v: %v\n%s", stage.pkg, m, err, out)
			}
			return invalid, ""
		}
		if by := fails(t, stage.pkg, bin, stage.run); by != "" {
			return killed, stage.pkg + " " + by
		}
	}
	return survived, ""
}

var failed = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)

// fails runs a test binary and names the test that fails, or how else it ended.
func fails(t *testing.T, pkg, bin, run string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", "-c", `ulimit -v "$0"; exec "$@"`, strconv.Itoa(memoryLimit),
		bin, "-test.short", "-test.failfast", "-test.run", run)
	c.Dir = "../" + pkg
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &exit):
		t.Fatalf("running the tests of %s: %v", pkg, err)
	case ctx.Err() != nil:
		return "(time limit)"
	}
	if m := failed.FindSubmatch(out); m != nil {
		return string(m[1])
	}
	return "(crash)"
}

// baseline stops unless the tests pass on the cores as they are: a test that fails anyway
// would be said to kill every mutant.
func baseline(t *testing.T) {
	t.Helper()
	for _, pkg := range append(slices.Clone(cores), "sim") {
		run := "."
		if pkg == "sim" {
			run = quick
		}
		bin := filepath.Join(t.TempDir(), pkg+".test")
		build := exec.Command("go", "test", "-c", "-vet=off", "-o", bin, "./"+pkg)
		build.Dir = ".."
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("building the tests of %s: %v\n%s", pkg, err, out)
		}
		if by := fails(t, pkg, bin, run); by != "" {
			t.Fatalf("%s %s fails without any mutant: repair it first", pkg, by)
		}
	}
}

// TestMutants runs mutants and expects the tests to kill 95 of 100. CI sets
// MCASTLAB_MUTANTS to the day's number and so runs five of a rotation; make mutants runs
// sixty of a seed.
func TestMutants(t *testing.T) {
	first, n := *from, *count
	if day := os.Getenv("MCASTLAB_MUTANTS"); n == 0 && day != "" {
		d, err := strconv.Atoi(day)
		if err != nil || d < 0 {
			t.Fatalf("MCASTLAB_MUTANTS is %q: give the day's number", day)
		}
		first, n = d%12*5, 5
	}
	if n == 0 {
		t.Skip("neither -mutants nor MCASTLAB_MUTANTS is set")
	}
	baseline(t)
	began := time.Now()
	died, ran := 0, 0
	for i, m := range draw(t, *seed)[first:] {
		if ran == n || *minutes > 0 && time.Since(began) > time.Duration(*minutes)*time.Minute {
			break
		}
		if *only != "" && !slices.Contains(strings.Split(*only, ","), strconv.Itoa(first+i)) {
			continue
		}
		outcome, by := m.try(t)
		fmt.Printf("| %d | %v | %s | %s |\n", first+i, m, outcome, by)
		switch outcome {
		case killed:
			died++
			ran++
		case survived:
			ran++
		}
	}
	fmt.Printf("seed %d from %d: %d of %d killed\n", *seed, first, died, ran)
	// Of five, one may change nothing that can be seen from outside.
	if allowed := max(1, ran/20); ran-died > allowed {
		t.Errorf("%d of %d mutants survived, at most %d may\nreplay: go test ./mutants -run Mutants -seed %d -from %d -mutants %d", ran-died, ran, allowed, *seed, first, n)
	}
}
