// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// TestCleanUp: a deferred function cleans up no named result, which a return that gives another value sets to that before it: then nothing
// is cleaned up, or nil is dereferenced. Nor does the branch of an error clean up by way of a field that the failed call has set.
func TestCleanUp(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		ast.Inspect(s.file, func(n ast.Node) bool {
			var typ *ast.FuncType
			var body *ast.BlockStmt
			switch n := n.(type) {
			case *ast.FuncDecl:
				typ, body = n.Type, n.Body
			case *ast.FuncLit:
				typ, body = n.Type, n.Body
			case *ast.BlockStmt:
				for _, at := range cleansBy(n.List) {
					t.Errorf("%s: the call that failed has set the field to nil: give it a variable of its own first", fset.Position(at))
				}
			}
			if body != nil {
				for _, at := range cleansResults(typ, body) {
					t.Errorf("%s: a deferred function uses a result that this return sets first: give what is made a variable of its own", fset.Position(at))
				}
			}
			return true
		})
	}
	caught(t)
}

// cleansResults returns the places of returns that set a named result, other than an error, which a deferred function uses.
func cleansResults(typ *ast.FuncType, body *ast.BlockStmt) (at []token.Pos) {
	if typ.Results == nil {
		return nil
	}
	place := map[string]int{}
	i := 0
	for _, f := range typ.Results.List {
		for _, name := range f.Names {
			if id, is := f.Type.(*ast.Ident); name.Name != "_" && (!is || id.Name != "error" && id.Name != "bool" && id.Name != "int") {
				place[name.Name] = i
			}
			i++
		}
	}
	used := map[string]bool{}
	own(body, func(n ast.Node) {
		d, is := n.(*ast.DeferStmt)
		if !is {
			return
		}
		if f, is := d.Call.Fun.(*ast.FuncLit); is {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt: // what it sets itself, it does not clean up
					for _, e := range n.Lhs {
						if id, is := e.(*ast.Ident); is {
							delete(place, id.Name)
						}
					}
				case *ast.Ident:
					used[n.Name] = true
				}
				return true
			})
		}
	})
	own(body, func(n ast.Node) {
		r, is := n.(*ast.ReturnStmt)
		if !is || len(r.Results) != i {
			return
		}
		for name, k := range place { // one place is as good as another
			if id, is := r.Results[k].(*ast.Ident); used[name] && (!is || id.Name != name) {
				at = append(at, r.Pos())
				return
			}
		}
	})
	return at
}

// own visits the nodes of a function, and not those of functions in it.
func own(body *ast.BlockStmt, visit func(n ast.Node)) {
	ast.Inspect(body, func(n ast.Node) bool {
		if n != nil {
			visit(n)
		}
		_, inner := n.(*ast.FuncLit)
		return !inner
	})
}

// cleansBy returns the places where x.f, err = call() fails and a method of x is called for that.
func cleansBy(list []ast.Stmt) (at []token.Pos) {
	var before ast.Stmt
	for _, s := range list {
		if branch, is := s.(*ast.IfStmt); is {
			if branch.Init != nil {
				before = branch.Init
			}
			if owner := setOf(before); owner != "" && isFailed(branch.Cond) {
				ast.Inspect(branch.Body, func(n ast.Node) bool {
					call, is := n.(*ast.CallExpr)
					if !is {
						return true
					}
					if f, is := call.Fun.(*ast.SelectorExpr); is {
						if id, is := f.X.(*ast.Ident); is && id.Name == owner && (f.Sel.Name == "close" || f.Sel.Name == "Close") {
							at = append(at, call.Pos())
						}
					}
					return true
				})
			}
		}
		before = s
	}
	return at
}

// setOf returns x of x.f, err = call(), or "".
func setOf(s ast.Stmt) string {
	a, is := s.(*ast.AssignStmt)
	if !is || a.Tok != token.ASSIGN || len(a.Lhs) != 2 || len(a.Rhs) != 1 {
		return ""
	}
	if f, is := a.Lhs[0].(*ast.SelectorExpr); is {
		if id, is := f.X.(*ast.Ident); is {
			return id.Name
		}
	}
	return ""
}

// isFailed reports whether a condition is err != nil.
func isFailed(e ast.Expr) bool {
	b, is := e.(*ast.BinaryExpr)
	if !is || b.Op != token.NEQ {
		return false
	}
	id, is := b.X.(*ast.Ident)
	return is && id.Name == "err"
}

// caught has the test find its errors.
func caught(t *testing.T) {
	t.Helper()
	const text = `package p

func results() (s *S, err error) {
	s = &S{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.start(); err != nil {
		return nil, err
	}
	return s, nil
}

func field() (*S, error) {
	c := &S{}
	var err error
	if c.inner, err = made(); err != nil {
		return nil, c.Close()
	}
	return c, nil
}
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range f.Decls {
		fn := d.(*ast.FuncDecl)
		if found := len(cleansResults(fn.Type, fn.Body)) + len(cleansBy(fn.Body.List)); found != 1 {
			t.Errorf("function %d: %d places found, want 1", i, found)
		}
	}
}
