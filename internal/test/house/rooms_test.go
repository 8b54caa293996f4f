// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// rooms are the top folders, each above all that its packages import: a package imports nothing from a room that stands
// before its own.
var rooms = []string{
	"cmd", "examples", "command", "nodeagent", "orchestrator", "lab", "apps", "drivers", "rank", "traces", "internal", "faults", "virtswitch", "virtrnic", "core",
}

// upward are imports of a room that stands higher, each with its reason.
var upward = map[string]string{
	"lab/examples imports examples":         "examples is data: the example labs and the embed directive",
	"lab/reproduce imports examples/papers": "examples/papers is data: the lab files of the papers and the embed directive",
}

// roomPairsMax bounds the ordered pairs of rooms with an import: that many other rooms, all in all, can notice a change in
// one.
const roomPairsMax = 60

// TestRooms: imports lead to lower rooms only, so that no two rooms import each other, and the pairs of rooms with an import
// grow no more. Tests, and internal/test, which exists for them, do not count. The imports are those of Linux: the others have fewer.
func TestRooms(t *testing.T) {
	imports, err := roomImports()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for pair, by := range imports {
		from, to := slices.Index(rooms, pair[0]), slices.Index(rooms, pair[1])
		if from < 0 || to < 0 {
			t.Errorf("%s imports %s, and one of them is not in the list of rooms in rooms_test.go: %s", pair[0], pair[1], strings.Join(by, ", "))
			continue
		}
		for _, x := range by {
			switch {
			case from < to:
			case upward[x] != "":
				used[x] = true
			default:
				t.Errorf("%s, and room %s stands above room %s: move what both need to a room below them", x, pair[1], pair[0])
			}
		}
		if back := imports[[2]string{pair[1], pair[0]}]; pair[0] < pair[1] && back != nil {
			t.Errorf("rooms %s and %s import each other:\n  %s\nand\n  %s", pair[0], pair[1], strings.Join(by, "\n  "), strings.Join(back, "\n  "))
		}
	}
	for x := range upward {
		if !used[x] {
			t.Errorf("%s: it does not any more: delete the reason", x)
		}
	}
	if len(imports) > roomPairsMax {
		var thin []string // pairs that one import makes: most likely the new ones
		for pair, by := range imports {
			if len(by) == 1 {
				thin = append(thin, fmt.Sprintf("%s > %s: %s", pair[0], pair[1], by[0]))
			}
		}
		slices.Sort(thin)
		t.Errorf("%d pairs of rooms have an import, at most %d may. These have a single one:\n  %s", len(imports), roomPairsMax, strings.Join(thin, "\n  "))
	}
}

// roomImports returns the imports between packages of different rooms, by importing and imported room.
func roomImports() (map[[2]string][]string, error) {
	list := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages of the module: %w", err)
	}
	room := func(dir string) string { r, _, _ := strings.Cut(dir, "/"); return r }
	all := map[[2]string][]string{}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		from, ok := strings.CutPrefix(words[0], module)
		if !ok || strings.HasPrefix(from, "internal/test/") {
			continue
		}
		for _, w := range words[1:] {
			if to, ok := strings.CutPrefix(w, module); ok && room(from) != room(to) && !strings.HasPrefix(to, "internal/test/") {
				pair := [2]string{room(from), room(to)}
				all[pair] = append(all[pair], from+" imports "+to)
			}
		}
	}
	return all, nil
}
