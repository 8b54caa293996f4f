// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// phrase is wording that comments, errors and pages do not use.
type phrase struct {
	words   *regexp.Regexp
	instead string
}

// phrases are the banned ones. A phrase is here because it names nothing, or because a
// better wording was known for every place where it stood.
var phrases = []phrase{
	{regexp.MustCompile(`\.\.\.|…`), "end the sentence, or name what follows"},
	{regexp.MustCompile(`(?i)\b(obviously|of course|needless to say)\b`), "leave it out; what is not plain needs its reason"},
	{regexp.MustCompile(`(?i)\b(magic|magically|somehow|hopefully)\b`), "say what the mechanism is"},
	{regexp.MustCompile(`(?i)\bstuff\b`), "name it: a value, an object, an event, a step"},
	{regexp.MustCompile(`(?i)\b(dog|ripe|buried|hear of it)\b`), "use the field's noun"},
	{regexp.MustCompile(`(?i)\b(anew|by turns|for want of)\b`), "write again, alternately, for lack of"},
	{regexp.MustCompile(`(?i)\b(called so|(is|are) there twice)\b`), "write has that name, appears twice"},
	{regexp.MustCompile(`(?i)\bleaders? of old\b`), "write a deposed leader"},
	{regexp.MustCompile(`\brules? R[1-5]\b|\(R[1-5]\)|\bR[1-5]: `), "cite a rule of machine.Machine by its name, as in starts are deadlines"},
	{regexp.MustCompile(`\b(TODO|FIXME|XXX)\b`), "do it, or open an issue"},
}

// quoted is text that is code or another's words, where any wording may stand: code
// spans, quotations, package patterns, and the digits of a label, as in p0 ... p(n-1).
var quoted = regexp.MustCompile("``.*?``|`[^`]*`|\"[^\"]*\"|\\./\\.\\.\\.|/etc/|\\w\\d (\\.\\.\\.|…) \\w\\(")

// wording returns the findings in a text.
func wording(text string) (found []string) {
	text = quoted.ReplaceAllString(strings.Join(strings.Fields(text), " "), "``")
	for _, p := range phrases {
		for _, at := range p.words.FindAllStringIndex(text, -1) {
			around := text[max(0, at[0]-40):min(len(text), at[1]+20)]
			found = append(found, fmt.Sprintf("%q: %s: %s", text[at[0]:at[1]], p.instead, strings.ToValidUTF8(around, "")))
		}
	}
	return found
}

// TestDocsWording: comments, errors and pages keep to the words of the field.
func TestDocsWording(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		if s.path == "internal/test/house/wording_test.go" {
			continue
		}
		for _, g := range s.file.Comments {
			for _, f := range wording(g.Text()) {
				t.Errorf("%s: comment with %s", fset.Position(g.Pos()), f)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, f := range wording(errorText(n)) {
				t.Errorf("%s: error with %s", fset.Position(n.Pos()), f)
			}
			return true
		})
	}
	prose(t, func(path, paragraph string) {
		for _, f := range wording(paragraph) {
			t.Errorf("%s: page with %s", path, f)
		}
	})
}

// prose visits the paragraphs of all pages, but for code.
func prose(t *testing.T, visit func(path, paragraph string)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") || strings.Contains(path, "testdata") {
			return err
		}
		text, err := os.ReadFile(path)
		for i, part := range strings.Split(string(text), "```") {
			if i%2 == 1 {
				continue // a block of code
			}
			for _, paragraph := range strings.Split(part, "\n\n") {
				if !strings.HasPrefix(strings.TrimLeft(paragraph, "\n"), "    ") { // a block of code, too
					visit(path, paragraph)
				}
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// errorText returns the text of an error that an expression makes, or nothing.
func errorText(n ast.Node) (text string) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return ""
	}
	if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Errorf" && fmt.Sprint(f.X, ".", f.Sel) != "errors.New" {
		return ""
	}
	ast.Inspect(call.Args[0], func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text += l.Value[1 : len(l.Value)-1]
		}
		return true
	})
	return text
}
