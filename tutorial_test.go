// SPDX-License-Identifier: Apache-2.0

package mcastlab

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	// TestTutorials has the go command build programs of it, which after an empty cache would compile
	// what go test is compiling at the same time.
	_ "github.com/mcastlab/mcastlab/command"
)

// rewrite has TestTutorials write the pages instead of comparing them.
var rewrite = flag.Bool("rewrite", false, "write what the commands of the tutorials print to their pages")

// TestTutorials follows the tutorials and the page of errors, in a folder of its own in which examples/ is that of the clone:
// it writes the files they show under the names beside them, runs the commands they show in their
// order, and compares what the commands print. With -rewrite it writes that to the page.
func TestTutorials(t *testing.T) {
	pages, err := filepath.Glob("docs/tutorial-*.md")
	if err != nil || len(pages) != 2 {
		t.Fatalf("%d tutorials, want 2 (%v)", len(pages), err)
	}
	for _, page := range append(pages, "docs/errors.md") {
		t.Run(filepath.Base(page), func(t *testing.T) { follow(t, page) })
	}
}

// fenced finds the blocks of a page: language, name of the file, text.
var fenced = regexp.MustCompile("(?ms)^```([a-z]*)(?: ([^\\n]+))?\\n(.*?)^```$")

// follow carries out the steps of a tutorial.
func follow(t *testing.T, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	u := &user{dir: t.TempDir(), built: map[string]string{}}
	if u.clone, err = filepath.Abs("."); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(u.clone, "examples"), filepath.Join(u.dir, "examples")); err != nil {
		t.Fatal(err)
	}
	got := fenced.ReplaceAllStringFunc(string(text), func(block string) string {
		b := fenced.FindStringSubmatch(block)
		language, name, body := b[1], b[2], b[3]
		switch {
		case language == "console":
			return "```console\n" + u.types(t, body) + "```"
		case name == "":
			t.Errorf("the page has a block that is neither a file nor a command:\n%s", body)
		default:
			u.writes(t, name, body)
		}
		return block
	})
	if len(u.built) == 0 {
		t.Errorf("%s has no command", name)
	}
	switch {
	case *rewrite:
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	case got != string(text):
		t.Errorf("%s shows what its commands do not print: go test . -run Tutorials -rewrite", name)
	}
}

// user is the reader who follows a tutorial.
type user struct {
	clone, dir string
	built      map[string]string // binaries of packages, by their paths
}

// writes writes a file that the page shows. One of examples/ is there, as shown.
func (u *user) writes(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(u.dir, name)
	if strings.HasPrefix(name, "examples/") {
		if there, err := os.ReadFile(path); err != nil || string(there) != text {
			t.Errorf("%s is not as the page shows it (%v)", name, err)
		}
		return
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// types runs the commands of a block, each of which begins with a dollar sign, and returns the block
// with their output.
func (u *user) types(t *testing.T, block string) string {
	t.Helper()
	var b strings.Builder
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, shown, _ := strings.Cut(part, "\n")
		prints := u.run(t, command)
		if !*rewrite && strings.TrimRight(prints, "\n") != strings.TrimRight(shown, "\n") {
			t.Errorf("the page shows of %s\n%s\nit prints\n%s", command, shown, prints)
		}
		b.WriteString("$ " + command + "\n" + prints)
	}
	return b.String()
}

// run runs a command and returns its standard output and, if it fails, its error as go run shows it. A page needs go run
// alone, which is done as the go command does it: built in the clone, run where the user is.
func (u *user) run(t *testing.T, command string) string {
	t.Helper()
	words := strings.Fields(command)
	if len(words) < 3 || words[0] != "go" || words[1] != "run" || strings.ContainsAny(command, `'"|><&;$*`) {
		t.Fatalf("%q is no plain go run", command)
	}
	bin := u.built[words[2]]
	if bin == "" {
		bin = filepath.Join(t.TempDir(), filepath.Base(words[2]))
		u.built[words[2]] = bin
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", bin, words[2])
		build.Dir = u.clone
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", words[2], err, out)
		}
	}
	cmd := exec.Command(bin, words[3:]...)
	cmd.Dir = u.dir
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		return string(out)
	}
	for line := range strings.Lines(errOut.String()) {
		if strings.HasPrefix(line, "mcastlab: ") { // what else is there has names of folders and times
			out = append(out, line...)
		}
	}
	return string(out) + exit.Error() + "\n"
}
