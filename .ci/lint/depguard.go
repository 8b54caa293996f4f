// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// imports is a rule of depguard: the imports that it allows in matching files.
type imports struct {
	Files []string
	Deny  []struct{ Pkg, Desc string }
	Mode  string `yaml:"list-mode"`
	Allow []string
}

// depguard holds the imports of files to the rules. Of the library's language it has the parts that the settings use:
// globs with
// ** and *, "!" before one that takes files out, prefixes of import paths, and $gostd for the standard library.
func depguard(pass *analysis.Pass) (any, error) {
	s, err := read()
	if err != nil {
		return nil, err
	}
	for _, f := range pass.Files {
		path := filepath.ToSlash(pass.Fset.File(f.Pos()).Name())
		if wd, err := os.Getwd(); err == nil && !filepath.IsAbs(path) {
			path = filepath.ToSlash(filepath.Join(wd, path))
		}
		for name, rule := range s.Linters.Settings.Depguard.Rules {
			if !rule.applies(path) {
				continue
			}
			for _, i := range f.Imports {
				pkg, err := strconv.Unquote(i.Path.Value)
				if err != nil {
					return nil, err
				}
				if why, ok := rule.forbids(pkg); ok {
					pass.Reportf(i.Pos(), "import of %s is not allowed by rule %s: %s", pkg, name, why)
				}
			}
		}
	}
	return nil, nil
}

func (r imports) applies(path string) bool {
	applies := false
	for _, glob := range r.Files {
		glob, not := strings.CutPrefix(glob, "!")
		re := regexp.QuoteMeta(glob)
		re = strings.NewReplacer(`\*\*/`, `(.*/)?`, `\*`, `[^/]*`).Replace(re)
		if regexp.MustCompile("^" + re + "$").MatchString(path) {
			if not {
				return false
			}
			applies = true
		}
	}
	return applies
}

func (r imports) forbids(pkg string) (why string, ok bool) {
	for _, d := range r.Deny {
		if pkg == d.Pkg || strings.HasPrefix(pkg, d.Pkg+"/") {
			return d.Desc, true
		}
	}
	if r.Mode != "strict" {
		return "", false
	}
	allowed := slices.ContainsFunc(r.Allow, func(a string) bool {
		first, _, _ := strings.Cut(pkg, "/")
		return pkg == a || strings.HasPrefix(pkg, a+"/") || a == "$gostd" && !strings.Contains(first, ".")
	})
	return fmt.Sprintf("only %s", strings.Join(r.Allow, ", ")), !allowed
}
