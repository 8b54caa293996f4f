// SPDX-License-Identifier: Apache-2.0

// Package interop holds no code: its tests check mcastlab's packets by other programs, Wireshark's
// dissectors and scapy's ICRC. They are skipped where these are missing, unless MCASTLAB_REQUIRE_TOOLS
// is set, as it is in CI.
package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// tool returns the path of a program, or skips the test if it is not installed.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p
		}
	}
	if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
		t.Fatalf("%v is not installed", names)
	}
	t.Skipf("%v is not installed", names)
	return ""
}

// output runs a program and returns its output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, errOut.String())
	}
	return out.String()
}

const lossyLab = `name: captured
topology: {fat-tree: {k: 4}}
links: {ip: 4, vlan: 0}
workloads:
  - bcast: {schemes: [cepheus, binomial, unicast], sizes: [0B, 61B, 64KiB], iterations: 2}
faults:
  - {loss: {rate: 2e-3}}
  - {duplicate: {rate: 1e-3}}
`

// framings are the link settings under which the same packets are sent, and the tshark filter
// for the RoCE packets of each.
var framings = []struct{ name, links, filter string }{
	{"IPv4", "ip: 4, vlan: 0", "infiniband && ip && !vlan"},
	{"IPv6 in a VLAN", "ip: 6, vlan: 7", "infiniband && ipv6 && vlan.id == 7"},
}

// capture runs the lossy lab with all ports captured and returns one merged file.
func capture(t *testing.T, links string) string {
	t.Helper()
	l, err := lab.Parse("captured", []byte(strings.Replace(lossyLab, "ip: 4, vlan: 0", links, 1)))
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Captures: []string{"*:*"}})
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Failures(); len(f) > 0 {
		t.Fatal(f)
	}
	files, err := filepath.Glob(filepath.Join(r.RunDir, "*.pcapng"))
	if err != nil || len(files) != 96 {
		t.Fatalf("%d capture files, want one for each of 96 ports (%v)", len(files), err)
	}
	merged := filepath.Join(r.RunDir, "all.pcapng")
	output(t, tool(t, "mergecap"), append([]string{"-w", merged}, files...)...)
	return merged
}

// TestWireshark: tshark dissects every frame of a lossy run at all ports without
// finding one malformed, and sees the opcodes that were sent.
func TestWireshark(t *testing.T) {
	tshark := tool(t, "tshark")
	for _, c := range framings {
		t.Run(c.name, func(t *testing.T) { dissect(t, tshark, capture(t, c.links), c.filter) })
	}
}

// dissect checks a capture with tshark.
func dissect(t *testing.T, tshark, file, filter string) {
	args := []string{"-r", file, "--disable-protocol", "rpcordma", "-o", "udp.check_checksum:TRUE"}
	if bad := output(t, tshark, append(args, "-Y", "_ws.malformed || udp.checksum.status == 0 && !infiniband")...); bad != "" {
		t.Errorf("tshark finds malformed frames, or wrong UDP checksums:\n%s", first(bad, 5))
	}
	if other := output(t, tshark, append(args, "-Y", "infiniband && !("+filter+")")...); other != "" {
		t.Errorf("tshark finds RoCE packets that are not %s:\n%s", filter, first(other, 5))
	}
	ops := map[string]int{}
	for _, op := range strings.Fields(output(t, tshark, append(args, "-Y", "infiniband", "-T", "fields", "-e", "infiniband.bth.opcode")...)) {
		ops[op]++
	}
	for _, op := range []string{"0", "1", "2", "4", "17"} { // SEND first, middle, last, only; acknowledge
		if ops[op] == 0 {
			t.Errorf("tshark sees no frame of opcode %s: %v", op, ops)
		}
	}
	if plain := output(t, tshark, append(args, "-Y", "infiniband.bth.m == 0")...); plain != "" {
		t.Errorf("tshark finds packets without MigReq:\n%s", first(plain, 5))
	}
	names := output(t, tshark, append(args, "-T", "fields", "-e", "frame.interface_name")...)
	for _, want := range []string{"h0:0", "leaf7:3", "core3:3"} {
		if !strings.Contains(names, want+"\n") {
			t.Errorf("no frame of interface %s", want)
		}
	}
	// Time stamps are lab time: the first frame is sent within a hundred microseconds of 0.
	if first := strings.Fields(output(t, tshark, append(args, "-c", "1", "-T", "fields", "-e", "frame.time_epoch")...)); len(first) != 1 || !strings.HasPrefix(first[0], "0.0000") {
		t.Errorf("the first frame is stamped %v", first)
	}
}

// scapy returns a Python that has scapy, or skips the test.
func scapy(t *testing.T) string {
	t.Helper()
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import scapy.contrib.roce").Run(); err != nil {
		return tool(t, "scapy-is-missing")
	}
	return python
}

// TestScapyICRC: the ICRC that scapy computes is the one that the frame carries, for 5,000
// frames, bridged ones among them.
func TestScapyICRC(t *testing.T) {
	python := scapy(t)
	for _, c := range framings {
		t.Run(c.name, func(t *testing.T) {
			got := strings.TrimSpace(output(t, python, "testdata/icrc.py", capture(t, c.links), "5000"))
			if got != "checked 5000 wrong 0" {
				t.Errorf("scapy: %s", got)
			}
		})
	}
}

// TestCaptureLimit: captures stop at their limit, and the frames that were left out are counted
// and reported.
func TestCaptureLimit(t *testing.T) {
	l, err := lab.Parse("captured", []byte(lossyLab))
	if err != nil {
		t.Fatal(err)
	}
	r, err := runner.Simulate(t.Context(), l, runner.Options{Base: t.TempDir(), Captures: []string{"leaf0:*"}, CaptureBytes: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(r.RunDir, "*.pcapng"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	total := int64(0)
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total > 102_000 || total < 80_000 {
		t.Errorf("captures have %d bytes, the limit is 100000", total)
	}
	meta, err := os.ReadFile(filepath.Join(r.RunDir, "meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cut int
	if _, after, ok := strings.Cut(string(meta), `"capture_frames_cut": `); ok {
		fmt.Sscan(after, &cut)
	}
	if cut == 0 || r.CaptureCut != uint64(cut) {
		t.Errorf("%d frames were cut by meta.json, %d by the report", cut, r.CaptureCut)
	}
}

func first(s string, lines int) string {
	all := strings.SplitN(s, "\n", lines+1)
	return strings.Join(all[:min(lines, len(all))], "\n")
}
