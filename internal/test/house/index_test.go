// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const (
	indexPage       = "docs/README.md"
	clicksMax       = 2
	readmeWordsMax  = 700
	examplesReadme  = "examples/README.md"
	workflow        = ".github/workflows/ci.yml"
	gateOfWorkflow  = ".ci/run"
	testCommand     = "go test ./..."
	newcomerCommand = "go run ./cmd/mcastlab run"
)

// link matches the target of a link of Markdown, without its fragment.
var link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)\s]*)?\)`)

// linksOf returns the files and directories that a page links to, as paths of the tree.
func linksOf(t *testing.T, page string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "```") {
		if i%2 == 1 {
			continue // a block of code
		}
		for _, m := range link.FindAllStringSubmatch(part, -1) {
			if !strings.Contains(m[1], ":") {
				all = append(all, path.Join(path.Dir(page), m[1]))
			}
		}
	}
	return all
}

// pagesBelow returns the Markdown files below a directory.
func pagesBelow(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (slices.Contains([]string{"testdata", "runs", "dist", "bin"}, d.Name()) || strings.HasPrefix(d.Name(), ".") && name != ".") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(name, ".md") {
			all = append(all, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestIndex: docs/README.md reaches every page of docs/ in two clicks, and has its four parts.
func TestIndex(t *testing.T) {
	text, err := os.ReadFile(indexPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Learn", "Do", "Look up", "Understand"} {
		if !strings.Contains(string(text), "\n## "+part+"\n") {
			t.Errorf("%s has no part %q", indexPage, part)
		}
	}
	reached, last := map[string]bool{indexPage: true}, []string{indexPage}
	for range clicksMax {
		var next []string
		for _, page := range last {
			for _, to := range linksOf(t, page) {
				if strings.HasSuffix(to, ".md") && strings.HasPrefix(to, "docs/") && !reached[to] {
					reached[to], next = true, append(next, to)
				}
			}
		}
		last = next
	}
	for _, page := range pagesBelow(t, "docs") {
		if !reached[page] {
			t.Errorf("%s cannot be reached from %s in %d clicks: link it there", page, indexPage, clicksMax)
		}
	}
}

// TestLinks: what a page of the tree links to exists.
func TestLinks(t *testing.T) {
	for _, page := range pagesBelow(t, ".") {
		for _, to := range linksOf(t, page) {
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, to)
			}
		}
	}
}

// TestReadmeShort: the README is short, and has the commands that the gate runs as a new user.
func TestReadmeShort(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > readmeWordsMax {
		t.Errorf("README.md has %d words, at most %d: move text to a page of docs/", n, readmeWordsMax)
	}
	stages, err := os.ReadFile(".ci/stages.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{testCommand, newcomerCommand} {
		if !strings.Contains(string(text), command) || !strings.Contains(string(stages), command) {
			t.Errorf("%q is not in both README.md and .ci/stages.sh, which runs the README's commands", command)
		}
	}
}

// TestReadmeFacts: the version of Go and the count of results that the README states are those of go.mod and of the page of results.
func TestReadmeFacts(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	readme := read("README.md")
	version := regexp.MustCompile(`(?m)^go (([0-9]+\.[0-9]+)\.[0-9]+)$`).FindStringSubmatch(read("go.mod"))
	if version == nil {
		t.Fatal("go.mod has no version of Go")
	}
	results := regexp.MustCompile(`(?m)^([0-9]+) results: ([0-9]+) in band, ([0-9]+) off, explained, ([0-9]+) cannot be reproduced\.`).FindStringSubmatch(read("docs/ledgers/reproduction.md"))
	if results == nil {
		t.Fatal("docs/ledgers/reproduction.md does not count its results")
	}
	for _, want := range []string{
		"Go " + version[2] + " or later", "invalid go version '" + version[1] + "'",
		results[1] + " results of four papers", results[2] + " in band, " + results[3] + " off and explained, " + results[4] + " not reproducible",
	} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}

// TestExamplesListed: examples/README.md has a line for each lab, but for those of the papers, which the page of their results lists.
func TestExamplesListed(t *testing.T) {
	listed := map[string]bool{}
	for _, to := range linksOf(t, examplesReadme) {
		listed[to] = true
	}
	for _, pattern := range []string{"examples/*.mcl.yml", "examples/*/*.mcl.yml"} {
		labs, err := filepath.Glob(pattern)
		if err != nil || len(labs) == 0 {
			t.Fatalf("%d labs of %s (%v)", len(labs), pattern, err)
		}
		for _, lab := range labs {
			if lab = filepath.ToSlash(lab); !listed[lab] && !strings.HasPrefix(lab, "examples/papers/") {
				t.Errorf("%s does not list %s", examplesReadme, lab)
			}
		}
	}
}

// TestForms: the workflow runs the gate, and it and the forms of issues are YAML of the shape that GitHub reads.
func TestForms(t *testing.T) {
	read := func(name string, v any) {
		text, err := os.ReadFile(name)
		if err == nil {
			err = yaml.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	var w struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	read(workflow, &w)
	runs := false
	for _, name := range slices.Sorted(maps.Keys(w.Jobs)) {
		for _, s := range w.Jobs[name].Steps {
			runs = runs || s.Run == gateOfWorkflow
		}
	}
	if !runs {
		t.Errorf("%s does not run %s", workflow, gateOfWorkflow)
	}
	forms, err := filepath.Glob(".github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(forms) < 2 {
		t.Fatalf("%d forms (%v)", len(forms), err)
	}
	for _, form := range forms {
		if filepath.Base(form) == "config.yml" {
			continue
		}
		var f struct {
			Name, Description string
			Body              []struct {
				Type, ID   string
				Attributes struct{ Label string }
			}
		}
		read(form, &f)
		if f.Name == "" || f.Description == "" || len(f.Body) == 0 {
			t.Errorf("%s needs a name, a description and a body", form)
		}
		ids := map[string]bool{}
		for _, b := range f.Body {
			if b.ID == "" || ids[b.ID] || b.Type == "" || b.Attributes.Label == "" {
				t.Errorf("%s: an element needs a type, a label and an id of its own: %+v", form, b)
			}
			ids[b.ID] = true
		}
	}
}
