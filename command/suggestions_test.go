// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab/examples"
)

// TestSuggestions: a misspelt command, flag, fault kind, lab file or example is answered with the one that was meant, with exit code 2.
func TestSuggestions(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "star.mcl.yml")
	if err := os.WriteFile(file, []byte(star), 0o644); err != nil {
		t.Fatal(err)
	}
	cases := []struct{ args, want string }{
		{"rum x", `no command "rum", did you mean "run"?`},
		{"reprot", `no command "reprot", did you mean "report"?`},
		{"nothing-like-it", `no command "nothing-like-it": see mcastlab help`},
		{"help rum", `no command "rum", did you mean "run"?`},
		{"run --frmat json x", `run has no flag --frmat, did you mean "--format"?: see mcastlab run --help`},
		{"run --zzzzzz x", `run has no flag --zzzzzz: see mcastlab run --help`},
		{"run " + filepath.Join(dir, "sttar.mcl.yml"), "no such lab file, did you mean " + file + "?"},
		{"validate " + filepath.Join(dir, "quickstart.mcl.yml"), "no such lab file; mcastlab has this lab built in: --example quickstart"},
		{"validate " + filepath.Join(dir, "nothing.yml"), "nothing.yml: no such lab file"},
		{"run --example quikstart", `no example "quikstart", did you mean "quickstart"?`},
		{"run --example tiers " + file, "run takes a lab file or --example, not both"},
		{"report " + filepath.Join(dir, "none"), "no such run folder"},
		{"trace " + filepath.Join(dir, "none"), "no such run folder"},
		{"diff " + filepath.Join(dir, "none") + " " + dir, "no such run folder"},
	}
	if runtime.GOOS == "linux" {
		cases = append(cases, []struct{ args, want string }{
			{"inspct", `no command "inspct", did you mean "inspect"?`},
			{"fault add pausestorm --node h1", `no fault kind "pausestorm", did you mean "pause-storm"?`},
			{"fault ad loss", `fault needs add, ls or reset, not "ad"`},
			{"help fault ad", `no command "fault ad", did you mean "add"?`},
		}...)
	}
	for _, c := range cases {
		o := call(t, hooks{}, "", strings.Fields(c.args)...)
		if o.code != exitUsage || !strings.Contains(o.err, c.want) || o.out != "" {
			t.Errorf("%s: exit %d, %q, want %q", c.args, o.code, o.err, c.want)
		}
	}
}

// TestAlike: --nodes stands for --node where a command has that, --link for --links, and --lab for an argument LAB.
func TestAlike(t *testing.T) {
	cases := [][2]string{{"run --lab x -q", "run -q -- x"}, {"validate --lab x", "validate -- x"}}
	if runtime.GOOS == "linux" {
		cases = append(cases, [][2]string{
			{"fault add loss --links h0-* --nodes=h1", "fault add --link h0-* --node=h1 -- loss"},
			{"exec --nodes h0 ls", "exec --node h0 -- ls"},
			{"destroy --lab x", "destroy -- x"}, {"inspect -l x --format json", "inspect --format json -- x"}, {"metrics --lab=x", "metrics -- x"},
			{"logs --lab x h0", "logs --lab x -- h0"}, {"fault --lab a add loss", "fault add --lab a -- loss"},
		}...)
	}
	for _, c := range cases {
		p := &program{}
		got, err := p.arrange(p.app(), append([]string{"mcastlab"}, strings.Fields(c[0])...))
		if want := "mcastlab " + c[1]; err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q (%v), want %q", c[0], got, err, want)
		}
	}
}

// TestExamples: each built-in lab is valid, with the files that it names, and leaves nothing behind.
func TestExamples(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	if len(examples.Names()) < 10 {
		t.Fatalf("examples %q", examples.Names())
	}
	for _, name := range examples.Names() {
		if o := call(t, hooks{}, "", "validate", "--example", name); o.code != 0 {
			t.Errorf("%s: exit %d, %s", name, o.code, o.err)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left %v (%v)", left, err)
	}
	o := call(t, hooks{}, "", "run", "--example", "quickstart", "-q", "--runs", t.TempDir())
	if o.code != 0 || o.err != "" || !strings.Contains(o.out, "4MiB to 16 ranks: cepheus 349.53 us, chain 2.00x") {
		t.Errorf("exit %d, %s%s", o.code, o.out, o.err)
	}
}

// TestHelpGroups: mcastlab without arguments lists each command once, in its group, and no internal one.
func TestHelpGroups(t *testing.T) {
	o := call(t, hooks{}, "")
	if o.code != 0 {
		t.Fatal(o)
	}
	head, also, _ := strings.Cut(o.out, "Also: ")
	p := &program{}
	for _, c := range p.app().Commands {
		n := strings.Count(head, "\n   "+c.Name+" ") + strings.Count(strings.ReplaceAll(also, ".", ","), c.Name+",")
		switch {
		case c.Hidden && n != 0:
			t.Errorf("the help has %s, which is internal", c.Name)
		case !c.Hidden && n != 1:
			t.Errorf("the help has %s %d times", c.Name, n)
		}
	}
	for _, g := range helpGroups {
		if runtime.GOOS == "linux" && !strings.Contains(head, "\n"+strings.ToUpper(g.head)+":\n") {
			t.Errorf("the help lacks the group %s", g.head)
		}
	}
	for line := range strings.SplitSeq(head, "\n") {
		if len(line) > 120 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
}
