// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"os"
	"path/filepath"
	"testing"
)

// TestSources: sources that no overlay changes stay where they are; of others there is a copy with the change.
func TestSources(t *testing.T) {
	folder, other := filepath.Join(t.TempDir(), "c"), t.TempDir()
	for _, name := range []string{"sub/a.c", "b.h"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte("right"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ root, name, a string }{{folder, "sub/a.c", "wrong"}, {folder, "x.go", ""}, {other, "sub/a.c", ""}} {
		list, err := Overlay(t.TempDir(), c.root, map[string][]byte{c.name: []byte("wrong")})
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOFLAGS", "-trimpath -overlay="+list+" -vet=off")
		got, err := Sources(t.TempDir(), folder)
		if err != nil || (got != folder) != (c.a != "") {
			t.Fatalf("%s: %s, %v", c.name, got, err)
		}
		if c.a == "" {
			continue
		}
		for name, want := range map[string]string{"sub/a.c": c.a, "b.h": "right"} {
			if b, err := os.ReadFile(filepath.Join(got, name)); string(b) != want {
				t.Errorf("%s is %q, not %q: %v", name, b, want, err)
			}
		}
	}
	t.Setenv("GOFLAGS", "-trimpath")
	if got, err := Sources(t.TempDir(), folder); got != folder || err != nil {
		t.Errorf("without an overlay: %s, %v", got, err)
	}
	t.Setenv("GOFLAGS", "-overlay="+filepath.Join(other, "none"))
	if _, err := Sources(t.TempDir(), folder); err == nil {
		t.Error("an overlay that is not there is ignored")
	}
}
