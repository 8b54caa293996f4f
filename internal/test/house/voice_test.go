// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// clauseHead matches a doc comment that begins with a clause in place of a noun, such as "Options are what a run needs". The
// reader has to reach the end of such a sentence to learn what kind of value the name stands for.
var clauseHead = regexp.MustCompile(`^(?:(?:Package|An?|The) )?[\w.*\[\]]+(?:(?:,|,? and) [\w.*]+)*,? (?:is|are|was|were|says?|tells?) ` +
	`(?:what|how|who|whom|whose|which|where|when|whether|why)\b`)

// oldWords matches words that hide the party that acts, or the effect: whose code, repaired how, which caller.
var oldWords = regexp.MustCompile(`(?i)\b(?:of ours|mended|whoever|says of|in vain|comes to|goes on|told|that is up)\b`)

// TestDocVoice: a doc comment says with a noun or a verb what its declaration is, and not by a clause, and no comment has
// oldWords.
func TestDocVoice(t *testing.T) {
	fset, all := sources(t)
	for _, s := range all {
		for _, d := range clauseDocs(s.file) {
			t.Errorf("%s: %q: write what it is with a noun, as in \"N is the number of\", or what it does with a verb", fset.Position(d.Pos()), firstWords(d))
		}
		for _, c := range s.file.Comments {
			if w := oldWords.FindString(quoted.ReplaceAllString(strings.Join(strings.Fields(c.Text()), " "), "``")); w != "" {
				t.Errorf("%s: comment with %q: name the party, or the effect", fset.Position(c.Pos()), w)
			}
		}
	}
}

// clauseDocs returns the doc comments of a file that clauseHead matches: of the package, of declarations, and of fields and
// methods in them.
func clauseDocs(f *ast.File) (found []*ast.CommentGroup) {
	ast.Inspect(f, func(n ast.Node) bool {
		var doc *ast.CommentGroup
		switch n := n.(type) {
		case *ast.File:
			doc = n.Doc
		case *ast.FuncDecl:
			doc = n.Doc
		case *ast.GenDecl:
			doc = n.Doc
		case *ast.TypeSpec:
			doc = n.Doc
		case *ast.ValueSpec:
			doc = n.Doc
		case *ast.Field:
			doc = n.Doc
		}
		if doc != nil && clauseHead.MatchString(firstWords(doc)) {
			found = append(found, doc)
		}
		return true
	})
	return found
}

// firstWords returns the beginning of a comment, up to twelve words in one line.
func firstWords(doc *ast.CommentGroup) string {
	words := strings.Fields(doc.Text())
	return strings.Join(words[:min(12, len(words))], " ")
}

// TestDocVoiceFires: TestDocVoice finds a clause at every kind of declaration, and leaves sentences alone.
func TestDocVoiceFires(t *testing.T) {
	const text = `// Package %s
package p

// T %s
type T struct {
	// A, B %s
	A, B int
}

// I %s
type I interface {
	// Do %s
	Do()
}

// f %s
func f() {}

// Values %s
const (
	// c %s
	c = 1
)
`
	fill := func(words ...string) *ast.File {
		all := make([]any, strings.Count(text, "%s"))
		for i := range all {
			all[i] = words[i%len(words)]
		}
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", fmt.Sprintf(text, all...), parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	bad := []string{"is what a run needs.", "are how many frames wait.", "says whether it ended.", "is whom a program runs as.", "tells how it ended."}
	for _, words := range bad {
		if n := len(clauseDocs(fill(words))); n != strings.Count(text, "%s") {
			t.Errorf("%q is found %d times in %d comments", words, n, strings.Count(text, "%s"))
		}
	}
	good := []string{"is the number of frames that wait.", "reports whether it ended.", "holds the settings, which users choose.", "returns the time at which it ended."}
	if d := clauseDocs(fill(good...)); len(d) > 0 {
		t.Errorf("%q is found, which is a sentence", firstWords(d[0]))
	}
}
