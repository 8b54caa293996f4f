// SPDX-License-Identifier: Apache-2.0

// Package patch puts bugs into the source for the time of a test: files with a changed text
// take the place of those in the tree (go's -overlay), and the tests run over them are to
// fail. The tree itself is not touched.
package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Edit replaces a text of a file. The text has to be there exactly once: a bug that has
// lost its place is noticed.
type Edit struct {
	File     string // relative to the module's root
	Old, New string
}

// Apply returns the files that edits change, by name. root is the module's root. Edits of
// one file are made one after the other.
func Apply(root string, edits ...Edit) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, e := range edits {
		text, ok := files[e.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.File)); err != nil {
				return nil, fmt.Errorf("patch: %w", err)
			}
		}
		if k := strings.Count(string(text), e.Old); k != 1 || e.Old == e.New {
			return nil, fmt.Errorf("patch %s: it applies in %d places, want one: %q", e.File, k, e.Old)
		}
		files[e.File] = []byte(strings.Replace(string(text), e.Old, e.New, 1))
	}
	return files, nil
}

// Overlay writes files to dir and returns the name of the list that go's -overlay takes.
// A file that the tree does not have is added to it.
func Overlay(dir, root string, files map[string][]byte) (string, error) {
	replace := map[string]string{}
	for name, text := range files {
		original, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return "", fmt.Errorf("overlay: %w", err)
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[original], text, 0o600); err != nil {
			return "", fmt.Errorf("overlay: %w", err)
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, list, 0o600); err != nil {
		return "", fmt.Errorf("overlay: %w", err)
	}
	return name, nil
}

// Bites runs a test of a package over changed files and returns nil if it fails because of them, or the
// reason why it did not. The test may name a subtest, as in TestDeploy/netns. One that runs for longer
// than limit has failed. dir is for the files.
//
// The overlay goes by the environment, so that programs that the test builds have the bug, too. Tests
// that bring labs up do not skip.
func Bites(dir, root, pkg, test string, files map[string][]byte, limit time.Duration) error {
	list, err := Overlay(dir, root, files)
	if err != nil {
		return err
	}
	name, _, _ := strings.Cut(test, "/")
	args := []string{"test", "-vet=off", "-count=1", "-timeout", limit.String(), "-run", "^" + strings.ReplaceAll(test, "/", "$/^") + "$", "./" + pkg}
	if UsesRapid(root, pkg) {
		args = append(args, NoFailFile)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "MCASTLAB_LIVE=1", "MCASTLAB_SWEEPS=all", "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+list))
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s of %s passes all the same:\n%s", test, pkg, out)
	case !ended(name).Match(out):
		return fmt.Errorf("%s of %s did not run: %w\n%s", test, pkg, err, out)
	}
	return nil
}

// NoFailFile keeps rapid from leaving a file in the tree for each failure, which is the expected
// outcome here.
const NoFailFile = "-rapid.nofailfile"

// UsesRapid reports whether a package's tests take rapid's flags.
func UsesRapid(root, pkg string) bool {
	files, _ := filepath.Glob(filepath.Join(root, pkg, "*_test.go")) // a pattern without mistakes
	return slices.ContainsFunc(files, func(f string) bool {
		text, err := os.ReadFile(f)
		return err == nil && strings.Contains(string(text), `"pgregory.net/rapid"`)
	})
}

// ended matches the output of a test that failed, or that took its process along.
func ended(test string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(--- FAIL: ` + regexp.QuoteMeta(test) + ` |panic: |fatal error: )`)
}
