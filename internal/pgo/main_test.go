// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// TestStrip: names of machines, programs and instants are gone, and who called whom is there.
func TestStrip(t *testing.T) {
	m := &profile.Mapping{ID: 1, File: "/home/me/p0", BuildID: "1234", Start: 1, Limit: 2}
	f := &profile.Function{ID: 1, Name: "a.b", Filename: "a/b.go", StartLine: 3}
	l := &profile.Location{ID: 1, Mapping: m, Address: 1, Line: []profile.Line{{Function: f, Line: 5}}}
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}}, TimeNanos: 77, DurationNanos: 88, Comments: []string{"mine"},
		Sample:  []*profile.Sample{{Location: []*profile.Location{l, l}, Value: []int64{9}, Label: map[string][]string{"who": {"me"}}}},
		Mapping: []*profile.Mapping{m}, Location: []*profile.Location{l}, Function: []*profile.Function{f},
	}
	strip(p)
	var b bytes.Buffer
	if err := p.WriteUncompressed(&b); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"/home", "1234", "mine", "who", "me"} {
		if bytes.Contains(b.Bytes(), []byte(s)) {
			t.Errorf("%q is still there", s)
		}
	}
	again, err := profile.ParseData(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	s := again.Sample[0]
	if at := s.Location[1].Line[0]; again.TimeNanos != 0 || again.DurationNanos != 0 || s.Value[0] != 9 || at.Line != 5 || at.Function.Name != "a.b" || at.Function.StartLine != 3 {
		t.Errorf("read back: %v", again)
	}
}

// method matches the name of a function of this module in a profile: package, receiver, name.
var method = regexp.MustCompile(`^github\.com/mcastlab/mcastlab/([a-z0-9/]+)\.(?:\(?\*?(\w+)(?:\[.*\])?\)?\.)?(\w+)$`)

// declared returns the functions that the files of a package declare, by receiver and name.
func declared(t *testing.T, dir string) map[[2]string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[[2]string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				all[[2]string{receiver(d), d.Name.Name}] = true
			}
		}
	}
	return all
}

// receiver returns the name of a method's type, or an empty text.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	e := d.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// TestProfile: the profile that go build reads names no place of a machine, and nearly all time in functions of this module is in functions that there
// are: the compiler passes over others without a word.
func TestProfile(t *testing.T) {
	root := filepath.Join("..", "..")
	b, err := os.ReadFile(filepath.Join(root, "cmd", "mcastlab", "default.pgo"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := profile.ParseData(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range p.Function {
		if strings.HasPrefix(f.Filename, "/") {
			t.Errorf("%s is in %s: build with -trimpath", f.Name, f.Filename)
		}
	}
	if len(p.Mapping) > 0 || p.TimeNanos != 0 {
		t.Errorf("it says by which program, %v, or when, %d, it was measured", p.Mapping, p.TimeNanos)
	}
	packages := map[string]map[[2]string]bool{}
	var all, gone int64
	missing := map[string]int64{}
	for _, s := range p.Sample {
		name := s.Location[0].Line[0].Function.Name
		m := method.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if packages[m[1]] == nil {
			packages[m[1]] = declared(t, filepath.Join(root, m[1]))
		}
		value := s.Value[len(s.Value)-1]
		all += value
		if !packages[m[1]][[2]string{m[2], m[3]}] {
			gone += value
			missing[name] += value
		}
	}
	if all == 0 || gone*20 > all {
		t.Errorf("%d of %d ns are in functions that are not there any more: make profile\n%v", gone, all, missing)
	}
}
