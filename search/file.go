package search

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Write writes the lab of a finding into a folder, with what it shows and how to see it
// again, and returns the file's name.
func Write(dir string, f *Finding) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("write finding: %w", err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-seed%d.mcl.yml", f.Lab.Name, f.Seed))
	text := fmt.Sprintf("# seed %d: %s\n# %s\n# replay: mcastlab fuzz --replay %s\n%s",
		f.Seed, f.Class, strings.ReplaceAll(f.Text, "\n", " "), filepath.Base(name), f.Lab.Compact())
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("write finding: %w", err)
	}
	f.File = name
	return name, nil
}
