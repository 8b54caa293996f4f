// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/mcastlab/mcastlab/"

// imports lists the packages of the module that a package may import: downward only.
var imports = map[string][]string{
	"core/wire":                          {},
	"core/vtime":                         {},
	"core/prng":                          {},
	"core/machine":                       {"core/machine/queue", "core/vtime", "core/wire"},
	"core/machine/queue":                 {"core/vtime"},
	"drivers/machinetest":                {"faults", "core/machine", "core/vtime", "core/wire", "internal/test/golden"},
	"core/topo":                          {"core/vtime", "core/wire"},
	"virtswitch":                         {"core/machine", "core/machine/queue", "core/prng", "core/vtime", "core/wire"},
	"virtrnic":                           {"core/machine", "core/machine/queue", "core/prng", "core/vtime", "core/wire"},
	"core/mrp":                           {"core/vtime", "core/wire"},
	"core/cm":                            {"core/prng", "core/vtime", "core/wire"},
	"core/igmp":                          {"core/vtime", "core/wire"},
	"internal/external":                  {"core/machine", "core/mrp", "virtrnic", "core/vtime", "core/wire"},
	"drivers/fabric":                     {"core/machine", "core/prng", "core/topo", "virtrnic", "virtswitch", "core/vtime", "core/wire"},
	"faults":                             {"core/strictjson", "core/prng", "core/topo", "core/vtime", "core/wire"},
	"internal/checksum":                  {},
	"traces":                             {"internal/checksum", "core/machine", "core/machine/queue", "core/vtime", "core/wire"},
	"traces/explain":                     {"internal/checksum", "traces", "core/wire"},
	"rank/outofband":                     {"core/wire"},
	"rank/rankhost":                      {"core/mrp", "core/prng", "virtrnic", "core/vtime", "core/wire"},
	"rank/rankrun":                       {"rank/rankhost", "rank", "core/vtime", "core/wire"},
	"rank":                               {"rank/rankhost", "core/machine", "core/mrp", "core/prng", "virtrnic", "core/vtime", "core/wire"},
	"rank/collective/fallback":           {"rank/rankhost", "rank/rankrun", "rank", "core/vtime", "core/wire"},
	"rank/collective":                    {"rank/collective/fallback", "rank/rankhost", "rank/rankrun", "rank", "core/vtime"},
	"apps/setting":                       {"rank/collective", "faults", "rank/rankhost", "core/topo", "core/vtime"},
	"apps":                               {"rank/collective", "rank/rankhost", "rank/rankrun", "apps/setting", "core/prng", "rank", "core/topo", "core/vtime", "core/wire"},
	"apps/program":                       {"apps", "rank/rankhost", "rank/rankrun", "apps/setting", "rank", "core/topo"},
	"apps/bcast":                         {"apps", "rank/collective", "rank/rankhost", "rank/rankrun", "apps/setting", "rank", "core/topo", "core/vtime", "core/wire"},
	"apps/allgather":                     {"apps", "rank/collective", "apps/setting", "core/prng", "rank", "core/topo"},
	"apps/alltoall":                      {"apps", "rank/collective", "apps/setting", "core/prng", "rank", "core/topo"},
	"apps/reducescatter":                 {"apps", "rank/collective", "apps/setting", "core/prng", "rank", "core/topo"},
	"apps/flows":                         {"apps", "apps/setting", "core/prng", "rank", "core/topo", "core/vtime"},
	"apps/fsdp":                          {"apps", "apps/allgather", "apps/reducescatter", "rank/collective", "rank/rankrun", "apps/setting", "core/prng", "rank", "core/topo", "core/vtime"},
	"apps/hpl":                           {"apps", "rank/collective", "rank/rankrun", "apps/setting", "rank", "core/topo", "core/vtime"},
	"apps/manycast":                      {"apps", "faults", "rank/rankrun", "apps/setting", "core/prng", "rank", "core/topo", "core/vtime", "core/wire"},
	"apps/storage":                       {"apps", "rank/rankrun", "apps/setting", "core/prng", "rank", "core/topo", "core/vtime"},
	"apps/command":                       {"apps", "apps/setting", "rank", "core/topo", "core/vtime"},
	"apps/registry":                      {"apps", "apps/allgather", "apps/alltoall", "apps/bcast", "apps/command", "apps/flows", "apps/fsdp", "apps/hpl", "apps/manycast", "apps/program", "apps/reducescatter", "apps/storage", "apps/setting", "rank"},
	"apps/storage/pebblestore":           {"apps/storage"},
	"lab/labhook":                        {},
	"lab":                                {"apps", "apps/registry", "drivers/fabric", "faults", "lab/labhook", "rank/rankhost", "apps/setting", "core/topo", "virtrnic", "virtswitch", "core/vtime", "core/wire"},
	"lab/labspec":                        {"apps", "drivers/fabric", "faults", "lab/labhook", "rank/rankhost", "core/strictjson", "lab", "core/topo", "virtrnic", "virtswitch", "core/vtime", "core/wire"},
	"drivers/sim":                        {"core/machine/queue", "drivers/window", "drivers/fabric", "faults", "rank/rankhost", "rank/rankrun", "core/machine", "core/mrp", "core/prng", "rank", "rank/outofband", "core/topo", "virtrnic", "virtswitch", "core/vtime", "core/wire"},
	"drivers/window":                     {"faults", "rank/rankhost", "rank/outofband", "core/vtime", "core/wire"},
	"drivers/crew":                       {},
	"drivers/lockstep":                   {"drivers/sim", "drivers/window", "rank/outofband", "core/vtime", "core/wire"},
	"drivers/live":                       {"rank/rankhost", "faults", "core/machine", "core/machine/queue", "core/mrp", "virtrnic", "core/vtime", "core/wire"},
	"drivers/netdev":                     {},
	"internal/heap":                      {},
	"internal/httpserve":                 {},
	"internal/benchpage":                 {},
	"internal/pgo":                       {},
	"internal/failpoint":                 {},
	"internal/test/golden":               {},
	"internal/test/patch":                {},
	"internal/test/sweeps":               {},
	"internal/test/simlab":               {"apps/manycast", "core/prng", "core/topo", "core/vtime", "core/wire", "drivers/fabric", "faults", "rank/rankhost", "internal/test/sweeps", "rank", "virtrnic", "virtswitch"},
	"internal/counters":                  {"internal/external", "core/mrp", "core/topo", "virtrnic", "virtswitch", "core/wire"},
	"internal/nodeapi":                   {"internal/counters", "core/machine", "core/vtime", "core/wire"},
	"nodeagent":                          {"drivers/lockstep", "nodeagent/verbs", "drivers/sim", "rank/outofband", "internal/external", "apps", "apps/command", "apps/registry", "internal/nodeapi", "internal/controller", "internal/controller/replica", "internal/counters", "internal/failpoint", "faults", "lab/labspec", "rank/rankhost", "rank/rankrun", "lab", "drivers/live", "core/machine", "core/mrp", "core/prng", "rank", "apps/storage/pebblestore", "core/topo", "traces", "virtrnic", "virtswitch", "core/vtime", "core/wire", "internal/httpserve"},
	"nodeagent/verbs":                    {"core/cm", "core/igmp", "core/machine", "core/mrp", "virtrnic", "core/vtime", "core/wire"},
	"orchestrator":                       {"apps", "apps/bcast", "core/topo", "core/vtime", "core/wire", "drivers/live", "drivers/lockstep", "drivers/netdev", "drivers/sim", "faults", "internal/checksum", "internal/controller", "internal/controller/client", "internal/counters", "internal/failpoint", "internal/nodeapi", "internal/shareapi", "internal/trunk", "lab", "lab/labspec", "lab/runner", "orchestrator/engine", "rank", "traces"},
	"orchestrator/multihost":             {"core/topo", "core/wire", "drivers/live", "drivers/lockstep", "drivers/netdev", "drivers/sim", "internal/checksum", "internal/controller", "internal/controller/client", "internal/counters", "internal/nodeapi", "internal/shareapi", "internal/trunk", "lab", "lab/labspec", "lab/runner", "orchestrator", "orchestrator/engine", "orchestrator/multihost/place"},
	"orchestrator/programs":              {"apps", "core/topo", "core/wire", "internal/nodeapi", "internal/shareapi", "lab", "orchestrator", "orchestrator/engine"},
	"orchestrator/dilated":               {"apps", "apps/registry", "core/topo", "core/vtime", "core/wire", "drivers/live", "faults", "internal/counters", "internal/external", "internal/nodeapi", "lab", "lab/labspec", "lab/runner", "orchestrator", "rank/outofband", "rank/rankhost", "traces", "virtswitch"},
	"orchestrator/lockstep":              {"apps", "core/topo", "core/vtime", "core/wire", "drivers/lockstep", "drivers/sim", "drivers/window", "faults", "internal/controller", "internal/counters", "internal/nodeapi", "lab/labspec", "lab/runner", "orchestrator", "orchestrator/engine", "rank/outofband", "rank/rankhost"},
	"internal/controller":                {"core/strictjson"},
	"core/strictjson":                    {},
	"internal/controller/client":         {"internal/nodeapi", "internal/controller"},
	"internal/controller/controllertest": {"internal/controller", "internal/controller/client", "core/prng"},
	"internal/controller/replica":        {"internal/nodeapi", "internal/controller"},
	"orchestrator/multihost/trust":       {},
	"internal/shareapi":                  {"internal/nodeapi", "internal/trunk"},
	"internal/trunk":                     {},
	"orchestrator/multihost/place":       {"core/topo", "orchestrator/engine"},
	"orchestrator/multihost/daemon":      {"orchestrator/multihost/trust", "internal/nodeapi", "internal/shareapi"},
	"orchestrator/multihost/hosts":       {"internal/checksum", "internal/failpoint", "orchestrator/multihost/daemon", "orchestrator/multihost/trust", "internal/shareapi", "orchestrator/engine", "orchestrator/engine/docker"},
	"orchestrator/engine":                {"internal/shareapi"},
	"orchestrator/engine/process":        {"internal/failpoint", "orchestrator/engine"},
	"orchestrator/engine/docker":         {"internal/failpoint", "orchestrator/engine"},
	"lab/runner":                         {"apps", "apps/flows", "apps/registry", "rank/collective", "internal/checksum", "internal/counters", "internal/heap", "drivers/fabric", "faults", "lab/labspec", "internal/plot", "rank/rankhost", "lab", "core/machine", "core/prng", "rank", "drivers/crew", "drivers/sim", "apps/setting", "apps/storage/pebblestore", "core/topo", "traces", "core/vtime", "core/wire"},
	"lab/search":                         {"apps", "apps/bcast", "apps/registry", "rank/collective", "faults", "lab/labspec", "rank/rankhost", "lab", "core/prng", "rank", "lab/runner", "drivers/sim", "core/topo", "core/vtime"},
	"lab/reproduce":                      {"apps", "core/topo", "core/wire", "examples/papers", "internal/plot", "lab", "lab/batch", "lab/runner", "lab/sweep", "virtswitch"},
	"lab/batch":                          {"internal/checksum", "lab", "lab/runner"},
	"lab/sweep":                          {"core/prng", "internal/plot", "lab", "lab/batch", "lab/runner"},
	"internal/plot":                      {},
	"lab/report":                         {"apps", "core/topo", "core/vtime", "core/wire", "faults", "internal/checksum", "internal/counters", "lab/labspec", "internal/plot", "lab", "lab/runner", "traces", "traces/explain"},
	"lab/watch":                          {"core/topo", "core/wire", "internal/counters", "lab/report", "lab/runner", "internal/httpserve"},
	"examples":                           {},
	"examples/papers":                    {},
	"lab/examples":                       {"apps/setting", "examples", "lab"},
	"drivers/endpoint":                   {"drivers/live", "core/machine", "drivers/netdev", "core/prng", "virtrnic", "core/vtime", "core/wire"},
	"internal/test/interop/rcpeer":       {},
	"command":                            {"apps", "apps/bcast", "apps/program", "apps/setting", "core/prng", "core/topo", "core/wire", "drivers/endpoint", "faults", "internal/controller/client", "internal/counters", "orchestrator/multihost/daemon", "internal/httpserve", "internal/nodeapi", "lab", "lab/batch", "lab/examples", "lab/labspec", "lab/report", "lab/reproduce", "lab/runner", "lab/search", "lab/sweep", "lab/watch", "nodeagent", "orchestrator", "orchestrator/dilated", "orchestrator/engine", "orchestrator/engine/docker", "orchestrator/engine/process", "orchestrator/multihost/hosts", "orchestrator/lockstep", "orchestrator/multihost", "orchestrator/programs", "rank", "traces/explain"},
	"cmd/mcastlab":                       {"command"},
	"internal/release":                   {},
	"examples/late-receive":              {"command", "rank"},
	"examples/ring-sum":                  {"command", "rank"},
	"examples/two-level":                 {"command", "rank"},
}

// pure are the packages that touch no clock, socket, file, goroutine, lock or global random numbers:
// the cores, and the packages that run with them on the event clock.
var pure = []string{
	"core/wire", "core/vtime", "core/prng", "core/machine", "core/machine/queue", "core/topo", "virtswitch", "virtrnic", "core/cm", "core/igmp", "core/mrp", "internal/external", "drivers/fabric", "faults", "rank/rankhost", "rank/rankrun", "rank", "rank/outofband", "drivers/window",
	"rank/collective", "rank/collective/fallback", "apps/setting", "apps", "apps/allgather", "apps/bcast", "apps/command", "apps/flows", "apps/fsdp", "apps/hpl", "apps/manycast", "apps/program", "apps/reducescatter", "apps/storage", "drivers/sim",
}

// banned are standard packages that pure packages must not import, and why.
var banned = map[string]string{
	"time": "lab time is vtime", "os": "cores do no I/O", "net": "net/netip is enough for addresses", "sync": "one goroutine owns a core",
	"log": "report by events", "math/rand": "draw from prng", "math/rand/v2": "draw from prng", "context": "the driver decides when to stop",
	"runtime": "cores do not know where they run",
}

// exempt are places that a rule does not fit, each with its reason.
var exempt = map[string]string{
	"core/prng imports math/rand/v2":      "it wraps the PCG generator in it",
	"internal/test/golden var rewrite":    "it is a flag of tests",
	"drivers/machinetest var transcripts": "it is a flag of tests",
	"rank init":                           "it hands rank/rankrun what programs of users must not see",
	"rank/rankhost var Hooks":             "package rank sets it before main begins, and nothing changes it later",
	"lab init":                            "as rank init, for lab/labspec",
	"lab/labhook var Inside":              "package lab sets it before main begins, and nothing changes it later",
	"examples var Files":                  "go:embed needs a variable",
	"examples/papers var Labs":            "go:embed needs a variable",
	"lab/reproduce var files":             "go:embed needs a variable",
	"lab/watch var files":                 "go:embed needs a variable",
	"internal/failpoint var hits":         "it is in builds for tests only",
	"internal/test/simlab var fromSeed":   "it is a flag of tests",
}

// isPure reports whether a package is pure: programs of workloads are, listed or not.
func isPure(dir string) bool {
	return slices.Contains(pure, dir) || strings.HasPrefix(dir, "apps/") && dir != "apps/registry" && dir != "apps/storage/pebblestore"
}

// Limits of size.
const (
	fileLinesMax     = 600
	functionLinesMax = 70
	lineColumnsMax   = 170
)

// source is one parsed Go file.
type source struct {
	path, dir string
	text      []byte
	file      *ast.File
	test      bool
}

// parsed has the files of the module once a test has asked for them: a dozen do, and none changes them.
var parsed struct {
	fset *token.FileSet
	all  []source
}

// sources returns the Go files of the module, but generated ones.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	if parsed.fset != nil {
		return parsed.fset, parsed.all
	}
	fset := token.NewFileSet()
	var all []source
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata" || path == "runs") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(f) {
			return nil
		}
		dir := filepath.ToSlash(filepath.Dir(path))
		all = append(all, source{path, dir, text, f, strings.HasSuffix(path, "_test.go")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	parsed.fset, parsed.all = fset, all
	return fset, all
}

// TestImports: imports go downward, pure packages stay pure, and the table has no import that no file has.
func TestImports(t *testing.T) {
	_, all := sources(t)
	used := map[[2]string]bool{} // a package, and one that it imports
	for _, s := range all {
		if s.test {
			continue
		}
		allowed, known := imports[s.dir]
		if !known {
			t.Errorf("%s: package %s is not in the import table of style_test.go: add it, with what it may import", s.path, s.dir)
			continue
		}
		for _, i := range s.file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			own, inside := strings.CutPrefix(path, module)
			used[[2]string{s.dir, own}] = true
			switch {
			case inside && !slices.Contains(allowed, own):
				t.Errorf("%s imports %s: %s may import only %v", s.path, own, s.dir, allowed)
			case !inside && isPure(s.dir) && banned[path] != "" && exempt[s.dir+" imports "+path] == "":
				t.Errorf("%s imports %s: %s", s.path, path, banned[path])
			case !inside && s.dir == "core/wire" && strings.Contains(path, "."):
				t.Errorf("%s imports %s: wire uses the standard library only", s.path, path)
			}
		}
	}
	for dir, allowed := range imports {
		for _, own := range allowed {
			if !used[[2]string{dir, own}] {
				t.Errorf("the import table of style_test.go lets %s import %s, which it does not: delete it", dir, own)
			}
		}
	}
}

// TestFormat: the licence, gofmt, lengths of files, functions and lines.
func TestFormat(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		if out, err := format.Source(s.text); err != nil || !bytes.Equal(out, s.text) {
			t.Errorf("%s is not formatted: run gofmt -w", s.path)
		}
		lines := strings.Split(string(s.text), "\n")
		if lines[0] != "// SPDX-License-Identifier: Apache-2.0" && !strings.HasSuffix(s.path, ".pb.go") {
			t.Errorf("%s does not begin with the line of its licence: // SPDX-License-Identifier: Apache-2.0", s.path)
		}
		if len(lines) > fileLinesMax && !s.test {
			t.Errorf("%s has %d lines: split it by what it knows (at most %d)", s.path, len(lines), fileLinesMax)
		}
		for i, l := range lines {
			if n := len(strings.ReplaceAll(l, "\t", "    ")); n > lineColumnsMax && !s.test && !strings.Contains(l, "`") {
				t.Errorf("%s:%d has %d columns: break it (at most %d)", s.path, i+1, n, lineColumnsMax)
			}
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || s.test {
				continue
			}
			if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > functionLinesMax {
				t.Errorf("%s: %s has %d lines: give a part of it a name of its own (at most %d)", s.path, f.Name.Name, n, functionLinesMax)
			}
		}
	}
}

// TestDocs: every package has one package comment, every exported name a comment that
// begins with it.
func TestDocs(t *testing.T) {
	fset, all := sources(t)
	docs := map[string][]string{}
	for _, s := range all {
		if s.test {
			continue
		}
		if s.file.Doc != nil {
			docs[s.dir] = append(docs[s.dir], s.path)
		} else if docs[s.dir] == nil {
			docs[s.dir] = []string{}
		}
		for _, d := range s.file.Decls {
			for _, miss := range undocumented(d) {
				t.Errorf("%s: exported %s has no comment that begins with its name", fset.Position(d.Pos()), miss)
			}
		}
	}
	for dir, files := range docs { // independent of each other
		if len(files) != 1 {
			t.Errorf("package %s has %d package comments, it needs one: %v", dir, len(files), files)
		}
	}
}

// undocumented returns the exported names of a declaration that lack a comment.
func undocumented(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && exportedReceiver(d) && !begins(d.Doc, d.Name.Name) {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && !begins(s.Doc, s.Name.Name) && !begins(d.Doc, s.Name.Name) {
					names = append(names, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Names[0].IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, s.Names[0].Name)
				}
			}
		}
	}
	return names
}

func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	e := f.Recv.List[0].Type
	if p, ok := e.(*ast.StarExpr); ok {
		e = p.X
	}
	if g, ok := e.(*ast.IndexExpr); ok {
		e = g.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

func begins(c *ast.CommentGroup, name string) bool {
	if c == nil {
		return false
	}
	words := strings.Fields(c.Text())
	return len(words) > 0 && (words[0] == name || len(words) > 1 && words[1] == name)
}

// unasked are exported functions that return one bool and are no predicates.
var unasked = map[string]string{
	"apps/reducescatter Check": "it checks an exchange, and says in its result whether it did well",
}

// TestDocsOfPredicates: a function or method that returns exactly one bool reports
// whether something holds. Methods that implement an interface may leave that to it.
func TestDocsOfPredicates(t *testing.T) {
	fset, all := sources(t)
	check := func(s source, at token.Pos, name string, f *ast.FuncType, doc string) {
		if s.test || !ast.IsExported(name) || !oneBool(f) || unasked[s.dir+" "+name] != "" {
			return
		}
		doc = strings.Join(strings.Fields(doc), " ")
		if !strings.Contains(doc, "reports whether") && !strings.HasPrefix(doc, name+" implements ") {
			t.Errorf("%s: the comment of %s does not say what it reports: write \"%s reports whether\"", fset.Position(at), name, name)
		}
	}
	for _, s := range all {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && exportedReceiver(f) {
				check(s, f.Pos(), f.Name.Name, f.Type, f.Doc.Text())
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					if f, ok := m.Type.(*ast.FuncType); ok && len(m.Names) > 0 {
						check(s, m.Pos(), m.Names[0].Name, f, m.Doc.Text()+m.Comment.Text())
					}
				}
			}
			return true
		})
	}
}

// oneBool reports whether a function returns one bool and nothing else.
func oneBool(f *ast.FuncType) bool {
	if f.Results.NumFields() != 1 {
		return false
	}
	id, ok := f.Results.List[0].Type.(*ast.Ident)
	return ok && id.Name == "bool"
}
