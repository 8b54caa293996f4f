// SPDX-License-Identifier: Apache-2.0

package search

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// Replay returns the command and its arguments that show the finding of a file again.
func (f *Finding) Replay(file string) string {
	if f.Drawn {
		return "run --check " + file
	}
	return "fuzz --replay " + file
}

// Write writes the lab of a finding into a folder, with comments that give the violation and
// the command that replays it, and returns the file's name.
func Write(dir string, f *Finding) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write finding: %w", err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-seed%d.mcl.yml", f.Lab.Name, f.Seed))
	text := fmt.Sprintf("# seed %d: %s\n# %s\n# replay: mcastlab %s\n%s",
		f.Seed, f.Class, strings.ReplaceAll(f.Text, "\n", " "), f.Replay(filepath.Base(name)), f.Lab.Compact())
	if err := runner.WriteFile(name, []byte(text)); err != nil {
		return "", fmt.Errorf("write finding: %w", err)
	}
	f.File = name
	return name, nil
}
