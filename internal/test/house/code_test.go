// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// TestBannedCode: no init functions, no variables that change at package level, no goroutine in a pure
// package, no walk over a map there unless a comment on the line gives the reason why its order cannot
// show, no sleeping in tests.
func TestBannedCode(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		at := func(n ast.Node) string { return fset.Position(n.Pos()).String() }
		commented := map[int]bool{}
		for _, g := range s.file.Comments {
			for _, c := range g.List {
				commented[fset.Position(c.Pos()).Line] = true
			}
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "init" && f.Recv == nil && exempt[s.dir+" init"] == "" {
				t.Errorf("%s: init function: construct what is needed where it is needed", at(d))
			}
			if v := mutable(d); v != "" && !s.test && exempt[s.dir+" var "+v] == "" {
				t.Errorf("%s: package variable %s: pass it in, or make it a table that nothing changes", at(d), v)
			}
		}
		maps := mapNames(s.file)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if isPure(s.dir) && !s.test {
					t.Errorf("%s: goroutine in a core: return what is to be done", at(n))
				}
			case *ast.RangeStmt:
				if isPure(s.dir) && !s.test && ranges(n, maps) && !commented[fset.Position(n.Pos()).Line] {
					t.Errorf("%s: walk over a map: sort the keys, or say on the line why the order cannot show", at(n))
				}
			case *ast.SelectorExpr:
				if id, ok := n.X.(*ast.Ident); ok && id.Name == "time" && n.Sel.Name == "Sleep" && s.test {
					t.Errorf("%s: time.Sleep in a test: wait for what the test waits for", at(n))
				}
			}
			return true
		})
	}
}

// TestPictures: topo draws topologies and plot all other pictures, so that they look alike.
func TestPictures(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		if s.test || s.dir == "core/topo" || s.dir == "internal/plot" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING && strings.Contains(l.Value, "<svg") {
				t.Errorf("%s: a picture: have package plot draw it", fset.Position(l.Pos()))
			}
			return true
		})
	}
}

// mutable returns the name of a package variable that is not evidently constant: only
// unexported tables, compiled expressions and errors are.
func mutable(d ast.Decl) string {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return ""
	}
	for _, spec := range g.Specs {
		v := spec.(*ast.ValueSpec)
		name := v.Names[0].Name
		if name == "_" || strings.HasPrefix(name, "Err") {
			continue
		}
		if ast.IsExported(name) || len(v.Values) == 0 {
			return name
		}
		switch x := v.Values[0].(type) {
		case *ast.CompositeLit:
		case *ast.BasicLit:
			return name
		case *ast.CallExpr:
			if f := fmt.Sprint(x.Fun); !strings.HasPrefix(f, "build") && !strings.Contains(f, "regexp") && !strings.Contains(f, "errors") {
				return name
			}
		default:
			return name
		}
	}
	return ""
}

// mapNames returns the fields and variables of a file that are declared as maps.
func mapNames(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			if _, ok := n.Type.(*ast.MapType); ok {
				for _, id := range n.Names {
					names[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for i, r := range n.Rhs {
				if isMap(r) && i < len(n.Lhs) {
					names[lastName(n.Lhs[i])] = true
				}
			}
		}
		return true
	})
	return names
}

func isMap(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.CompositeLit:
		_, ok := x.Type.(*ast.MapType)
		return ok
	case *ast.CallExpr:
		if id, ok := x.Fun.(*ast.Ident); ok && id.Name == "make" && len(x.Args) > 0 {
			_, ok := x.Args[0].(*ast.MapType)
			return ok
		}
	}
	return false
}

func ranges(r *ast.RangeStmt, maps map[string]bool) bool {
	return isMap(r.X) || maps[lastName(r.X)]
}

func lastName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}
