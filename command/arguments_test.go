// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestFlagsAnywhere: every verb takes its flags before and after its arguments, and understands
// the same by both.
func TestFlagsAnywhere(t *testing.T) {
	var leaves func(commands []*cli.Command, path []string)
	count := 0
	leaves = func(commands []*cli.Command, path []string) {
		for _, c := range commands {
			at := append(path[:len(path):len(path)], c.Name)
			leaves(c.Subcommands, at)
			for _, f := range c.Flags {
				set := []string{"--" + f.Names()[0]}
				if takesValue(c, f.Names()[0]) {
					set = append(set, "7")
				}
				args := []string{"one", "two"}
				if runsProgram(c.Name) {
					args = []string{"--", "one", "--two"}
				}
				p := &program{}
				before, err := p.arrange(p.app(), append(append(append([]string{"mcastlab"}, at...), set...), args...))
				if err != nil {
					t.Fatal(err)
				}
				q := &program{}
				after, err := q.arrange(q.app(), append(append(append([]string{"mcastlab"}, at...), args...), set...))
				if runsProgram(c.Name) { // what follows the program is the program's
					after, err = q.arrange(q.app(), append(append([]string{"mcastlab"}, at...), append(set, args...)...))
				}
				if err != nil {
					t.Fatal(err)
				}
				want := strings.Join(append(append(append([]string{"mcastlab"}, at...), set...), "--", "one", args[len(args)-1]), " ")
				if got := strings.Join(before, " "); got != want || strings.Join(after, " ") != want {
					t.Errorf("%v %v: %q and %q, want %q", at, set, before, after, want)
				}
				count++
			}
		}
	}
	p := &program{}
	leaves(p.app().Commands, nil)
	if count < 60 {
		t.Errorf("only %d flags were tried", count)
	}
	for _, c := range [][2]string{
		{"run - -q", "run -q -- -"}, {"run x --format=json y", "run --format=json -- x y"}, {"run -- --odd", "run -- --odd"},
		{"fault --lab a add loss", "fault add --lab a -- loss"}, {"inspect --format json group", "inspect group --format json"},
		{"exec --node h0 ls -l", "exec --node h0 -- ls -l"}, {"--version", "version"}, {"-v", "version"},
		{"help fault add", "fault add --help"}, {"fault help add", "fault add --help"}, {"help", "help"}, {"rnu -q x", "rnu -q x"},
	} {
		p := &program{}
		got, err := p.arrange(p.app(), append([]string{"mcastlab"}, strings.Fields(c[0])...))
		if err != nil || strings.Join(got[1:], " ") != c[1] {
			t.Errorf("%s: %q, %v; want %s", c[0], got, err, c[1])
		}
	}
}

// TestBothSides: a command does the same whichever side its flags are on.
func TestBothSides(t *testing.T) {
	for _, args := range [][]string{{"--resolved", quickstart}, {quickstart, "--resolved"}} {
		if o := call(t, hooks{}, "", append([]string{"validate"}, args...)...); o.code != 0 || !strings.HasPrefix(o.out, "name: quickstart\n") {
			t.Errorf("validate %v: exit %d, %s%s", args, o.code, o.err, o.out)
		}
	}
	first := call(t, hooks{}, star, "run", "--runs", t.TempDir(), "-q", "--format", "csv", "-")
	if o := call(t, hooks{}, star, "run", "-", "--runs", t.TempDir(), "-q", "--format", "csv"); o.code != 0 || o.out != first.out || !strings.HasPrefix(o.out, "workload,") {
		t.Errorf("exit %d, %s\n%s\nwant\n%s", o.code, o.err, o.out, first.out)
	}
	version := call(t, hooks{}, "", "version")
	for _, flag := range []string{"--version", "-v"} {
		if o := call(t, hooks{}, "", flag); o != version || o.code != 0 {
			t.Errorf("%s: %+v, want %+v", flag, o, version)
		}
	}
}

// TestIgnored: a flag of the command line that would have no effect is refused; as a variable of
// the environment it is a default for where it has one.
func TestIgnored(t *testing.T) {
	png := filepath.Join(t.TempDir(), "lab.png")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--dilation", "3", quickstart}, "--dilation is for running labs"},
		{[]string{"run", "--slower=2", quickstart}, "--slower is for running labs"},
		{[]string{"run", quickstart, "--attach", "h0=eth0"}, "--attach is for running labs"},
		{[]string{"run", "-r", "netns", "--check", quickstart}, "--check is for simulations"},
		{[]string{"run", "--capture-limit", "1MiB", quickstart}, "--capture-limit goes with --capture"},
		{[]string{"graph", "-o", png, quickstart}, "no drawing format for *.png"},
		{[]string{"fuzz", "--replay", "--seeds", "3", quickstart}, "--seeds is for a search"},
		{[]string{"fuzz", "--format", "xml", quickstart}, `no format "xml"`},
		{[]string{"diff", "--format", "xml", "a", "b"}, `no format "xml"`},
		{[]string{"completion", "bash", "zsh"}, "completion takes a shell (bash, zsh or fish), not 2 arguments"},
		{[]string{"help", "rnu"}, `no command "rnu", did you mean "run"?`},
		{[]string{"help", "run", "fast"}, `no command "run fast"`},
		{[]string{"run", "--fast"}, "-fast: see mcastlab run --help"},
		{[]string{"run", "--seed", "x", quickstart}, `invalid value "x" for flag -seed`},
	} {
		o := call(t, hooks{}, "", c.args...)
		if o.code != exitUsage || o.out != "" || !strings.Contains(o.err, c.want) || strings.Count(o.err, "\n") != 1 {
			t.Errorf("%v: exit %d\n%s%swant %s", c.args, o.code, o.err, o.out, c.want)
		}
	}
	if _, err := os.Stat(png); err == nil {
		t.Error("lab.png is there")
	}
	t.Setenv("MCASTLAB_RUN_DILATION", "1000")
	if o := call(t, hooks{}, star, "run", "-q", "--runs", t.TempDir(), "-"); o.code != 0 {
		t.Errorf("a variable for labs that run keeps a simulation from running: %s", o.err)
	}
}

// TestLabFound: where the lab file is looked for, it is said which was found.
func TestLabFound(t *testing.T) {
	file := write(t, star)
	dir := filepath.Dir(file)
	if o := call(t, hooks{}, "", "validate", dir); o.code != 0 || o.err != "mcastlab: lab file: "+file+"\n" {
		t.Errorf("exit %d, %q", o.code, o.err)
	}
	t.Chdir(dir)
	if o := call(t, hooks{}, "", "graph"); o.code != 0 || o.err != "mcastlab: lab file: lab.mcl.yml\n" {
		t.Errorf("exit %d, %q", o.code, o.err)
	}
	for _, named := range [][]string{{"validate", file}, {"run", "-q", "--format", "json"}} {
		if o := call(t, hooks{}, "", named...); o.code != 0 || o.err != "" {
			t.Errorf("%v: exit %d, %q", named, o.code, o.err)
		}
	}
}

// TestHelpOf: every command tells how to use it, by a flag and by the verb help alike.
func TestHelpOf(t *testing.T) {
	var try func(commands []*cli.Command, path []string)
	try = func(commands []*cli.Command, path []string) {
		for _, c := range commands {
			if c.Hidden || c.Name == helpVerb {
				continue
			}
			at := append(path[:len(path):len(path)], c.Name)
			flag, verb := call(t, hooks{}, "", append(at, "--help")...), call(t, hooks{}, "", append([]string{"help"}, at...)...)
			if flag != verb || flag.code != 0 || flag.err != "" || !strings.Contains(flag.out, "mcastlab "+strings.Join(at, " ")+" - "+c.Usage) {
				t.Errorf("%v: %+v\n%+v", at, flag, verb)
			}
			if strings.Contains(flag.out, "(default: false)") {
				t.Errorf("%v has a default that says nothing:\n%s", at, flag.out)
			}
			try(c.Subcommands, at)
		}
	}
	p := &program{}
	try(p.app().Commands, nil)
	want := call(t, hooks{}, "", "help")
	for _, flag := range []string{"--help", "-h"} {
		if o := call(t, hooks{}, "", flag); o != want || o.code != 0 || !strings.Contains(o.out, "EXIT CODES") {
			t.Errorf("%s: %+v\n%+v", flag, o, want)
		}
	}
}
