// SPDX-License-Identifier: Apache-2.0

// Package bugbank keeps the bugs of others: each pitfall that systems like ours are known to
// have fallen into is a patch of our source, and a test of the suite is to fail under it.
// docs/ledgers/bug-bank.md is the list.
package bugbank

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/internal/test/patch"
)

var only = flag.String("only", "", "bugs to put in, by commas: numbers as docs/ledgers/bug-bank.md has them, as in 43 or 41c")

const root = "../../.."

// daily is the number of bugs that CI puts in, others each day.
const daily = 3

// pitfall is something others have got wrong.
type pitfall struct {
	number int
	what   string // the mistake, in general
	seen   string // where it was met with; empty: argued
	bugs   []bug  // the same mistake here
	not    string // why it cannot be here, if there is no bug
}

// bug is a pitfall as a patch. A run of its test runs the bug: it must not be able to reach objects
// that the test has not made, other labs on the machine least of all, and the unpatched tree must be
// able to find its leftovers.
type bug struct {
	wrong string // the effect
	edits []patch.Edit
	test  string // package and test: virtswitch TestForward
	root  bool   // the test cannot do without root
	race  bool   // nor without the race detector
}

// edit is a patch in one place.
func edit(file, old, now string) []patch.Edit { return []patch.Edit{{File: file, Old: old, New: now}} }

// where returns the package and the test.
func (b *bug) where() (pkg, test string) {
	pkg, test, _ = strings.Cut(b.test, " ")
	return pkg, test
}

// chapters are the pitfalls by subject.
var chapters = []struct {
	title    string
	pitfalls []pitfall
}{
	{"Life of a lab", lifecycle},
	{"Replication", replication},
	{"RoCE and flow control", roce},
	{"Multicast", multicast},
	{"Inputs and privileges", inputs},
	{"Found by attack", numbered(64, attackLifetime, attackCores, attackEnds, attackInputs, attackTrees, attackHost, attackExternal, attackHPL, attackIdle, attackRandom, attackLockstep,
		attackTurns, attackWaits, attackEvents, attackLimits, attackGroups, attackDevices, attackBounds, attackResults, attackHosts, attackNumbers, attackWire,
		attackJoins, attackVerbs)},
}

// numbered joins tables of pitfalls and numbers them from the first on.
func numbered(first int, tables ...[]pitfall) []pitfall {
	all := slices.Concat(tables...)
	for i := range all {
		all[i].number = first + i
	}
	return all
}

// entry is a bug by its name.
type entry struct {
	name string // 43, or 41c where a pitfall has several
	*bug
}

// entries returns all bugs in the order of the page.
func entries() (all []entry) {
	for _, c := range chapters {
		for i := range c.pitfalls {
			p := &c.pitfalls[i]
			for k := range p.bugs {
				name := strconv.Itoa(p.number)
				if len(p.bugs) > 1 {
					name += string(rune('a' + k))
				}
				all = append(all, entry{name, &p.bugs[k]})
			}
		}
	}
	return all
}

// TestBank: the list has every pitfall once, in order, each with bugs or a reason; every
// bug finds its place in the source, and its test is there.
func TestBank(t *testing.T) {
	next := 1
	for _, c := range chapters {
		for _, p := range c.pitfalls {
			if p.number != next {
				t.Errorf("pitfall %d comes where %d should", p.number, next)
			}
			next = p.number + 1
			if (len(p.bugs) > 0) == (p.not != "") {
				t.Errorf("pitfall %d has %d bugs and the reason %q not to have any", p.number, len(p.bugs), p.not)
			}
		}
	}
	tests := map[string]string{}
	for _, e := range entries() {
		if _, err := patch.Apply(root, e.edits...); err != nil {
			t.Errorf("bug %s: %v", e.name, err)
		}
		pkg, test := e.where()
		if tests[pkg] == "" {
			tests[pkg] = testsOf(t, pkg)
		}
		if name, _, _ := strings.Cut(test, "/"); !strings.Contains(tests[pkg], "\nfunc "+name+"(t *testing.T)") {
			t.Errorf("bug %s: package %s has no %s", e.name, pkg, name)
		}
	}
	t.Logf("%d bugs", len(entries()))
}

// testsOf returns the text of all tests of a package.
func testsOf(t *testing.T, pkg string) (all string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all += string(b)
	}
	return all
}

// TestBankBites puts bugs in and demands that their tests fail. CI sets MCASTLAB_BUGS to
// the day's number and so puts in a few; make bugs puts in all. -only names some.
func TestBankBites(t *testing.T) {
	today := os.Getenv("MCASTLAB_BUGS")
	if today == "" && *only == "" {
		t.Skip("neither MCASTLAB_BUGS nor -only is set")
	}
	for _, e := range chosen(t, today) {
		t.Run(e.name, func(t *testing.T) {
			if e.root && os.Geteuid() != 0 {
				if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
					t.Fatal("root is needed")
				}
				t.Skip("root is needed")
			}
			files, err := patch.Apply(root, e.edits...)
			if err != nil {
				t.Fatal(err)
			}
			if e.race { // programs that the test builds have it, too
				t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -race")
			}
			began := time.Now()
			pkg, test := e.where()
			if err := patch.Bites(t.TempDir(), root, pkg, test, files, 5*time.Minute); err != nil {
				t.Errorf("%s: %v", e.wrong, err)
			}
			t.Logf("%s %s, %.0f s", pkg, test, time.Since(began).Seconds())
		})
	}
}

// chosen returns the bugs to put in: those of -only, all, or those of a day.
func chosen(t *testing.T, today string) (some []entry) {
	t.Helper()
	all := entries()
	if *only != "" {
		for name := range strings.SplitSeq(*only, ",") {
			n := len(some)
			for _, e := range all {
				if e.name == name || strings.TrimRight(e.name, "abcdefghijklmnopqrstuvwxyz") == name {
					some = append(some, e)
				}
			}
			if len(some) == n {
				t.Fatalf("-only %s: there is no bug %s", *only, name)
			}
		}
		return some
	}
	if today == "all" {
		return all
	}
	day, err := strconv.Atoi(today)
	if err != nil || day < 0 {
		t.Fatalf("MCASTLAB_BUGS is %q: give the day's number, or all", today)
	}
	// Neighbours in the list take about as long: a day has some of each part.
	for i := range daily {
		some = append(some, all[(day+i*len(all)/daily)%len(all)])
	}
	return some
}

const intro = `# The bug bank

This page is made from the tables of package ` + "`internal/test/bugbank` (`go test ./internal/test/bugbank -run BankPage -rewrite`)" + `. It lists what systems of this kind are known to have got wrong,
and what the same would be here: a patch of our source, named by its number, under which a test of the suite fails. Where a pitfall cannot be had, the list says
why.

Every run of the tests checks that each patch still finds its place and that its test is there. CI puts a few bugs in each day, and ` + "`make bugs`" + ` all of them:
` + "`MCASTLAB_BUGS=all go test ./internal/test/bugbank -run TestBankBites -timeout 0`; `-only 43,41c`" + ` picks some. Those whose tests need root are left out without. To see a bug at work put the patch into the source by hand, run the test, and take it out again.

`

// TestBankPage makes docs/ledgers/bug-bank.md.
func TestBankPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(intro)
	bugs, had, not := len(entries()), 0, 0
	for _, c := range chapters {
		for _, p := range c.pitfalls {
			if p.not != "" {
				not++
			} else {
				had++
			}
		}
	}
	fmt.Fprintf(&b, "%d pitfalls: %d of them as %d bugs, %d that cannot be had here.\n", had+not, had, bugs, not)
	names := entries()
	for _, c := range chapters {
		fmt.Fprintf(&b, "\n## %s\n", c.title)
		for _, p := range c.pitfalls {
			fmt.Fprintf(&b, "\n### %d. %s\n\n", p.number, p.what)
			if p.seen != "" {
				fmt.Fprintf(&b, "Seen: %s.\n\n", p.seen)
			}
			if p.not != "" {
				fmt.Fprintf(&b, "Not here: %s.\n", p.not)
			}
			for range p.bugs {
				e := names[0]
				names = names[1:]
				pkg, test := e.where()
				fmt.Fprintf(&b, "* **%s** %s. `%s` of `%s` notices", e.name, e.wrong, test, pkg)
				if e.root {
					b.WriteString(" (as root)")
				}
				b.WriteString(".\n")
				for _, x := range e.edits {
					fmt.Fprintf(&b, "  * `%s`: ``%s`` becomes ``%s``\n", x.File, inline(x.Old), inline(x.New))
				}
			}
		}
	}
	golden.Compare(t, root+"/docs/ledgers/bug-bank.md", b.String())
}

// inline shows a patch's text on one line.
func inline(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return strings.Join(strings.Fields(s), " ")
}
