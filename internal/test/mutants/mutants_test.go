// SPDX-License-Identifier: Apache-2.0

package mutants

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("seed", 0, "seed of the draw; 0: that of the ledger's last run")
	count  = flag.Int("mutants", 0, "number of mutants to run; 0: only the rotation, where MCASTLAB_MUTANTS is set")
	only   = flag.String("only", "", "numbers of the seed's mutants to run instead, by commas")
	own    = flag.Bool("own", false, "run the tests of the mutant's package only: a quick look at many")
	record = flag.String("record", "", "enter the run in the ledger, with this remark; of -only, over the seed's last run")
)

const (
	sixty   = 60 // of these 95 of 100 have to die
	daily   = 5
	workers = 2 // mutants at a time
)

// valid returns the first n mutants of the seed's order that compile, by their numbers.
func valid(pkgs map[string]*pkg, order []*mutant, n int) (numbers []int) {
	for i, m := range order {
		if len(numbers) == n {
			break
		}
		if pkgs[m.core].valid(m) {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// chosen returns the numbers of the mutants to run.
func chosen(t *testing.T, pkgs map[string]*pkg, order []*mutant) (numbers []int) {
	t.Helper()
	if *only != "" {
		for word := range strings.SplitSeq(*only, ",") {
			i, err := strconv.Atoi(word)
			if err != nil || i < 0 || i >= len(order) {
				t.Fatalf("-only %s: mutants have the numbers 0 to %d", *only, len(order)-1)
			}
			if !pkgs[order[i].core].valid(order[i]) {
				t.Fatalf("-only %s: mutant %d does not compile", *only, i)
			}
			numbers = append(numbers, i)
		}
		return numbers
	}
	if *count > 0 {
		return valid(pkgs, order, *count)
	}
	numbers = recorded(t, pkgs, order)
	today := os.Getenv("MCASTLAB_MUTANTS")
	if today == "all" {
		return numbers
	}
	number, some, cut := strings.Cut(today, "/")
	day, err := strconv.Atoi(number)
	n := daily
	if cut && err == nil {
		n, err = strconv.Atoi(some)
	}
	if err != nil || day < 0 || n < 1 || n > daily {
		t.Fatalf("MCASTLAB_MUTANTS is %q: give the day's number, DAY/N for N of its %d mutants, or all", today, daily)
	}
	five := make([]int, n)
	for i := range five {
		five[i] = numbers[(day*daily+i)%len(numbers)]
	}
	return five
}

// recorded returns the numbers of the ledger's last sixty as far as the cores still offer
// them: a change that brings other mutants is not held up by them.
func recorded(t *testing.T, pkgs map[string]*pkg, order []*mutant) (numbers []int) {
	t.Helper()
	place := map[string]int{}
	for i, m := range order {
		place[m.key()] = i
	}
	rows := ledger(t)[0].rows
	for _, r := range rows {
		if i, ok := place[r.key]; ok && pkgs[order[i].core].valid(order[i]) {
			numbers = append(numbers, i)
		}
	}
	if len(numbers) < len(rows)/2 {
		t.Fatalf("the cores still offer %d of the ledger's last %d mutants: run sixty again (make mutants, with -record)", len(numbers), len(rows))
	}
	return numbers
}

// TestMutants runs mutants. None may survive but those argued in argued.txt; of sixty or
// more, 95 of 100 have to die. CI sets MCASTLAB_MUTANTS to the day's number and so runs
// five of the ledger's sixty; make mutants runs sixty of a seed.
func TestMutants(t *testing.T) {
	if *count == 0 && *only == "" && os.Getenv("MCASTLAB_MUTANTS") == "" {
		t.Skip("none of -mutants, -only and MCASTLAB_MUTANTS is set")
	}
	if *seed == 0 {
		*seed = ledger(t)[0].seed
	}
	began := time.Now()
	pkgs := load(t)
	order := draw(pkgs, *seed)
	numbers := chosen(t, pkgs, order)
	mutants := make([]*mutant, len(numbers))
	for i, n := range numbers {
		mutants[i] = order[n]
	}
	results := runAll(t, pkgs, mutants, numbers)
	argued := arguments(t)
	died := 0
	for i, r := range results {
		if r.by != "" {
			died++
			continue
		}
		if !slices.ContainsFunc(argued, func(a argument) bool { return a.key == r.key }) {
			t.Errorf("survived, and nobody has argued why: %v\nreplay: go test ./internal/test/mutants -run Mutants -v -seed %d -only %d", mutants[i], *seed, r.number)
		}
	}
	fmt.Printf("seed %d: %d of %d killed in %v\n", *seed, died, len(results), time.Since(began).Round(time.Second))
	if len(results) >= sixty && died*100 < len(results)*95 {
		t.Errorf("%d of %d mutants were killed, 95 of 100 have to be\nreplay: go test ./internal/test/mutants -run Mutants -v -timeout 0 -seed %d -mutants %d", died, len(results), *seed, *count)
	}
	if *record != "" {
		if *only != "" {
			results = again(t, *seed, results)
		}
		enter(t, &block{seed: *seed, remark: *record, rows: results})
	}
}

// runAll runs mutants, some at a time, and returns the outcome of each.
func runAll(t *testing.T, pkgs map[string]*pkg, mutants []*mutant, numbers []int) []row {
	t.Helper()
	builds, place := plan(t, pkgs, mutants)
	results := make([]row, len(mutants))
	for i, m := range mutants {
		results[i] = row{number: numbers[i], line: m.line, key: m.key()}
	}
	type job struct {
		b *build
		m *mutant
	}
	last := len(rounds("")) - 1
	if *own {
		last = 0
	}
	for round := range last + 1 {
		jobs := make(chan job)
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for j := range jobs {
					r := &results[place[j.m]]
					from := time.Now()
					r.by = j.b.try(t, place[j.m], round)
					if r.by != "" || round == last {
						fmt.Printf("%d\t%v\t%s\t%v\n", r.number, j.m, cmp.Or(r.by, "SURVIVED"), time.Since(from).Round(time.Second))
					}
				}
			})
		}
		for _, b := range builds {
			for _, m := range b.mutants {
				if results[place[m]].by == "" {
					jobs <- job{b, m}
				}
			}
		}
		close(jobs)
		wg.Wait()
	}
	return results
}
