// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/internal/test/patch"
)

// stage is a run of a package's tests. A mutant goes through the stages of its core until one fails.
// The limit is seconds of the processor, several times the duration of the stage, so that a busy
// machine kills nothing.
type stage struct {
	pkg, run, skip string
	limit          int
}

// Tests that take most of the time of their package: they come after the others.
const (
	slow    = "^(TestRandom|TestSizesUpTo2GiB|TestHashed|TestReactionPointModel|TestGuardsFire|Fuzz)"
	simSlow = "^Test(EventsPerHop|Allocations|BareMoves)"
	labSlow = "^Test(IRNAgainstGoBackN|Fairness|IncastFairness|LostCNPs|FilterCNPs)$" // of virtrnic, in simulated labs
	nothing = "^$"
)

// rounds are the stages that all mutants go through before any proceeds: the core's own tests, which
// most do not survive, and then the simulator's and those in simulated labs, of collectives and their
// fallback among them.
func rounds(core string) [2][]stage {
	return [2][]stage{
		{{core, ".", slow + "|" + labSlow, 20}, {core, slow, nothing, 20}},
		{
			{"drivers/sim", ".", simSlow, 40}, {"virtswitch", ".", slow, 30}, {"rank/collective", ".", nothing, 90}, {"rank/collective/fallback", ".", nothing, 40},
			{"drivers/sim", simSlow, nothing, 90}, {"virtrnic", labSlow, nothing, 60},
		},
	}
}

// Limits of any stage: a mutant may loop for ever and grow without end.
const (
	memoryLimit = 6 << 20   // KiB of address space
	wallLimit   = time.Hour // that of a machine in trouble: it says nothing of the mutant
)

// build is a core with some mutants in it, each behind a switch that the environment
// turns, or with the one mutant that takes no switch.
type build struct {
	core    string
	mutants []*mutant
	alone   bool
	dir     string // of the overlay and the test binaries

	mu    sync.Mutex
	ready map[string]bool // test binaries by package
	clean map[string]bool // output with every switch off
}

// plan puts mutants into as few builds as have no two of them in one place.
func plan(t *testing.T, pkgs map[string]*pkg, mutants []*mutant) (all []*build, number map[*mutant]int) {
	t.Helper()
	number = map[*mutant]int{}
	add := func(m *mutant, alone bool) {
		b := &build{core: m.core, alone: alone, dir: t.TempDir(), ready: map[string]bool{}, clean: map[string]bool{}}
		b.mutants = append(b.mutants, m)
		all = append(all, b)
	}
	for i, m := range mutants {
		number[m] = i
		if !pkgs[m.core].switchable(m) {
			add(m, true)
			continue
		}
		fits := slices.IndexFunc(all, func(b *build) bool {
			return !b.alone && b.core == m.core && !slices.ContainsFunc(b.mutants, func(o *mutant) bool {
				return o.file == m.file && o.from < m.to && m.from < o.to
			})
		})
		if fits < 0 {
			add(m, false)
			continue
		}
		all[fits].mutants = append(all[fits].mutants, m)
	}
	for _, b := range all {
		b.write(t, pkgs[b.core], number)
	}
	return all, number
}

// write makes the build's changed files and the overlay that puts them in place.
func (b *build) write(t *testing.T, p *pkg, number map[*mutant]int) {
	t.Helper()
	files := map[string][]byte{}
	if b.alone {
		files[b.mutants[0].file] = p.plain(b.mutants[0])
	} else {
		files[b.core+"/mutant_switches.go"] = []byte("package " + path.Base(b.core) + "\n" + switches)
		for _, s := range p.sources {
			if text := b.switched(s, number); text != nil {
				files[s.name] = text
			}
		}
	}
	if _, err := patch.Overlay(b.dir, "../../..", files); err != nil { // overlay.json, for binary
		t.Fatal(err)
	}
}

// switched returns a file with the build's mutants behind their switches, or nil if it
// has none.
func (b *build) switched(s *source, number map[*mutant]int) (text []byte) {
	var here []*mutant
	for _, m := range b.mutants {
		if m.file == s.name {
			here = append(here, m)
		}
	}
	if here == nil {
		return nil
	}
	slices.SortFunc(here, func(a, b *mutant) int { return a.from - b.from })
	at := 0
	for _, m := range here {
		text = append(text, s.text[at:m.from]...)
		text = fmt.Appendf(text, m.switched, number[m])
		at = m.to
	}
	return append(text, s.text[at:]...)
}

// binary returns a test binary of a package over the build.
func (b *build) binary(t *testing.T, pkg string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	bin := filepath.Join(b.dir, path.Base(pkg)+".test")
	if b.ready[pkg] {
		return bin
	}
	c := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", filepath.Join(b.dir, "overlay.json"), "-o", bin, "./"+pkg)
	c.Dir = "../../.."
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("building the tests of %s under %v: %v\n%s", pkg, b.mutants, err, out)
	}
	b.ready[pkg] = true
	return bin
}

// try runs the stages of a round under a mutant and returns who killed it, or "".
func (b *build) try(t *testing.T, number, round int) (by string) {
	for _, s := range rounds(b.core)[round] {
		test, how := b.run(t, s, number)
		if how == passed {
			continue
		}
		if !b.passes(t, s, test) {
			t.Errorf("%s of %s fails without any mutant: repair it first", test, s.pkg)
			return ""
		}
		return s.pkg + " " + test + how
	}
	return ""
}

// passes reports whether a test, or all of the stage if none is known, passes with every
// switch off: one that fails anyway would be said to kill every mutant.
func (b *build) passes(t *testing.T, s stage, test string) bool {
	if b.alone {
		return true // there is no switch; the same tests run in the other builds
	}
	b.mu.Lock()
	known, ok := b.clean[s.pkg+test]
	b.mu.Unlock()
	if ok {
		return known
	}
	if test != "" {
		s.run, s.skip = "^"+test+"$", nothing
	}
	_, how := b.run(t, s, -1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clean[s.pkg+test] = how == passed
	return how == passed
}

// How a stage ended.
const (
	passed  = "passed"
	failed  = ""
	crashed = " (crash)"
	endless = " (does not end)"
)

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\w+)`)
	begun   = regexp.MustCompile(`(?m)^=== RUN +(\w+)`)
)

// run runs a stage and returns the test that failed, if known, and how it ended.
func (b *build) run(t *testing.T, s stage, number int) (test, how string) {
	bin := b.binary(t, s.pkg)
	ctx, cancel := context.WithTimeout(context.Background(), wallLimit)
	defer cancel()
	args := []string{"-c", `ulimit -v "$0"; ulimit -t "$1"; shift; exec "$@"`, strconv.Itoa(memoryLimit), strconv.Itoa(s.limit),
		bin, "-test.short", "-test.failfast", "-test.v", "-test.run", s.run, "-test.skip", s.skip}
	if patch.UsesRapid("../../..", s.pkg) {
		args = append(args, patch.NoFailFile)
	}
	c := exec.CommandContext(ctx, "sh", args...)
	c.Dir = "../../../" + s.pkg
	c.Env = append(os.Environ(), "MCASTLAB_MUTANT="+strconv.Itoa(number), "MCASTLAB_MUTANTS=")
	out, err := c.CombinedOutput()
	if err == nil {
		return "", passed
	}
	var exit *exec.ExitError
	if ctx.Err() != nil || !errors.As(err, &exit) {
		t.Errorf("running the tests of %s: %v", s.pkg, err)
		return "", passed
	}
	last := ""
	if m := begun.FindAllSubmatch(out, -1); m != nil {
		last = string(m[len(m)-1][1])
	}
	if m := failure.FindAllSubmatch(out, -1); m != nil {
		return string(m[len(m)-1][1]), failed
	}
	if exit.ExitCode() < 0 { // by a signal: a limit
		return last, endless
	}
	return last, crashed
}
