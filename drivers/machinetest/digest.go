// SPDX-License-Identifier: Apache-2.0

package machinetest

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// transcripts is the folder for the texts behind a Digest.
var transcripts = flag.String("transcripts", "", "folder to write the transcripts of sweeps to, to compare those of two versions")

// Digest stands for transcripts that are too long, or too many, to be golden files: a line
// for each.
type Digest struct {
	t     *testing.T
	lines strings.Builder
}

// NewDigest returns one without transcripts.
func NewDigest(t *testing.T) *Digest { return &Digest{t: t} }

// Add adds a transcript under a name, which may be that of a file.
func (d *Digest) Add(name, text string) {
	d.t.Helper()
	fmt.Fprintf(&d.lines, "%-14s %6d lines %x\n", name, strings.Count(text, "\n"), sha256.Sum256([]byte(text)))
	if *transcripts == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*transcripts, name+".txt"), []byte(text), 0o644); err != nil {
		d.t.Fatal(err)
	}
}

// Golden compares the digest with testdata/name.txt.
func (d *Digest) Golden(name string) {
	d.t.Helper()
	Golden(d.t, name, d.lines.String())
}
