// SPDX-License-Identifier: Apache-2.0

package sweeps

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestParts: three days in a row take each case of a sweep once, and all takes each.
func TestParts(t *testing.T) {
	if testing.Short() {
		t.Skip("a short run takes all cases")
	}
	const count = 100 // which no number of parts but 1, 2, 4, 5 divides
	for _, days := range [][]string{{"20500", "20501", "20502"}, {"all"}} {
		var one, many [count]int
		for _, day := range days {
			t.Setenv("MCASTLAB_SWEEPS", day)
			for i := range one {
				if Takes(t, i) {
					one[i]++
				}
			}
			from, n := Range(t, count)
			for i := from; i < from+n; i++ {
				many[i]++
			}
		}
		for i := range one {
			if one[i] != 1 || many[i] != 1 {
				t.Errorf("days %v: case %d was taken %d times alone, %d times in a range", days, i, one[i], many[i])
			}
		}
	}
}

// TestSwept: make sweeps has every test that leaves a part of its cases to other days.
func TestSwept(t *testing.T) {
	root := os.DirFS("../../..")
	makefile, err := fs.ReadFile(root, "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\tMCASTLAB_SWEEPS=\S+ go test (.*) -vet=off -v -count=1 \\\n\t  -run '\^Test\((.*)\)\$\$'$`).FindSubmatch(makefile)
	if m == nil {
		t.Fatal("the Makefile's rule for sweeps is not as this test knows it")
	}
	pkgs, names := strings.Fields(string(m[1])), strings.Split(string(m[2]), "|")
	function := regexp.MustCompile(`(?ms)^func Test(\w+)\(t \*testing\.T\) \{$.*?^}$`)
	asks := regexp.MustCompile(`\bsweeps\.(Takes|Range|Day)\(|\bDaySeeds\(`)
	found := map[string]bool{}
	err = fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		for _, f := range function.FindAllSubmatch(text, -1) {
			if !asks.Match(f[0]) || path.Dir(name) == "internal/test/sweeps" {
				continue
			}
			pkg := strings.TrimSuffix("./"+path.Dir(name), "/.")
			if found[string(f[1])] = true; !slices.Contains(pkgs, pkg) || !slices.Contains(names, string(f[1])) {
				t.Errorf("%s: Test%s takes a part each day: add it and %s to sweeps in the Makefile", name, f[1], pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !found[name] {
			t.Errorf("the Makefile's rule for sweeps has Test%s, which takes all of its cases each day, or is not there", name)
		}
	}
}
