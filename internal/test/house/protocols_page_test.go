// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	protocolsPage = "docs/protocols.md"
	protocolsMax  = 6 // formats between processes: a new one replaces another
)

// connects are the functions and types of other packages with which a process listens or dials.
var connects = regexp.MustCompile(`^(net\.(Listen(Unix|Unixgram|TCP|UDP|Packet|Config)?|Dial\w*)|tls\.(Listen|NewListener|Dial\w*)|grpc\.New(Server|Client)|http\.(Server|Serve\w*|Listen\w*))$`)

// TestProtocolsPage: the page of protocols has the formats between processes, at most so many, and every package that listens or dials. Each file
// and package that it names exists.
func TestProtocolsPage(t *testing.T) {
	text, err := os.ReadFile(protocolsPage)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	pages := map[string]bool{} // packages of the last column
	code := regexp.MustCompile("`([^` ]+/[^` ]+|nodeagent|orchestrator|command)`")
	_, table, _ := strings.Cut(string(text), "|---|")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 8 || !strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		for _, m := range code.FindAllStringSubmatch(cells[6], -1) {
			pages[m[1]] = true
		}
		for _, m := range code.FindAllStringSubmatch(cells[5]+cells[6], -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", protocolsPage, err)
			}
		}
	}
	if rows == 0 || rows > protocolsMax {
		t.Errorf("%s has %d formats, want 1 to %d", protocolsPage, rows, protocolsMax)
	}
	found := map[string]bool{}
	_, all := sources(t)
	for _, s := range all {
		if s.test || strings.HasPrefix(s.dir, "internal/test") || strings.HasPrefix(s.dir, "examples") {
			continue
		}
		for _, name := range connections(s.file) {
			if found[s.dir] = true; !pages[s.dir] {
				t.Errorf("%s: %s, and %s does not list package %s: enter it in the row of its format", s.path, name, protocolsPage, s.dir)
			}
		}
	}
	for dir := range pages { // independent of each other
		if !found[dir] {
			t.Errorf("%s lists package %s, which neither listens nor dials", protocolsPage, dir)
		}
	}
}

// connections returns the names in a file with which it listens or dials.
func connections(f *ast.File) (names []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		var x ast.Expr
		switch n := n.(type) {
		case *ast.CallExpr:
			x = n.Fun
		case *ast.CompositeLit:
			x = n.Type
		case *ast.ValueSpec: // var d net.Dialer
			x = n.Type
		}
		if s, ok := x.(*ast.SelectorExpr); ok {
			if p, ok := s.X.(*ast.Ident); ok && connects.MatchString(p.Name+"."+s.Sel.Name) && !slices.Contains(names, p.Name+"."+s.Sel.Name) {
				names = append(names, p.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	return names
}

// TestConnections: calls, literals and variables are found; types in signatures are not.
func TestConnections(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", `package p
func f(l net.Listener, d *net.Dialer) {
	net.ListenUnix("unix", nil)
	_ = &http.Server{}
	var own net.Dialer
	grpc.NewClient("x")
	net.ParseIP("x")
}`, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(connections(f), " "); got != "net.ListenUnix http.Server net.Dialer grpc.NewClient" {
		t.Errorf("found %s", got)
	}
}
