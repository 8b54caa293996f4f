// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"os"
	"regexp"
	"testing"
)

// TestMessageTable: the table of messages in the package comment has a row for each kind of step.
func TestMessageTable(t *testing.T) {
	code, err := os.ReadFile("messages.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := regexp.MustCompile(`(?m)^\tkind\w+ +kind = "(\w+)"`).FindAllSubmatch(code, -1)
	if len(kinds) < 8 {
		t.Fatalf("%d kinds of steps found", len(kinds))
	}
	for _, k := range kinds {
		if !regexp.MustCompile(`(?m)^//\t` + string(k[1]) + ` +\w`).Match(doc) {
			t.Errorf("the table lacks %s", k[1])
		}
	}
}
