// SPDX-License-Identifier: Apache-2.0

package house

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestSchemasListed: docs/versions.md has every JSON schema in the source with its use, and no other.
func TestSchemasListed(t *testing.T) {
	page, err := os.ReadFile("docs/versions.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("[`\"](mcastlab/[a-z-]+/v[0-9]+)[`\"]")
	listed, used := map[string]bool{}, map[string]bool{}
	for _, m := range name.FindAllStringSubmatch(string(page), -1) {
		listed[m[1]] = true
	}
	_, all := sources(t)
	for _, s := range all {
		if s.test {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(string(s.text), -1) {
			used[m[1]] = true
			if !listed[m[1]] {
				t.Errorf("%s uses the schema %s, which docs/versions.md does not list", s.path, m[1])
			}
		}
	}
	for n := range listed {
		if !used[n] {
			t.Errorf("docs/versions.md lists the schema %s, which nothing uses", n)
		}
	}
	if len(used) < 10 {
		t.Errorf("found only the schemas %v", used)
	}
}

// TestCitation: CITATION.cff has the fields that the format requires, and names the version on top of
// the changelog if that is released.
func TestCitation(t *testing.T) {
	text, err := os.ReadFile("CITATION.cff")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		CFF     string `yaml:"cff-version"`
		Message string
		Title   string
		Version string
		Date    string `yaml:"date-released"`
		License string
		Authors []struct{ Name string }
	}
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if c.CFF != "1.2.0" || c.Message == "" || c.Title == "" || len(c.Authors) == 0 || c.Authors[0].Name == "" || c.License != "Apache-2.0" {
		t.Errorf("something that citations need is missing: %+v", c)
	}
	changes, err := os.ReadFile("CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := ""
	for line := range strings.Lines(string(changes)) {
		if v, ok := strings.CutPrefix(line, "## v"); ok {
			newest = "v" + strings.TrimSpace(v)
			break
		}
	}
	cited := ""
	if c.Version != "" {
		cited = c.Version + ", " + c.Date
	}
	if newest != cited {
		t.Errorf("CITATION.cff has the version %q, CHANGELOG.md %q: write both as v0.1.0, 2026-11-22", cited, newest)
	}
}
