// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryKeyMisspelt: whichever key of an example is misspelt, the mistake is reported at its place,
// and values that need the key's section are not checked against the empty section in its place.
func TestEveryKeyMisspelt(t *testing.T) {
	files, err := filepath.Glob("../examples/*.mcl.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	key := regexp.MustCompile(`(?m)(?:^|[{,-])[ ]*([a-z][a-z-]*):(?:[ ]|$)`)
	tried := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range key.FindAllSubmatchIndex(text, -1) {
			from, to := at[2], at[3]
			line := string(text[strings.LastIndexByte(string(text[:from]), '\n')+1 : from])
			if strings.Contains(line, "#") || strings.Contains(line, `"`) {
				continue
			}
			bad := string(text[:to]) + "qz" + string(text[to:])
			at := strings.TrimSuffix(line, "{") // a scheme with parameters begins at its brace
			_, err := Reader{Expect: true}.Parse(file, []byte(bad))
			place := regexp.MustCompile(fmt.Sprintf("^%s:%d:(%d|%d): ", regexp.QuoteMeta(file), 1+strings.Count(bad[:from], "\n"), 1+len(at), 1+len(line)))
			if err == nil || !place.MatchString(err.Error()) {
				t.Errorf("%s with %sqz: %v, want a mistake at %v", filepath.Base(file), text[from:to], err, place)
			}
			tried++
		}
	}
	if tried < 200 {
		t.Errorf("%d keys tried, want 200 at least", tried)
	}
}
