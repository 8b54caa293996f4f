// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModule: a module of the user's own that imports rank and command is tidied and built by
// the go command alone, as docs/programs.md tells to do it.
func TestModule(t *testing.T) {
	if testing.Short() {
		t.Skip("asks the module proxy")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	main, err := os.ReadFile(filepath.Join("testdata", "outside", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{ // independent of each other
		"main.go": string(main),
		"go.mod": "module example.org/mine\n\ngo 1.26.0\n\nrequire github.com/mcastlab/mcastlab v0.0.0\n\n" +
			"replace github.com/mcastlab/mcastlab => " + root + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", "mine", "."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		switch {
		case err != nil && (bytes.Contains(out, []byte("dial tcp")) || bytes.Contains(out, []byte("GOPROXY=off"))) && os.Getenv("MCASTLAB_REQUIRE_TOOLS") == "":
			t.Skipf("no module proxy: %s", out)
		case err != nil:
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	out, err := exec.Command(filepath.Join(dir, "mine"), "version").CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("mcastlab ")) {
		t.Errorf("%v: %s", err, out)
	}
}
