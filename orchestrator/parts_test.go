// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// methodsMax limits the methods of Deployed: more is for a part of it (parts.go), or for a package above.
const methodsMax = 50

// TestDeployedMethods: Deployed stays small enough to read.
func TestDeployedMethods(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			to := fn.Recv.List[0].Type
			if p, ok := to.(*ast.StarExpr); ok {
				to = p.X
			}
			if name, ok := to.(*ast.Ident); ok && name.Name == "Deployed" {
				all = append(all, fn.Name.Name)
			}
		}
	}
	if len(all) == 0 || len(all) > methodsMax {
		t.Errorf("Deployed has %d methods, at most %d may be: %s", len(all), methodsMax, strings.Join(all, " "))
	}
}
