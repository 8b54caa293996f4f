// SPDX-License-Identifier: Apache-2.0

package house

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// notYet matches sentences that put something off. Nothing fails when the denied feature is built, so they stay and
// mislead.
var notYet = regexp.MustCompile(`(?i)\b(not|no|none|never|nothing|nobody|cannot|\w+n't)\b[^.:;!?|]*\byet\b|^[^a-z]*not there:|\b(yet to (be|come)|coming soon|in a (later|future) version)\b`)

// elsewhere are pages that may put something off, each with its reason.
var elsewhere = map[string]string{
	"CHANGELOG.md":             "its first heading is of a version that is not released",
	"CONTRIBUTING.md":          "it says how far the gate's times are known",
	"docs/ledgers/bug-bank.md": "it describes what other programs had wrong",
}

// TestNotYet: pages and the text of help describe the present. Issues are for the future.
func TestNotYet(t *testing.T) {
	for text, want := range map[string]bool{
		"## Not yet":                              true,
		"It does not reach several hosts yet.":    true,
		"There is no fallback for storage, yet.":  true,
		"Not there: controllers on several hosts": true,
		"A node is not up. Yet it counts.":        false,
		"It is not there: it has ended.":          false,
		"Storage has no fallback.":                false,
	} {
		if notYet.MatchString(text) != want {
			t.Errorf("%q: found: %t, want %t", text, !want, want)
		}
	}
	look := func(where, text string) {
		text = quoted.ReplaceAllString(strings.Join(strings.Fields(text), " "), "``")
		for _, found := range notYet.FindAllString(text, -1) {
			t.Errorf("%s: %q: say what there is, or what a user does without; delete it if it is there by now", where, found)
		}
	}
	prose(t, func(path, paragraph string) {
		if elsewhere[path] == "" {
			look(path, paragraph)
		}
	})
	fset, all := sources(t)
	for _, s := range all {
		if s.test || s.dir != "command" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				look(fset.Position(l.Pos()).String(), strings.Trim(l.Value, "`\""))
			}
			return true
		})
	}
}
