// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// TestReadActs: an invalid record is refused with its line and the reason.
func TestReadActs(t *testing.T) {
	file := filepath.Join(t.TempDir(), ActsFile)
	l, err := lab.Parse("lab", []byte("name: x\ntopology: {star: {hosts: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(text string) (int, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, _, err := ReadActs(file, l)
		return len(all), err
	}
	const add = `{"at":5,"id":"x","fault":{"schema":"mcastlab/fault/v1","kind":"loss","ends":["h0:0"],"frames":{"loss":0.5}}}` + "\n"
	for text, want := range map[string]int{"": 0, add: 1, add + `{"at":5,"reset":""}`: 2} { // independent of each other
		if n, err := read(text); n != want || err != nil {
			t.Errorf("%s: %d acts, %v", text, n, err)
		}
	}
	for text, want := range map[string]string{
		"\n":                           ":1: EOF",
		add + "{":                      ":2: unexpected EOF",
		add + `{"at":4,"reset":""}`:    ":2: it comes before",
		`{"at":-1,"reset":""}`:         ":1: it comes before",
		`{"at":1}`:                     ":1: it has to add a fault",
		`{"at":1,"fault":{}}`:          ":1: it has to add a fault that has an id",
		`{"at":1,"id":"x","fault":{}}`: ":1: read fault",
		`{"at":1,"id":"x","fault":{},"reset":""}`: ":1: it has to add a fault",
		`{"at":1,"reset":"","until":3}`:           ":1: json: unknown field",
		`{"at":99999999999999999999,"reset":""}`:  ":1: json: cannot unmarshal number",
	} { // independent of each other
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, _, err := ReadActs(file+".not", l); err == nil {
		t.Error("a file that is not there is read")
	}
}
