// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pkg is a core, parsed and type-checked.
type pkg struct {
	core    string
	fset    *token.FileSet
	sources []*source
	info    types.Info
	self    *types.Package
	imports types.Importer
}

type source struct {
	name string // relative to the module's root
	text []byte
	file *ast.File
}

// load reads the cores.
func load(t *testing.T) map[string]*pkg {
	t.Helper()
	all := map[string]*pkg{}
	for _, core := range cores {
		p := &pkg{core: core, fset: token.NewFileSet()}
		files, err := filepath.Glob("../../../" + core + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("listing %s: %v", core, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			s := &source{name: core + "/" + filepath.Base(path)}
			if s.text, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			if s.file, err = parser.ParseFile(p.fset, s.name, s.text, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
			p.sources = append(p.sources, s)
		}
		p.imports = importer.ForCompiler(p.fset, "gc", exports(t, core))
		p.info.Types = map[ast.Expr]types.TypeAndValue{}
		if p.self, err = p.check("", nil, &p.info); err != nil {
			t.Fatalf("checking %s: %v", core, err)
		}
		all[core] = p
	}
	return all
}

// exports finds the compiled packages that a core imports.
func exports(t *testing.T, core string) importer.Lookup {
	t.Helper()
	var problem bytes.Buffer
	c := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+core, "os", "strconv")
	c.Dir, c.Stderr = "../../..", &problem
	out, err := c.Output()
	if err != nil {
		t.Fatalf("listing what %s imports: %v\n%s", core, err, problem.Bytes())
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
}

// switches is the code that a core with switched mutants has besides.
const switches = `
import ("os"; "strconv")

var mutantNo = func() int {
	if n, err := strconv.Atoi(os.Getenv("MCASTLAB_MUTANT")); err == nil {
		return n
	}
	return -1
}()

func mutantPick[T any](k int, a, b T) T {
	if mutantNo == k {
		return b
	}
	return a
}
`

// check type-checks the core with one file's text replaced. It returns the first error.
func (p *pkg) check(name string, text []byte, info *types.Info) (*types.Package, error) {
	var files []*ast.File
	for _, s := range p.sources {
		f := s.file
		if s.name == name {
			var err error
			if f, err = parser.ParseFile(p.fset, name, text, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	if name != "" {
		f, err := parser.ParseFile(p.fset, "switches.go", "package "+path.Base(p.core)+switches, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	c := types.Config{Importer: p.imports}
	return c.Check("github.com/mcastlab/mcastlab/"+p.core, p.fset, files, info)
}

// typeName returns the type of a constant expression as the core's source would write it,
// or "" if it has none of its own.
func (p *pkg) typeName(e ast.Expr) string {
	t := p.info.Types[e].Type
	if t == nil {
		return ""
	}
	if b, ok := t.(*types.Basic); ok && b.Info()&types.IsUntyped != 0 {
		return ""
	}
	return types.TypeString(t, func(other *types.Package) string {
		if other == p.self {
			return ""
		}
		return other.Name()
	})
}

func (p *pkg) source(name string) *source {
	i := slices.IndexFunc(p.sources, func(s *source) bool { return s.name == name })
	return p.sources[i]
}

// plain returns the mutant's file with the change made.
func (p *pkg) plain(m *mutant) []byte {
	text := p.source(m.file).text
	return slices.Concat(text[:m.start], []byte(m.new), text[m.end:])
}

// valid reports whether the mutant compiles.
func (p *pkg) valid(m *mutant) bool {
	_, err := p.check(m.file, p.plain(m), nil)
	return err == nil
}

// switchable reports whether the mutant compiles behind its switch. Where the language wants
// a constant, or a type is out of the file's reach, it does not, and gets a build of its own.
func (p *pkg) switchable(m *mutant) bool {
	if m.switched == "" {
		return false
	}
	text := p.source(m.file).text
	_, err := p.check(m.file, slices.Concat(text[:m.from], fmt.Appendf(nil, m.switched, 0), text[m.to:]), nil)
	return err == nil
}
