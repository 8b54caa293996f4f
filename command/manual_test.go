// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestManual: the manual page names every command and every option of it, and programs that
// render such pages find nothing wrong but that a build of no commit has no date.
func TestManual(t *testing.T) {
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"mcastlab", "man"}, nil, &out, &errOut, hooks{}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errOut)
	}
	page := out.String()
	app := (&program{}).app()
	app.Setup()
	named := 0
	var check func(parent string, c *cli.Command)
	check = func(parent string, c *cli.Command) {
		name := parent + " " + c.Name
		if c.Hidden || c.Name == "help" {
			return
		}
		for _, sub := range c.Subcommands {
			check(name, sub)
		}
		if len(c.Subcommands) > 0 && len(c.Flags) == 0 {
			return
		}
		_, section, found := strings.Cut(page, "\n.SS "+roff(name))
		if !found {
			t.Errorf("the page has no section for %s", name)
			return
		}
		named++
		section, _, _ = strings.Cut(section, "\n.S")
		for _, f := range c.Flags {
			for _, n := range f.Names() {
				if n != "help" && n != "h" && !strings.Contains(section, `\-`+roff(n)+`\fR`) {
					t.Errorf("the section of %s has no option %s", name, n)
				}
			}
		}
	}
	for _, c := range app.Commands {
		check("mcastlab", c)
	}
	if named < 9 {
		t.Errorf("the page has %d commands", named)
	}
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "'") {
			t.Errorf("a line begins with a quote, which makes it a request: %s", line)
		}
	}
	if code := run(t.Context(), []string{"mcastlab", "man", "x"}, nil, &out, &errOut, hooks{}); code != exitUsage {
		t.Errorf("with an argument: exit code %d", code)
	}
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Skip("there is no mandoc to render it")
	}
	lint := exec.Command(mandoc, "-Tlint", "-Wwarning")
	lint.Stdin = strings.NewReader(page)
	found, _ := lint.CombinedOutput() // it fails if there are any
	for _, line := range strings.Split(strings.TrimSpace(string(found)), "\n") {
		if line != "" && !strings.Contains(line, "missing date") {
			t.Error(line)
		}
	}
}
