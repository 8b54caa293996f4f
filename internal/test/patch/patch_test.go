// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"
	"testing"
	"time"
)

// TestBites: a bug is distinguished from a change that does no harm, from one that does not compile,
// and from a test that does not exist.
func TestBites(t *testing.T) {
	const file, old = "core/vtime/timers.go", "func (t *TimerTable) Stop(slot int) {"
	for _, c := range []struct{ name, new, test, want string }{
		{"a bug", old + "\n\treturn\n", "TestTimerTable", ""},
		{"no bug", old + "\n\t// the same\n", "TestTimerTable", "passes all the same"},
		{"no Go", old + "\n\tno Go\n", "TestTimerTable", "did not run"},
		{"no test", old + "\n\treturn\n", "TestNothing", "passes all the same"},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := Apply("../../..", Edit{file, old, c.new})
			if err != nil {
				t.Fatal(err)
			}
			err = Bites(t.TempDir(), "../../..", "core/vtime", c.test, files, time.Minute)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestApply: an edit finds its place, once, and edits of one file add up.
func TestApply(t *testing.T) {
	two := []Edit{{"go.mod", "module github.com/mcastlab/mcastlab\n", "module a\n"}, {"go.mod", "module a\n", "module b\n"}}
	files, err := Apply("../../..", two...)
	if err != nil || len(files) != 1 || !strings.HasPrefix(string(files["go.mod"]), "module b\n") {
		t.Errorf("%v, %.20q", err, files["go.mod"])
	}
	for _, e := range []Edit{{"go.mod", "nowhere to be found", ""}, {"go.mod", "\n", ""}, {"go.mod", "module ", "module "}, {"no-such-file", "", "x"}} {
		if _, err := Apply("../../..", e); err == nil {
			t.Errorf("%q in %s was replaced", e.Old, e.File)
		}
	}
}
