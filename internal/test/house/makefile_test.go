// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFuzzed: the gate fuzzes every target there is.
func TestFuzzed(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := strings.FieldsFunc(string(makefile), func(r rune) bool { return strings.ContainsRune(" ;\n", r) })
	_, all := sources(t)
	for _, s := range all {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && s.test && strings.HasPrefix(f.Name.Name, "Fuzz") && !slices.Contains(list, s.dir+":"+f.Name.Name) {
				t.Errorf("%s: %s is not in the Makefile's list", s.path, f.Name.Name)
			}
		}
	}
}

// listed returns whether a directory is in a list of packages that the Makefile has under a name.
func listed(t *testing.T, name string) func(dir string) bool {
	t.Helper()
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n"+name+" = ")
	list, _, _ = strings.Cut(list, "\n")
	return func(dir string) bool {
		return slices.ContainsFunc(strings.Fields(list), func(p string) bool {
			tree, all := strings.CutSuffix(p, "/...")
			return dir == tree || all && strings.HasPrefix(dir, tree+"/")
		})
	}
}

// TestSmoke: each test that the gate of a change brings labs up for is there.
func TestSmoke(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nSMOKE = ")
	list, _, _ = strings.Cut(list, "\n")
	there := map[string]bool{}
	_, all := sources(t)
	for _, s := range all {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.test && s.dir == "command" {
				there[f.Name.Name] = true
			}
		}
	}
	names := strings.Fields(list)
	if len(names) < 10 {
		t.Errorf("SMOKE in the Makefile has %d tests, want a dozen", len(names))
	}
	for _, name := range names {
		if test, _, _ := strings.Cut(name, "/"); !there[test] {
			t.Errorf("SMOKE in the Makefile has %s, which is not in command", name)
		}
	}
}

// asks matches code that asks who runs it, or whether a program is there.
var asks = regexp.MustCompile(`\b(os\.Gete?uid|exec\.LookPath)\(|"MCASTLAB_REQUIRE_TOOLS"`)

// TestRooted: make test-root has every package that asks who runs it or for other programs, so that the gate, which
// runs all tests as a new user, has to run no others as root.
func TestRooted(t *testing.T) {
	rooted := listed(t, "ROOTED") // and command, all of which make test-live runs
	_, all := sources(t)
	for _, s := range all {
		text, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if s.path != "internal/test/house/makefile_test.go" && asks.Match(text) && !rooted(s.dir) && s.dir != "command" {
			t.Errorf("%s asks who runs it, or for a program: add %s to ROOTED in the Makefile", s.path, s.dir)
		}
	}
}

// TestRaced: make race has every package in which, tests included, goroutines meet.
func TestRaced(t *testing.T) {
	raced := listed(t, "RACE")
	_, all := sources(t)
	for _, s := range all {
		concurrent := slices.ContainsFunc(s.file.Imports, func(i *ast.ImportSpec) bool {
			return i.Path.Value == `"sync"`
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			_, started := n.(*ast.GoStmt)
			concurrent = concurrent || started
			return true
		})
		if concurrent && !raced(s.dir) {
			t.Errorf("%s starts goroutines or takes locks: add %s to RACE in the Makefile", s.path, s.dir)
		}
	}
}
