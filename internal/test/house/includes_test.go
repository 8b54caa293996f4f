// SPDX-License-Identifier: Apache-2.0

package house

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var includes = regexp.MustCompile(`(?m)^#\s*include\s+"([^"]+)"`)

// TestIncludes: the headers of verbs include each other in no circle, and no file includes C source.
func TestIncludes(t *testing.T) {
	of := map[string][]string{}
	err := filepath.WalkDir("verbs", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".c") && !strings.HasSuffix(name, ".h") {
			return err
		}
		text, err := os.ReadFile(name)
		name = filepath.ToSlash(name)
		of[name] = nil
		for _, m := range includes.FindAllStringSubmatch(string(text), -1) {
			to := path.Join(path.Dir(name), m[1])
			if strings.HasSuffix(to, ".c") {
				t.Errorf("%s includes %s: declare what it needs in a header", name, to)
			}
			of[name] = append(of[name], to)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(of) == 0 {
		t.Fatal("verbs has no C files")
	}
	done := map[string]bool{}
	var look func(name string, way []string)
	look = func(name string, way []string) {
		for i, w := range way {
			if w == name {
				t.Errorf("includes in a circle: %s", strings.Join(append(way[i:], name), " > "))
				return
			}
		}
		if done[name] {
			return
		}
		done[name] = true
		if _, found := of[name]; !found {
			t.Errorf("%s includes %s, which is not in verbs", way[len(way)-1], name)
			return
		}
		for _, to := range of[name] {
			look(to, append(way, name))
		}
	}
	for name := range of {
		look(name, nil)
	}
}
