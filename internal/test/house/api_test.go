// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// api are the packages that programs outside this module import (README.md).
var api = []string{"rank", "rank/collective", "command", "lab"}

// seen are the mentions of types of other packages in the API, each with its reason. A key is
// a package of the API, a declaration or * for all, and the package that is mentioned.
var seen = map[string]string{
	"rank * vtime":            "lab time: programs compute with it",
	"rank Random prng":        "programs draw from the stream",
	"rank/collective * rank":  "the algorithms take a rank and its buffers",
	"rank/collective * vtime": "lab time",
	"command Main rank":       "it takes programs",
	"lab * setting":           "values of keys, which workloads share with the lab file",
	"lab Workload registry":   "the keys of a workload are those of its kind",
	"lab Duration vtime":      "lab time",
	"lab Patience vtime":      "lab time",
	"lab Kind faults":         "the kinds of faults are those of the lab file",
	"lab PSNs wire":           "a range of packet sequence numbers is a value of a key",
}

// TestAPI: the documentation of the packages of the API mentions types of no other package of the
// module, unless there is a reason.
func TestAPI(t *testing.T) {
	used := map[string]bool{}
	for _, dir := range api {
		for _, m := range mentions(t, dir) {
			one, all := dir+" "+m.name+" "+m.of, dir+" * "+m.of
			if used[one], used[all] = true, true; seen[one] == "" && seen[all] == "" {
				t.Errorf("%s: %s mentions a type of package %s: hide it, as rank/rankrun does for rank and lab/labspec for lab, or say in this file why users see it", dir, m.name, m.of)
			}
		}
	}
	for key := range seen {
		if !used[key] {
			t.Errorf("%s: nothing mentions it any more: delete the reason", key)
		}
	}
}

// mention is an exported declaration and the name of another package that it mentions.
type mention struct{ name, of string }

// mentions returns the mentions in the exported declarations of a package.
func mentions(t *testing.T, dir string) (all []mention) {
	t.Helper()
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	imported := map[string]bool{} // names of packages of the module
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
		for _, i := range f.Imports {
			if path, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module); ok {
				imported[path[strings.LastIndex(path, "/")+1:]] = true
			}
		}
	}
	look := func(name string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && imported[x.Name] && ast.IsExported(s.Sel.Name) {
					all = append(all, mention{name, x.Name})
				}
			}
			return true
		})
	}
	d, err := doc.NewFromFiles(fset, files, module+dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range slices.Concat(d.Consts, d.Vars) {
		for _, s := range v.Decl.Specs {
			if x := s.(*ast.ValueSpec); x.Type != nil {
				look(v.Names[0], x.Type)
			}
		}
	}
	funcs := d.Funcs
	for _, x := range d.Types {
		look(x.Name, x.Decl)
		funcs = slices.Concat(funcs, x.Funcs, x.Methods)
	}
	for _, f := range funcs {
		look(f.Name, f.Decl.Type)
	}
	return all
}
