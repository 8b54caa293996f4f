// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// suppressed has the nolint comments of this package that a finding has met: file:line:linter.
var suppressed = map[string]bool{}

// directive matches a comment that suppresses findings of linters, on its line or in the declaration
// that begins there.
var directive = regexp.MustCompile(`^//nolint:([a-z,]+) // .+`)

// filter has an analyser report only the findings that the settings ask for: of enabled linters and checks, in files
// that are not generated, where no rule and no nolint comment excludes it.
func filter(linter string, a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		s, err := read()
		if err != nil {
			return nil, err
		}
		p := *pass
		p.Report = func(d analysis.Diagnostic) {
			check := a.Name
			if d.Category != "" && linter == "staticcheck" {
				check = d.Category
			}
			if s.wants(linter, check) && !excluded(pass, s, linter, d.Pos) {
				d.Message = fmt.Sprintf("%s (%s)", d.Message, strings.Join(slices.Compact([]string{linter, check}), " "))
				pass.Report(d)
			}
		}
		return run(&p)
	}
}

// wants reports whether a linter is enabled and, of staticcheck, a check: the last pattern that matches decides.
func (s *settings) wants(linter, check string) bool {
	wants := slices.Contains(s.Linters.Enable, linter)
	if linter != "staticcheck" || !wants {
		return wants
	}
	wants = false
	for _, c := range s.Linters.Settings.Staticcheck.Checks {
		name, not := strings.CutPrefix(c, "-")
		prefix, many := strings.CutSuffix(name, "*")
		if name == "all" || name == check || many && strings.HasPrefix(check, prefix) {
			wants = !not
		}
	}
	return wants
}

func excluded(pass *analysis.Pass, s *settings, linter string, pos token.Pos) bool {
	at := pass.Fset.Position(pos)
	for _, f := range pass.Files {
		if pass.Fset.File(f.Pos()).Name() != at.Filename {
			continue
		}
		if ast.IsGenerated(f) {
			return true
		}
		for line, names := range directives(pass.Fset, f) {
			from, to := covers(pass.Fset, f, line)
			if slices.Contains(names, linter) && from <= at.Line && at.Line <= to {
				suppressed[fmt.Sprint(at.Filename, line, linter)] = true
				return true
			}
		}
	}
	return slices.ContainsFunc(s.Linters.Exclusions.Rules, func(rule exclusion) bool {
		return slices.Contains(rule.Linters, linter) && regexp.MustCompile(rule.Path).MatchString(filepath.ToSlash(at.Filename))
	})
}

// directives returns the linters that nolint comments of a file name, by line.
func directives(fset *token.FileSet, f *ast.File) map[int][]string {
	found := map[int][]string{}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if m := directive.FindStringSubmatch(c.Text); m != nil {
				found[fset.Position(c.Pos()).Line] = strings.Split(m[1], ",")
			}
		}
	}
	return found
}

// covers returns the lines that a nolint comment stands for: its own, and those of the declaration or statement
// that begins there.
func covers(fset *token.FileSet, f *ast.File, line int) (from, to int) {
	to = line
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil || n == f {
			return n == f
		}
		if fset.Position(n.Pos()).Line == line {
			to = max(to, fset.Position(n.End()).Line)
		}
		return true
	})
	return line, to
}

// nolintlint runs after the others and reports nolint comments that are malformed or have suppressed nothing.
func nolintlint(pass *analysis.Pass) (any, error) {
	s, err := read()
	if err != nil {
		return nil, err
	}
	for _, f := range pass.Files {
		name := pass.Fset.File(f.Pos()).Name()
		for _, g := range f.Comments {
			for _, c := range g.List {
				if strings.HasPrefix(strings.TrimLeft(c.Text, "/ "), "nolint") && strings.HasPrefix(c.Text, "//") && !directive.MatchString(c.Text) {
					pass.Reportf(c.Pos(), "write //nolint:LINTER // REASON (nolintlint)")
				}
			}
		}
		for line, linters := range directives(pass.Fset, f) {
			for _, linter := range linters {
				if slices.Contains(s.Linters.Enable, linter) && !suppressed[fmt.Sprint(name, line, linter)] {
					report(pass, name, line, "the comment suppresses nothing of "+linter+" (nolintlint)")
				}
			}
		}
	}
	return nil, nil
}
