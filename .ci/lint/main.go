// SPDX-License-Identifier: Apache-2.0

// Lint is a tool for go vet -vettool: the analysers that .golangci.yml enables, with its settings. golangci-lint
// compiles some hundred linters; this compiles those that are used.
//
//	go vet -vettool=lint -golangci=/path/to/.golangci.yml ./...
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/golangci/misspell"
	"github.com/golangci/unconvert"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/kisielk/errcheck/errcheck"
	"github.com/sanposhiho/wastedassign/v2"
	"github.com/sashamelentyev/usestdlibvars/pkg/analyzer"
	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
	"honnef.co/go/tools/unused"
)

// settings is the part of .golangci.yml that this tool follows.
type settings struct {
	Linters struct {
		Enable   []string
		Settings struct {
			Depguard    struct{ Rules map[string]imports }
			Staticcheck struct{ Checks []string }
			Misspell    struct {
				Ignore []string `yaml:"ignore-rules"`
			}
			Errcheck struct {
				Exclude []string `yaml:"exclude-functions"`
			}
		}
		Exclusions struct {
			Rules []exclusion
		}
	}
}

// exclusion is a rule that takes findings of linters out in files whose path matches.
type exclusion struct {
	Path    string
	Linters []string
}

var file = flag.String("golangci", ".golangci.yml", "`file` of settings")

// read returns the settings; each process of go vet looks at one package and reads them once.
var read = sync.OnceValues(func() (*settings, error) {
	text, err := os.ReadFile(*file)
	if err != nil {
		return nil, err
	}
	s := &settings{}
	if err := yaml.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", *file, err)
	}
	return s, nil
})

// linters has the analysers of each linter under golangci-lint's name.
var linters = map[string][]*analysis.Analyzer{
	"depguard":      {{Name: "depguard", Doc: "packages that a file may import", Run: depguard}},
	"errcheck":      {{Name: "errcheckall", Doc: "errors that are not checked", Run: unchecked}},
	"errorlint":     {errorlint.NewAnalyzer()},
	"ineffassign":   {ineffassign.Analyzer},
	"misspell":      {{Name: "misspell", Doc: "common misspellings", Run: misspelled}},
	"nolintlint":    {{Name: "nolintlint", Doc: "nolint comments that are malformed or suppress nothing"}},
	"staticcheck":   all(staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers),
	"unconvert":     {{Name: "unconvert", Doc: "unnecessary conversions", Run: converted}},
	"unused":        {{Name: "unusedname", Doc: "what nothing uses", Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer}, Run: unusedName}},
	"usestdlibvars": {analyzer.New()},
	"wastedassign":  {wastedassign.Analyzer},
}

func all(lists ...[]*lint.Analyzer) []*analysis.Analyzer {
	var as []*analysis.Analyzer
	for _, a := range slices.Concat(lists...) {
		as = append(as, a.Analyzer)
	}
	return as
}

func main() {
	var as []*analysis.Analyzer
	last := linters["nolintlint"][0]
	for name, list := range linters {
		for _, a := range list {
			if a != last {
				filter(name, a)
				last.Requires = append(last.Requires, a)
				as = append(as, a)
			}
		}
	}
	last.Run = nolintlint
	slices.SortFunc(as, func(a, b *analysis.Analyzer) int { return cmp.Compare(a.Name, b.Name) })
	unitchecker.Main(append(as, last)...)
}

// report reports at a position that a library gave in place of a token.Pos.
func report(pass *analysis.Pass, file string, line int, text string) {
	for _, f := range pass.Files {
		if tf := pass.Fset.File(f.Pos()); tf.Name() == file && line <= tf.LineCount() {
			pass.Report(analysis.Diagnostic{Pos: tf.LineStart(line), Message: text})
			return
		}
	}
}

func unchecked(pass *analysis.Pass) (any, error) {
	s, err := read()
	if err != nil {
		return nil, err
	}
	c := errcheck.Checker{Exclusions: errcheck.Exclusions{
		BlankAssignments: true, TypeAssertions: true, SymbolRegexpsByPackage: map[string]*regexp.Regexp{},
		Symbols: slices.Concat(errcheck.DefaultExcludedSymbols, s.Linters.Settings.Errcheck.Exclude),
	}}
	found := c.CheckPackage(&packages.Package{Fset: pass.Fset, Syntax: pass.Files, Types: pass.Pkg, TypesInfo: pass.TypesInfo})
	for _, e := range found.Unique().UncheckedErrors {
		report(pass, e.Pos.Filename, e.Pos.Line, "error return value of "+cmp.Or(e.SelectorName, e.FuncName, "the call")+" is not checked")
	}
	return nil, nil
}

func misspelled(pass *analysis.Pass) (any, error) {
	s, err := read()
	if err != nil {
		return nil, err
	}
	r := &misspell.Replacer{Replacements: slices.Clone(misspell.DictMain)}
	r.RemoveRule(s.Linters.Settings.Misspell.Ignore)
	r.Compile()
	for _, f := range pass.Files {
		name := pass.Fset.File(f.Pos()).Name()
		text, err := pass.ReadFile(name)
		if err != nil {
			return nil, err
		}
		_, diffs := r.Replace(string(text))
		for _, d := range diffs {
			report(pass, name, d.Line, fmt.Sprintf("%q is a misspelling of %q", d.Original, d.Corrected))
		}
	}
	return nil, nil
}

func converted(pass *analysis.Pass) (any, error) {
	for _, p := range unconvert.Run(pass) {
		report(pass, p.Filename, p.Line, "unnecessary conversion")
	}
	return nil, nil
}

// unusedName reports names that nothing in the package uses: go vet checks a package with its tests, so that names
// that only they use are used.
func unusedName(pass *analysis.Pass) (any, error) {
	res, ok := pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result)
	if !ok {
		return nil, fmt.Errorf("unused gave %T", pass.ResultOf[unused.Analyzer.Analyzer])
	}
	used := map[string]bool{}
	key := func(o unused.Object) string { return fmt.Sprint(o.Position.Filename, o.Position.Line, o.Name) }
	for _, o := range res.Used {
		used[key(o)] = true
	}
	for _, o := range res.Unused {
		if o.Kind != "type param" && !used[key(o)] {
			report(pass, o.Position.Filename, o.Position.Line, o.Kind+" "+o.Name+" is unused")
		}
	}
	return nil, nil
}
