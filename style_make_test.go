package mcastlab

import (
	"go/ast"
	"os"
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

// TestRaced: make race has every package in which, tests included, goroutines meet.
func TestRaced(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\nRACE = ")
	list, _, _ = strings.Cut(list, "\n")
	raced := func(dir string) bool {
		return slices.ContainsFunc(strings.Fields(list), func(p string) bool {
			tree, all := strings.CutSuffix(p, "/...")
			return dir == tree || all && strings.HasPrefix(dir, tree+"/")
		})
	}
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
