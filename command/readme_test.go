// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestPagesCommands: every command line of mcastlab in the README, in the pages of docs/ and in the index of the examples
// has verbs and flags that exist, and names lab files of examples/ that do. Nothing is run.
func TestPagesCommands(t *testing.T) {
	pages := []string{"../README.md", "../examples/README.md"}
	for _, pattern := range []string{"../docs/*.md", "../docs/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	lines := map[string]int{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range commandLines(string(text)) {
			lines[page]++
			if err := parses(line); err != nil {
				t.Errorf("%s: %s: %v", page, line, err)
			}
		}
	}
	const readmeMin, allMin = 6, 100
	all := 0
	for _, n := range lines {
		all += n
	}
	if n := lines["../README.md"]; n < readmeMin || all < allMin {
		t.Errorf("%d command lines in README.md and %d in all pages, want %d and %d at least", n, all, readmeMin, allMin)
	}
	for _, c := range []struct{ line, want string }{
		{"rum star.mcl.yml", `no command "rum"`}, {"run --frmat json star.mcl.yml", "frmat"}, {"fault ad loss", "fault needs add, ls or reset"},
		{"run examples/nosuch.mcl.yml", "nosuch.mcl.yml"}, {"exec --node h0 -- ib_write_bw -F", ""}, {"run -r netns examples/star.mcl.yml", ""},
	} {
		if err := parses(c.line); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q: %v, want %q", c.line, err, c.want)
		}
	}
}

var (
	// called matches mcastlab at the beginning of a command of a line, as it is called from a clone or where it is installed.
	called = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:sudo )?(?:go run \./cmd/mcastlab|(?:bin/)?mcastlab) (.*)$`)
	// span is code within a paragraph.
	span = regexp.MustCompile("`([^`]+)`")
	// meta matches lines that stand for several: [LAB], bash|zsh, help COMMAND.
	meta = regexp.MustCompile(`[\[{<…|]|\.\.\.|^help [A-Z]`)
)

// commandLines returns the arguments of each call of mcastlab in a page's blocks of code and spans.
func commandLines(page string) (all []string) {
	add := func(text string) {
		for part := range strings.SplitSeq(text, " && ") {
			part, _, _ = strings.Cut(part, " #")
			part, _, _ = strings.Cut(part, "; ")
			for of := range strings.SplitSeq(part, " | ") { // mcastlab man | man -l -
				if m := called.FindStringSubmatch(strings.TrimSpace(of)); m != nil && !meta.MatchString(m[1]) {
					all = append(all, strings.TrimSuffix(strings.TrimSpace(m[1]), " &"))
				}
			}
		}
	}
	fenced := false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			add(strings.TrimSpace(line))
		default:
			for _, m := range span.FindAllStringSubmatch(line, -1) {
				add(m[1])
			}
		}
	}
	return all
}

// parses returns an error if a command line has a verb or a flag that does not exist, or names an example that does not.
func parses(line string) error {
	words := append([]string{"mcastlab"}, fields(line)...)
	for i, w := range words {
		if w == "N" {
			words[i] = "1"
		}
		if strings.HasPrefix(w, "examples/") {
			if _, err := os.Stat(filepath.Join("..", w)); err != nil {
				return err
			}
		}
	}
	var out bytes.Buffer
	p := &program{in: strings.NewReader(""), out: &out, errOut: &out}
	app := p.app()
	unacted(app.Commands)
	if len(words) == 2 { // its name alone
		if app.Command(words[1]) == nil {
			return fmt.Errorf("no command %q", words[1])
		}
		return nil
	}
	args, err := p.arrange(app, words)
	if err != nil {
		return err
	}
	return app.Run(args)
}

// unacted takes away what commands do. Those that are there for their subcommands alone only refuse others, which they keep.
func unacted(all []*cli.Command) {
	for _, c := range all {
		if len(c.Subcommands) == 0 || slices.Contains([]string{"servers", "inspect"}, c.Name) {
			c.Action = func(*cli.Context) error { return nil }
		}
		unacted(c.Subcommands)
	}
}

// fields splits a command line as a shell does, as far as pages need it: at spaces outside quotes.
func fields(line string) (words []string) {
	var quote rune
	word, any := "", false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, any = r, true
		case quote == 0 && r == ' ':
			if word != "" || any {
				words = append(words, word)
			}
			word, any = "", false
		default:
			word += string(r)
		}
	}
	if word != "" || any {
		words = append(words, word)
	}
	return words
}
