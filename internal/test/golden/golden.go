// SPDX-License-Identifier: Apache-2.0

// Package golden compares what tests make with files of the tree: golden files and generated pages.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// rewrite has Compare write files.
var rewrite = flag.Bool("rewrite", false, "write golden files and generated pages instead of comparing them; commit the change only if you understand it")

// shown is the number of lines that an error has of the file and of the text.
const shown = 40

// Compare compares text with a file. With -rewrite it writes the file.
func Compare(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v (make it with: go test -run '^%s$' -rewrite)", err, t.Name())
	}
	want := string(text)
	if want == got {
		return
	}
	w, g := strings.SplitAfter(want, "\n"), strings.SplitAfter(got, "\n")
	n := 0
	for n < len(w) && n < len(g) && w[n] == g[n] {
		n++
	}
	part := func(lines []string) string { return strings.Join(lines[n:min(n+shown, len(lines))], "") }
	t.Errorf("%s differs from line %d on (rewrite with: go test -run '^%s$' -rewrite)\n--- got\n%s--- want\n%s", file, n+1, t.Name(), part(g), part(w))
}
