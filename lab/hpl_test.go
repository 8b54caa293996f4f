package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

const hplLab = "name: a\ntopology: {star: {hosts: 4}}\nworkloads:\n  - hpl: {%s}\n"

func TestHPLMistakes(t *testing.T) {
	const good = "n: [64], nb: [16], grids: [2x2], bcast: [1ring]"
	for _, c := range []struct{ keys, want string }{
		{good, ""},
		{good + ", ranks: [h0..h2]", "x:4:10: workloads[0].hpl: a grid of 2 x 2 does not fit 3 ranks"},
		{strings.Replace(good, "2x2", "2x3", 1), "x:4:10: workloads[0].hpl: a grid of 2 x 3 does not fit 4 ranks"},
		{strings.Replace(good, "2x2", "two", 1), `x:4:10: workloads[0].hpl: "two" is not a grid: write rows x columns: 2x2`},
		{strings.Replace(good, "64", "0", 1), "x:4:10: workloads[0].hpl: a matrix of order 0: N must be at least 1"},
		{strings.Replace(good, "16", "65", 1), "x:4:10: workloads[0].hpl: blocks of 65 columns do not fit a matrix of order 64"},
		{strings.Replace(good, "64", "99999", 1), "a matrix of order 99999 does not fit into memory (at most 16384): use cost-only: true"},
		{strings.Replace(good, "1ring", "ring", 1), `no panel broadcast "ring": use 1ring, 1ringM`},
		{good + ", epochs: 2", "2 epochs: a run of some panels only is for cost-only"},
		{good + ", gflops: -1", "-1 GFLOP/s"},
		{good + ", swap: roll", `workloads[0].hpl.swap cannot be "roll"`},
		{"nb: [16]", `workloads[0].hpl needs "n", or "dat"`},
		{"dat: ../HPL.dat", "../HPL.dat is not in the lab file's folder or below it"},
		{"dat: none.dat", "read none.dat: openat none.dat: no such file"},
		{good + ", dat: HPL.dat", "HPL.dat says what n, nb, grids and bcast say: give either"},
	} {
		l, err := Parse("x", fmt.Appendf(nil, hplLab, c.keys))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.keys, err, c.want)
		case err == nil:
			again, err := Parse("y", l.Resolved())
			if err != nil || !bytes.Equal(again.Resolved(), l.Resolved()) || !reflect.DeepEqual(again.Workloads, l.Workloads) {
				t.Errorf("resolved, it is another lab: %v\n%s", err, l.Resolved())
			}
		}
	}
	both := "name: a\ntopology: {star: {hosts: 4}}\nworkloads:\n  - hpl: {" + good + "}\n    bcast: {schemes: [cepheus], sizes: [1KiB]}\n"
	if _, err := Parse("x", []byte(both)); err == nil || !strings.Contains(err.Error(), "a workload needs one kind: bcast, allgather, reduce-scatter, fsdp, hpl, storage, program or many-to-many") {
		t.Error(err)
	}
}

// TestHPLDat: what HPL.dat says is the lab's, and the lab does not need the file again.
func TestHPLDat(t *testing.T) {
	dir := t.TempDir()
	var b strings.Builder
	for _, line := range []string{
		"", "", "HPL.out", "6", "1", "64 Ns", "1", "16", "1", "1", "2", "2", "12.5", "1", "2", "1", "4", "1", "2", "1", "1",
		"2", "4 cepheus", "2", "0 1", "multicast", "60", "0", "0", "1", "8",
	} {
		b.WriteString(line + "\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "HPL.dat"), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Parse(filepath.Join(dir, "x.mcl.yml"), fmt.Appendf(nil, hplLab, "dat: HPL.dat, gflops: 10"))
	if err != nil {
		t.Fatal(err)
	}
	h := l.Workloads[0].HPL
	p, err := h.params()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Tests) != 4 || p.Tests[3].Label != "cepheus_depth1" || p.Tests[3].TV() != "WC1XC2R4" || p.Threshold != 12.5 || p.GFlops != 10 || h.Dat != "" {
		t.Errorf("%+v", p)
	}
	if p.Tests[0].Bcast != "long" || p.Tests[0].Swap != "multicast" || p.Tests[0].SwapThreshold != 60 {
		t.Errorf("%+v", p.Tests[0])
	}
	if again, err := Parse("elsewhere", l.Resolved()); err != nil || !reflect.DeepEqual(again.Workloads, l.Workloads) {
		t.Errorf("resolved, it is another lab: %v\n%s", err, l.Resolved())
	}
}

// TestDatStaysInFolder: no way out of the lab file's folder is followed, nothing but a
// regular file is read, and no message shows what a file holds.
func TestDatStaysInFolder(t *testing.T) {
	const secret = "root:$6$topsecret"
	top := t.TempDir()
	dir := filepath.Join(top, "labs")
	made := []error{
		os.MkdirAll(filepath.Join(dir, "below"), 0o755), os.Mkdir(filepath.Join(top, "out"), 0o755),
		os.WriteFile(filepath.Join(top, "out", "shadow"), []byte(strings.Repeat(secret+"\n", 40)), 0o600),
		os.WriteFile(filepath.Join(dir, "below", "own"), []byte(strings.Repeat(secret+"\n", 40)), 0o600),
		os.WriteFile(filepath.Join(dir, "long"), make([]byte, datBytesMax+1), 0o600),
		os.Symlink(filepath.Join(top, "out", "shadow"), filepath.Join(dir, "absolute")),
		os.Symlink("../out/shadow", filepath.Join(dir, "relative")),
		os.Symlink("relative", filepath.Join(dir, "chain")),
		os.Symlink("../out", filepath.Join(dir, "folder")),
		os.Symlink("/dev/zero", filepath.Join(dir, "zero")),
		os.Symlink("below/own", filepath.Join(dir, "inside")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
	}
	if err := errors.Join(made...); err != nil {
		t.Fatal(err)
	}
	const escapes, plain = "path escapes from parent", "it is not a text file of at most 65536 bytes"
	for _, c := range []struct{ dat, want string }{
		{"absolute", escapes}, {"relative", escapes}, {"chain", escapes}, {"folder/shadow", escapes}, {"zero", escapes}, {"below/../../out/shadow", "not in the lab file's folder"},
		{"pipe", plain}, {"long", plain}, {"below", plain}, {"inside", "line 5: a value is not a whole number"}, {"below/own", "line 5: a value is not a whole number"},
	} {
		_, err := Parse(filepath.Join(dir, "x.mcl.yml"), fmt.Appendf(nil, hplLab, "dat: "+c.dat))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", c.dat, err, c.want)
		}
	}
}
