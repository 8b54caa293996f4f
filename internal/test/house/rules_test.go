// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rule is an entry of docs/ledgers/rules.
type rule struct {
	page   string
	text   string
	absent bool // says that it is not built or not reproduced
	marked bool // says so, or that there is nothing to build
}

var (
	ruleHeading = regexp.MustCompile(`^### ([A-Z]+-[CGYA]?[0-9]+|[DM][0-9]+): \S`)
	// ruleSource matches the beginning of a rule's text: its source in italics, which is a paper with a
	// section, figure, table, algorithm, listing or appendix, or another named work.
	ruleSource = regexp.MustCompile(`^\*(Ours\b|Amdahl's law|HPL's documentation|IEEE [0-9]|InfiniBand specification|Behrens et al\.|` +
		`(Cepheus|Gleam|Zhou et al\.|Khalilov et al\.)(, which|, abstract| (abstract|§|Fig\.|Table|algorithm|listing|appendix)))[^*]*\.\*`)
	ruleID = regexp.MustCompile(`\b(?:(?:CEP|GLE|CYC|AG|BAS|GEN|APP|FLT|CON|F)-[0-9]+|R-[CGYA][0-9]+)\b|\bpromises? [DM][0-9]+\b`)
	// ruleRange is two ids with all between them.
	ruleRange = regexp.MustCompile(`\b([A-Z]+-[CGYA]?)([0-9]+)(?: to |\.\.)([A-Z]+-[CGYA]?)([0-9]+)\b`)
	// ruleLike matches an id that looks like a rule of an unknown family. Single letters are
	// arithmetic: N-1.
	ruleLike = regexp.MustCompile(`\b([A-Z]{2,})-[A-Z]?[0-9]+\b`)
	rulePath = regexp.MustCompile("`([a-z]+/[a-z0-9/_.-]+\\.(?:go|yml))`|\\]\\((?:#|([^)#]+))")
	// heldBy is the test that holds a rule of conflicts, and its file.
	heldBy   = regexp.MustCompile("Held by `(Test[A-Za-z0-9]+)` \\(`([a-z/0-9_]+_test\\.go)`\\)\\.$")
	pageName = regexp.MustCompile(`\b(?:docs|papers)/[A-Za-z0-9/_-]+\.md\b`)
	newLine  = regexp.MustCompile(`\n[ \t]*(//|#)?[ \t]*`)
)

// notRules are prefixes of words that look like rules and are none.
var notRules = []string{"CRC", "CVE", "III", "MTU", "NB", "SHA", "UTF"}

// readRules reads docs/ledgers/rules.
func readRules(t *testing.T) map[string]rule {
	t.Helper()
	pages, err := filepath.Glob("docs/ledgers/rules/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs/ledgers/rules has no pages (%v)", err)
	}
	rules := map[string]rule{}
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rulePath.FindAllStringSubmatch(string(text), -1) {
			path := m[1]
			if path == "" {
				path = filepath.Join("docs/ledgers/rules", m[2])
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s refers to %s, which there is not", name, path)
			}
		}
		for _, part := range strings.Split(string(text), "\n### ")[1:] {
			head, body, _ := strings.Cut("### "+part, "\n")
			m := ruleHeading.FindStringSubmatch(head)
			if m == nil {
				t.Errorf("%s: %q is no heading of a rule: write ### ID: title", name, head)
				continue
			}
			body, _, _ = strings.Cut(strings.TrimSpace(body), "\n## ")
			body = strings.Join(strings.Fields(body), " ")
			if !ruleSource.MatchString(body) {
				t.Errorf("%s: %s does not begin with its source in italics: *Cepheus §III-D.*", name, m[1])
			}
			if r, twice := rules[m[1]]; twice {
				t.Errorf("%s defines %s, which %s does too", name, m[1], r.page)
			}
			r := rule{page: name, text: body}
			r.absent = strings.Contains(body, "Not built: ") || strings.Contains(body, "Not reproduced: ")
			r.marked = r.absent || strings.Contains(body, "Nothing to build")
			rules[m[1]] = r
		}
	}
	return rules
}

// cited returns the ids that text cites. Comments are joined first, since an id may be at a
// line's end.
func cited(text string) (ids []string) {
	text = newLine.ReplaceAllString(text, " ")
	for _, id := range ruleID.FindAllString(text, -1) {
		ids = append(ids, strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(id, "promise"), "s ")))
	}
	for _, m := range ruleRange.FindAllStringSubmatch(text, -1) {
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[4])
		if m[1] != m[3] || !ruleID.MatchString(m[0]) {
			continue
		}
		for i := from + 1; i < to; i++ {
			ids = append(ids, m[1]+strconv.Itoa(i))
		}
	}
	return ids
}

// TestRules: every rule that code, tests, examples and pages cite is defined in docs/ledgers/rules,
// with its source; every rule there is cited, or says that it is not built; and every page
// that is referred to exists.
func TestRules(t *testing.T) {
	rules := readRules(t)
	where := map[string]string{} // a file that cites a rule
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata" || path == "runs" {
				return filepath.SkipDir
			}
			return nil
		case !slices.Contains([]string{".go", ".md", ".yml", ".sh", ".py"}, filepath.Ext(path)) || path == "internal/test/house/rules_test.go" || path == "CONTRIBUTING.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, page := range pageName.FindAllString(string(text), -1) {
			if _, err := os.Stat(page); err != nil {
				t.Errorf("%s refers to %s, which there is not", path, page)
			}
		}
		own := filepath.Dir(path) == filepath.Join("docs", "ledgers", "rules")
		for _, m := range ruleLike.FindAllStringSubmatch(string(text), -1) {
			if !ruleID.MatchString(m[0]) && !slices.Contains(notRules, m[1]) {
				t.Errorf("%s: %s looks like a rule of a family that there is not; if it is none, enter it in notRules", path, m[0])
			}
		}
		for _, id := range cited(string(text)) {
			r, ok := rules[id]
			switch {
			case !ok:
				t.Errorf("%s cites %s, which docs/ledgers/rules does not define", path, id)
			case own:
			case filepath.Dir(path) == filepath.Join("lab", "reproduce", "results"): // which has also those that cannot be had
				if !r.absent {
					where[id] = path
				}
			case r.absent && filepath.Ext(path) != ".md":
				t.Errorf("%s cites %s, of which %s says that there is nothing", path, id, r.page)
			default:
				where[id] = path
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range slices.Sorted(maps.Keys(rules)) {
		if where[id] == "" && !rules[id].marked {
			t.Errorf("nothing cites %s: cite it where it is implemented or tested, or say in %s that it is not built", id, rules[id].page)
		}
	}
	if len(rules) < 200 {
		t.Errorf("docs/ledgers/rules has %d rules: the headings are not read", len(rules))
	}
}

// TestConflicts: each place where papers differ names the test of the chosen rule, in a file that has the test and
// cites the conflict in its comment; or that there is nothing to build, and where there are numbers, the result
// that has them.
func TestConflicts(t *testing.T) {
	held := 0
	for id, r := range readRules(t) { // independent of each other
		if !strings.HasPrefix(id, "CON-") {
			continue
		}
		m := heldBy.FindStringSubmatch(r.text)
		if m == nil {
			if !r.marked {
				t.Errorf("%s ends neither with the test that holds it nor with why there is nothing to build: Held by `TestX` (`path/x_test.go`).", id)
			}
			continue
		}
		held++
		text, err := os.ReadFile(m[2])
		if err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		comment := regexp.MustCompile(`((?:\n//[^\n]*)+)\nfunc ` + m[1] + `\(t \*testing\.T\)`).FindStringSubmatch(string(text))
		if comment == nil || !slices.Contains(cited(comment[1]), id) {
			t.Errorf("%s is said to be held by %s, which %s does not have, or whose comment does not cite it", id, m[1], m[2])
		}
	}
	if held < 15 {
		t.Errorf("tests hold %d conflicts: the page is not read", held)
	}
}
