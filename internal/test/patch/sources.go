// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Sources returns a folder of sources that go does not compile, as a test that Bites runs is to see them: folder itself or, if the overlay of
// GOFLAGS replaces files of it, a copy of it below dir.
func Sources(dir, folder string) (string, error) {
	_, list, ok := strings.Cut(os.Getenv("GOFLAGS"), "-overlay=")
	if !ok {
		return folder, nil
	}
	list, _, _ = strings.Cut(list, " ")
	text, err := os.ReadFile(list)
	if err != nil {
		return "", fmt.Errorf("read the overlay: %w", err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil {
		return "", fmt.Errorf("read the overlay %s: %w", list, err)
	}
	from, err := filepath.Abs(folder)
	if err != nil {
		return "", fmt.Errorf("read the overlay: %w", err)
	}
	to := filepath.Join(dir, filepath.Base(from))
	copied := false
	for original, changed := range overlay.Replace { // independent of each other
		name, err := filepath.Rel(from, original)
		if err != nil || !filepath.IsLocal(name) || filepath.Ext(name) == ".go" {
			continue
		}
		if !copied {
			if err := os.CopyFS(to, os.DirFS(from)); err != nil {
				return "", fmt.Errorf("copy %s: %w", folder, err)
			}
			copied = true
		}
		text, err := os.ReadFile(changed)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), text, 0o600)
		}
		if err != nil {
			return "", fmt.Errorf("copy %s: %w", original, err)
		}
	}
	if !copied {
		return folder, nil
	}
	return to, nil
}
