// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/internal/test/golden"
)

// argument is the reason why a mutant may survive.
type argument struct{ key, why string }

// arguments reads argued.txt: a line names a mutant, the indented lines after it explain why no test
// can distinguish it from the core.
func arguments(t *testing.T) (all []argument) {
	t.Helper()
	text, err := os.ReadFile("argued.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		why, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "\t")
		switch {
		case why == "" || why[0] == '#':
		case !indented:
			all = append(all, argument{key: why})
		case all == nil:
			t.Fatalf("argued.txt: a reason before any mutant: %s", why)
		default:
			a := &all[len(all)-1]
			a.why = strings.TrimSpace(a.why + " " + why)
		}
	}
	return all
}

// block is a run in the ledger.
type block struct {
	seed    uint64
	version string
	remark  string
	rows    []row
}

// row is the outcome of a mutant: the test that killed it, or none.
type row struct {
	number, line int
	key, by      string
}

func (b *block) killed() (n int) {
	for _, r := range b.rows {
		if r.by != "" {
			n++
		}
	}
	return n
}

const ledgerFile = "ledger.tsv"

// ledger reads the recorded runs, the newest first.
func ledger(t *testing.T) (all []*block) {
	t.Helper()
	text, err := os.ReadFile(ledgerFile)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			t.Fatalf("%s:%d: %d fields, want 4", ledgerFile, i+1, len(f))
		}
		if f[0] == "run" {
			s, err := strconv.ParseUint(f[1], 10, 64)
			if err != nil {
				t.Fatalf("%s:%d: %v", ledgerFile, i+1, err)
			}
			all = append(all, &block{seed: s, version: f[2], remark: f[3]})
			continue
		}
		number, err1 := strconv.Atoi(f[0])
		at, err2 := strconv.Atoi(f[1])
		if err1 != nil || err2 != nil || all == nil {
			t.Fatalf("%s:%d: want a mutant's number and line, after a run: %s", ledgerFile, i+1, line)
		}
		b := all[len(all)-1]
		b.rows = append(b.rows, row{number, at, f[3], f[2]})
	}
	return all
}

// again returns the rows of a seed's last run with those that were run again in place.
func again(t *testing.T, seed uint64, some []row) []row {
	t.Helper()
	for _, b := range ledger(t) {
		if b.seed != seed {
			continue
		}
		all := slices.Clone(b.rows)
		for _, r := range some {
			if i := slices.IndexFunc(all, func(o row) bool { return o.key == r.key }); i >= 0 {
				all[i] = r
			}
		}
		return all
	}
	t.Fatalf("%s has no run of seed %d to enter these into", ledgerFile, seed)
	return nil
}

// enter puts a run into the ledger, before the others.
func enter(t *testing.T, b *block) {
	t.Helper()
	version, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		t.Fatalf("asking git for the version: %v", err)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "run\t%d\t%s\t%s\n", b.seed, bytes.TrimSpace(version), b.remark)
	for _, r := range b.rows {
		fmt.Fprintf(&out, "%d\t%d\t%s\t%s\n", r.number, r.line, r.by, r.key)
	}
	before, err := os.ReadFile(ledgerFile)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.WriteFile(ledgerFile, append(out.Bytes(), before...), 0o644); err != nil {
		t.Fatal(err)
	}
}

const introduction = `# Mutants

This page is made from ` + "`internal/test/mutants/ledger.tsv` and `internal/test/mutants/argued.txt` (`go test ./internal/test/mutants -run MutantsPage -rewrite`)" + `.

A mutant is a core with one fault planted in its code. The tests are to notice it: what they let pass they do not test. The cores are ` + "`virtrnic`, `virtswitch` and `mrp`" + `.

## How they are made

From the syntax tree of every function, three kinds:

* **comparison**: ` + "`<` and `<=`, `>` and `>=`, `==` and `!=`" + ` change places.
* **off by one**: a number is one more, or one less if it is not 0.
* **dropped check**: an ` + "`if`" + ` without ` + "`else`" + ` that leaves (returns, breaks, continues) never does.

Tables at package level and ` + "`String`" + ` methods are left out. A seed orders all changes, the kinds in turn, each kind by a hash of the seed and of the change
(file, function and texts, no line numbers): an edit elsewhere moves nothing. The type checker leaves out what does not compile.
Sixty mutants take a handful of builds, since each is behind a switch in the environment; the few that take none have builds of their own.

A mutant goes through the tests of its package (` + "`-short`" + `), the quick ones first, and if it lives through the simulator's broadcasts, faults and sweeps, until
one fails, crashes, or takes several times the processor time it should. Whatever kills a mutant has to pass on the same binary with every switch off.

    make mutants MUTANTS_SEED=7                                  # sixty of a seed; some minutes
    go test ./internal/test/mutants -run Mutants -v -seed 7 -only 12,40        # these two of them
    MCASTLAB_MUTANTS=$(($(date +%s) / 86400)) go test ./internal/test/mutants -v   # the day's five of the table below, as in CI; or all

It fails if one survives that is not argued below, and if less than 95 % of sixty die.

## Runs

A seed is fresh if no test was written for it. Killed are counted of all that compile, equivalent ones included.

| seed | at version | killed | |
|---|---|---|---|
`

// TestMutantsPage makes docs/ledgers/mutants.md. Every killer in its table is a test that exists,
// and every survivor of the last run is argued.
func TestMutantsPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(introduction)
	runs, argued := ledger(t), arguments(t)
	for _, r := range runs {
		fmt.Fprintf(&b, "| %d | %s | %d of %d | %s |\n", r.seed, r.version, r.killed(), len(r.rows), r.remark)
	}
	last := runs[0]
	fmt.Fprintf(&b, "\n## The sixty of seed %d\n\nFiles, functions, lines and texts are those of version %s. Code that was renamed or rewritten since is found in that version;\nCI runs the mutants that the cores still offer, and says when these are fewer than half.\n\n| | where | change | killed by |\n|---|---|---|---|\n", last.seed, last.version)
	why := map[string]string{}
	for _, a := range argued {
		why[a.key] = a.why
	}
	for _, r := range last.rows {
		file, change, _ := strings.Cut(r.key, " ")
		by := r.by
		switch {
		case by != "":
			exists(t, by)
		case why[r.key] == "":
			t.Errorf("%s survived and is not argued in argued.txt", r.key)
		default:
			by = "**survives**, see below"
		}
		fmt.Fprintf(&b, "| %d | %s:%d | %s | %s |\n", r.number, file, r.line, strings.ReplaceAll(change, "|", `\|`), by)
	}
	b.WriteString("\n## Survivors, argued\n\nOf all runs. What could be told from outside has got a test instead.\n")
	for _, a := range argued {
		fmt.Fprintf(&b, "\n* %s\n  %s\n", a.key, a.why)
	}
	golden.Compare(t, "../../../docs/ledgers/mutants.md", b.String())
}

// exists checks that the test that killed a mutant is there, given as package and name.
func exists(t *testing.T, by string) {
	t.Helper()
	f := strings.Fields(by)
	if len(f) < 2 {
		return // crashed before any test
	}
	files, err := filepath.Glob("../../../" + f[0] + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && bytes.Contains(text, []byte("\nfunc "+f[1]+"(")) {
			return
		}
	}
	t.Errorf("the ledger says that %s killed a mutant, there is no such test: run the sixty again", by)
}

// TestArgued: an argued mutant is still a change that the cores offer, and has an argument.
func TestArgued(t *testing.T) {
	pkgs := load(t)
	offered := map[string]bool{}
	for _, p := range pkgs {
		for _, m := range changes(p) {
			offered[m.key()] = true
		}
	}
	for _, a := range arguments(t) {
		if !offered[a.key] {
			t.Errorf("argued.txt argues what the cores no longer offer: take it out or rename it: %s", a.key)
		}
		if len(strings.Fields(a.why)) < 8 {
			t.Errorf("argued.txt does not say why this may survive: %s", a.key)
		}
	}
}
