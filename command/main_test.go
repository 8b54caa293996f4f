// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/rank"
)

const quickstart = "../examples/quickstart.mcl.yml"

// outcome holds the output and exit code of a call of the program.
type outcome struct {
	code     int
	out, err string
}

func call(t *testing.T, h hooks, in string, args ...string) outcome {
	t.Helper()
	return callCtx(t, t.Context(), h, in, args...)
}

func callCtx(t *testing.T, ctx context.Context, h hooks, in string, args ...string) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(ctx, append([]string{"mcastlab"}, args...), strings.NewReader(in), &out, &errOut, h)
	return outcome{code, out.String(), errOut.String()}
}

// write puts a lab file into a fresh folder.
func write(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "lab.mcl.yml")
	if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

const star = "name: small\ntopology: {star: {hosts: 4}}\nworkloads:\n  - bcast: {schemes: [cepheus, unicast], sizes: [64B, 10kB], iterations: 2}\n"

// TestQuickstart runs the README's command and reads its JSON.
func TestQuickstart(t *testing.T) {
	o := call(t, hooks{}, "", "run", "--format", "json", "--runs", t.TempDir(), "-q", quickstart)
	if o.code != 0 || o.err != "" {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	var r struct {
		Schema   string `json:"schema"`
		Lab      string
		Runtime  string
		Seed     int
		Digest   string
		RunDir   string `json:"run_dir"`
		Fidelity struct {
			Verdict, Reason string
			Dilation        float64
			LagUS           float64 `json:"lag_us"`
		}
		Results []struct {
			Workload, Scheme, Payload string
			SizeBytes                 int `json:"size_bytes"`
			Ranks, Iterations         int
			JCT                       map[string]*float64 `json:"jct_us"`
			Source                    map[string]*float64 `json:"source_us"`
			Verified                  *bool
		}
		Expect []any
	}
	d := json.NewDecoder(strings.NewReader(o.out))
	if err := d.Decode(&r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != "mcastlab/run/v1" || r.Lab != "quickstart" || r.Runtime != "sim" || r.Seed != 1 || len(r.Digest) != 16 || r.Fidelity.Verdict != "ok" || r.Expect == nil {
		t.Errorf("head of the report: %+v", r)
	}
	if len(r.Results) != 20 {
		t.Fatalf("%d rows, want 4 schemes at 5 sizes", len(r.Results))
	}
	jct := map[string]float64{}
	for _, x := range r.Results {
		if x.Ranks != 16 || x.Payload != "bytes" || x.Verified == nil || !*x.Verified || x.JCT["p50"] == nil || x.JCT["p99"] != nil || x.Source["avg"] == nil {
			t.Errorf("row %+v", x)
		}
		if x.Iterations != 1 {
			t.Errorf("%d bytes: %d iterations, want 1", x.SizeBytes, x.Iterations)
		}
		if x.SizeBytes == 4<<20 {
			jct[x.Scheme] = *x.JCT["p50"]
		}
	}
	for _, slow := range []string{"chain", "binomial", "unicast"} {
		if jct["cepheus"]*1.9 > jct[slow] {
			t.Errorf("at 4 MiB cepheus took %.1f us, %s %.1f us", jct["cepheus"], slow, jct[slow])
		}
	}
	for _, name := range []string{"lab.resolved.yml", "meta.json", "events.jsonl", "summary.json"} {
		if _, err := os.Stat(filepath.Join(r.RunDir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestTable: one table, and a plain sentence at the end.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	o := call(t, hooks{}, star, "run", "--runs", dir, "-q", "-")
	want := regexp.MustCompile(`(?s)^ *# Scheme +Size +Avg\(us\) +Min\(us\) +Max\(us\) +P50\(us\) +Source\(us\) +Iter +Verified\n.*cepheus +64B .* 2 +yes \(bytes\)\n.*10kB to 4 ranks: cepheus [0-9.]+ us \(median of 2\), unicast [0-9.]+x; 64B: .*Every byte was right at every receiver\.\n$`)
	if o.code != 0 || !want.MatchString(o.out) {
		t.Errorf("exit %d\n%s", o.code, o.out)
	}
	if o.err != "" {
		t.Errorf("quiet, and stderr has %q", o.err)
	}
	again := call(t, hooks{}, star, "run", "--runs", dir, "-")
	run := filepath.Join(dir, "small-2")
	if !strings.HasSuffix(again.err, "plot: "+filepath.Join(run, "jct-bcast.svg")+"\nrun folder: "+run+"\n") || again.out != o.out {
		t.Errorf("second run: %q", again.err)
	}
	for _, f := range []string{"csv", "jsonl"} {
		o := call(t, hooks{}, star, "run", "--runs", dir, "-q", "--format", f, "-")
		if lines := strings.Count(o.out, "\n"); o.code != 0 || lines != map[string]int{"csv": 5, "jsonl": 4}[f] {
			t.Errorf("%s: exit %d, %d lines\n%s", f, o.code, lines, o.out)
		}
	}
}

// TestFlippedByte: one wrong byte at one receiver is found, said and punished, with
// either kind of checked memory.
func TestFlippedByte(t *testing.T) {
	for _, kind := range []string{"bytes", "hashed"} {
		hit := false
		h := hooks{bcast: bcast.App{Delivered: func(r *rank.Rank, b *rank.Buffer) {
			if r.ID() == 2 && b.Len() == 10000 && !hit {
				hit = true
				b.Flip(1234)
			}
		}}}
		text := strings.Replace(star, "iterations: 2", "iterations: 2, memory: "+kind, 1)
		o := call(t, h, text, "run", "--runs", t.TempDir(), "-q", "--format", "json", "-")
		if o.code != 1 || strings.Count(o.out, `"verified": false`) != 1 || strings.Count(o.out, `"verified": true`) != 3 {
			t.Errorf("%s: exit %d\n%s", kind, o.code, o.out)
		}
		if o.err != "mcastlab: bcast cepheus at 10kB: a receiver got wrong bytes\n" {
			t.Errorf("%s: stderr %q", kind, o.err)
		}
	}
}

// TestExpect: a line that does not hold ends with exit code 1.
func TestExpect(t *testing.T) {
	o := call(t, hooks{}, star+"expect: [bcast.cepheus.64B.jct.p50 < 1000, bcast.cepheus.64B.jct.p50 < 0.1]\n", "run", "--runs", t.TempDir(), "-q", "-")
	if o.code != 1 || !strings.Contains(o.out, "[PASS] bcast.cepheus.64B.jct.p50 < 1000\n[FAIL] bcast.cepheus.64B.jct.p50 < 0.1\n") {
		t.Errorf("exit %d\n%s", o.code, o.out)
	}
	if !strings.HasPrefix(o.err, `mcastlab: expect "bcast.cepheus.64B.jct.p50 < 0.1" does not hold: its left side is`) {
		// The run folder's line comes first.
		if !strings.Contains(o.err, `does not hold`) {
			t.Errorf("stderr %q", o.err)
		}
	}
}

// TestBadInput: each mistake is one clear line and the right exit code.
func TestBadInput(t *testing.T) {
	lab := func(text string) []string { return []string{"run", "-q", "--runs", t.TempDir(), write(t, text)} }
	dir := t.TempDir()
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"missing file", []string{"run", "/no/such.mcl.yml"}, 2, "/no/such.mcl.yml: no such lab file"},
		{"empty folder", []string{"run", dir}, 2, "there is no *.mcl.yml in"},
		{"empty file", lab(""), 3, "the file is empty"},
		{"tabs", lab("name: x\n\tseed: 1\n"), 3, ":2:1: a tab indents the line"},
		{"unknown key", lab("nam: x\n"), 3, `:1:1: unknown key "nam", did you mean "name"?`},
		{"wrong unit", lab(strings.Replace(star, "64B", "64Gbps", 1)), 3, `"64Gbps" needs a number and a unit`},
		{"k of 1", lab(strings.Replace(star, "star: {hosts: 4}", "fat-tree: {k: 1}", 1)), 3, "k must be 2 to 64"},
		{"group of one", lab(strings.Replace(star, "iterations: 2", "ranks: [h0]", 1)), 3, "a broadcast needs at least two ranks"},
		{"unknown host", lab(strings.Replace(star, "iterations: 2", "ranks: [h0, h7]", 1)), 3, `there is no host "h7": there are h0 to h3`},
		{"root not in ranks", lab(strings.Replace(star, "iterations: 2", "root: h3, ranks: [h0, h1]", 1)), 3, "root h3 is not among the ranks"},
		{"size over 2 GiB", lab(strings.Replace(star, "64B", "2.5GiB", 1)), 3, "more than the 2GiB"},
		{"negative loss", lab(star + "faults: [{loss: {rate: -1}}]\n"), 3, "loss.rate of -1 is not a probability"},
		{"rank that waits for ever", lab(star + "nics: {timeout: infinite}\nfaults: [{loss: {rate: 1, links: leaf0-h2}, at: 1ms}, {loss: {rate: 0.4}, at: 25us}]\n"), 4, "deadlock: waiting on nothing that can happen: "},
		{"nothing to run", lab("name: x\ntopology: {star: {hosts: 4}}\n"), 3, "there is nothing to run"},
		{"unknown command", []string{"rnu"}, 2, `no command "rnu"`},
		{"unknown flag", []string{"run", "--fast", "x"}, 2, "run has no flag --fast"},
		{"bad format", []string{"run", "--format", "xml", quickstart}, 2, `no format "xml"`},
		{"two labs", []string{"run", quickstart, quickstart}, 2, "takes one lab file, not 2"},
		{"unknown port", []string{"run", "-q", "--runs", dir, "--capture", "h99:0", quickstart}, 2, `capture "h99:0": no port has that name`},
		{"bad drawing", []string{"graph", "--format", "png", quickstart}, 2, `no drawing format "png"`},
		{"bad shell", []string{"completion", "csh"}, 2, `not "csh"`},
		{"stray argument", []string{"version", "x"}, 2, "version takes no argument"},
	} {
		o := call(t, hooks{}, "", c.args...)
		if o.code != c.code || !strings.Contains(o.err, c.want) {
			t.Errorf("%s: exit %d, want %d\n got %swant %s", c.name, o.code, c.code, o.err, c.want)
		}
		// Results there are come with the line that says where the run folder is.
		said := regexp.MustCompile(`^run folder: .*\n`).ReplaceAllString(o.err, "")
		if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "mcastlab: ") {
			t.Errorf("%s: not one line: %q", c.name, o.err)
		}
	}
}

// TestCancel: an interrupt in the middle of a run ends it with 130 and a folder that
// can be read and holds what there was.
func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := hooks{complete: 5 * time.Minute, bcast: bcast.App{Delivered: func(_ *rank.Rank, b *rank.Buffer) {
		if b.Len() == 4<<20 {
			cancel()
		}
	}}}
	dir := t.TempDir()
	// With bytes, 32,768 events take 3 s of a busy server under the race detector.
	text := strings.Replace(star, "[64B, 10kB], iterations: 2", "[64B, 4MiB], iterations: 500, memory: phantom", 1)
	o := callCtx(t, ctx, h, text, "run", "--runs", dir, "-q", "-")
	if o.code != 130 || !strings.HasSuffix(o.err, "mcastlab: interrupted\n") {
		t.Errorf("exit %d, %q", o.code, o.err)
	}
	var meta struct{ Status string }
	var summary struct {
		Results []struct{ Scheme string }
	}
	for name, v := range map[string]any{"meta.json": &meta, "summary.json": &summary} { // independent of each other
		b, err := os.ReadFile(filepath.Join(dir, "small-1", name))
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			t.Error(err)
		}
	}
	if meta.Status != "interrupted" || len(summary.Results) != 1 {
		t.Errorf("status %q, results %+v; want interrupted and the one size that was done", meta.Status, summary.Results)
	}
	b, err := os.ReadFile(filepath.Join(dir, "small-1", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if !json.Valid([]byte(l)) {
			t.Errorf("line %d of events.jsonl is not JSON: %s", i+1, l)
		}
	}
}

// goBuild returns the command that builds a program: for root as make build does, static, as it
// may become the image of containers. Others take what go test has compiled already.
func goBuild(path, pkg string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-o", path, pkg)
	if os.Geteuid() == 0 {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	return cmd
}

// TestSignal: the same with a real process and a real signal.
func TestSignal(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "mcastlab")
	if out, err := goBuild(bin, "../cmd/mcastlab").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dir := t.TempDir()
	lab := write(t, strings.Replace(star, "iterations: 2", "iterations: 10000000", 1))
	cmd := exec.Command("timeout", "--signal=INT", "--preserve-status", "1", bin, "run", "--runs", dir, lab)
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit %d (%v)\n%s", code, err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "small-1", "summary.json"))
	if err != nil || !json.Valid(b) {
		t.Errorf("summary.json: %v", err)
	}
}

// TestDeterminism: one seed gives one digest, another seed another.
func TestDeterminism(t *testing.T) {
	digest := func(args ...string) string {
		o := call(t, hooks{}, star+"faults: [{loss: {rate: 0.01}}]\n", append(append([]string{"run", "--runs", t.TempDir(), "-q", "--format", "json"}, args...), "-")...)
		m := regexp.MustCompile(`"digest": "([0-9a-f]{16})"`).FindStringSubmatch(o.out)
		if o.code != 0 || m == nil {
			t.Fatalf("exit %d %s\n%s", o.code, o.err, o.out)
		}
		return m[1]
	}
	a, b, c := digest(), digest("--check"), digest("--seed", "2")
	if a != b || a == c {
		t.Errorf("digests %s and %s of one seed, %s of another", a, b, c)
	}
}

// TestValidateWarns: switches in a ring under PFC can deadlock; without it they cannot. A run
// says the same before it begins.
func TestValidateWarns(t *testing.T) {
	const ring = "name: ring\ntopology:\n  custom:\n    hosts: [a, b, c, d, e]\n    switches: [s, t, u, v, w]\n" +
		"    links: [a-s, b-t, c-u, d-v, e-w, s-t, t-u, u-v, v-w, w-s]\n"
	o := call(t, hooks{}, "", "validate", write(t, ring))
	if o.code != 0 || !regexp.MustCompile(`^warning: priority flow control can deadlock: .*, [stuvw]( > [stuvw]){5}\. In a custom topology a multicast tree may take any port: use .*\n$`).MatchString(o.err) {
		t.Errorf("exit %d, %q", o.code, o.err)
	}
	const work = "workloads: [{bcast: {schemes: [unicast], sizes: [64B], iterations: 1}}]\n"
	r := call(t, hooks{}, "", "run", "--runs", t.TempDir(), write(t, ring+work))
	if first, _, _ := strings.Cut(r.err, "\n"); r.code != 0 || first+"\n" != o.err {
		t.Errorf("run: exit %d, %q, and validate says %q", r.code, first, o.err)
	}
	if o := call(t, hooks{}, "", "validate", write(t, ring+"switches: {pfc: false}\n")); o.code != 0 || o.err != "" {
		t.Errorf("without PFC: exit %d, %q", o.code, o.err)
	}
}

// TestOtherCommands looks at what the small commands print.
func TestOtherCommands(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"validate", quickstart}, `^quickstart: 16 hosts, 20 switches, 48 links, 1 workload: ok\n$`},
		{[]string{"validate", "--resolved", quickstart}, `(?s)^name: quickstart\nseed: 1\n.*  timeout: 4\.194304ms\n.*      schemes:\n        - name: cepheus\n          label: cepheus\n`},
		{[]string{"graph", quickstart}, `(?s)^<svg .*</svg>\n$`},
		{[]string{"graph", "--format", "dot", quickstart}, `(?s)^graph "quickstart: 16 hosts, 20 switches, 100Gbps links" \{.*"leaf0" -- "agg0"`},
		{[]string{"graph", "--format", "mermaid", quickstart}, `(?s)^---\ntitle: .*n_leaf0 --- n_agg0`},
		{[]string{"schema"}, `(?s)^\{.*"fat-tree"`},
		{[]string{"version"}, `^mcastlab \S+\n$`},
		{[]string{"completion", "bash"}, `complete .* mcastlab\n$`},
		{[]string{"completion", "zsh"}, `^#compdef mcastlab`},
		{[]string{"completion", "fish"}, `complete -c mcastlab`},
		{[]string{"help"}, `EXIT CODES`},
	} {
		o := call(t, hooks{}, "", c.args...)
		if o.code != 0 || o.err != "" || !regexp.MustCompile(c.want).MatchString(o.out) {
			t.Errorf("%v: exit %d, %q\n%s", c.args, o.code, o.err, o.out)
		}
	}
	t.Setenv("MCASTLAB_RUN_FORMAT", "csv")
	if o := call(t, hooks{}, star, "run", "-q", "--runs", t.TempDir(), "-"); !strings.HasPrefix(o.out, "workload,scheme,") {
		t.Errorf("the environment variable of a flag has no effect: %s", o.out)
	}
}

// TestFaultsShow: loss, duplication, reordering, damage and pauses of the lab file
// reach the wire, and the bytes are right all the same.
func TestFaultsShow(t *testing.T) {
	text := star + `faults:
  - {loss: {rate: 0.02}}
  - {corrupt: {rate: 0.02, links: leaf0-h1}}
  - {duplicate: {rate: 0.02, links: "h*:0-leaf0:*"}, at: 1us, for: 10s}
  - {reorder: {rate: 0.02, delay: 3us}}
  - {pause: {node: h2}, at: 30us, for: 100us}
`
	text = strings.Replace(text, "iterations: 2", "iterations: 40", 1)
	dir := t.TempDir()
	o := call(t, hooks{}, text, "run", "-q", "--check", "--runs", dir, "-")
	if o.code != 0 {
		t.Fatalf("exit %d %s", o.code, o.err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "small-1", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"event":"pause-sent"`, `"text":"icrc"`, `"event":"nak-sent"`, `"event":"result"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("events.jsonl lacks %s", want)
		}
	}
}
