// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBaseline: a run beside the run without its faults has both in the table and on its page, each with a folder of its own, and what
// the lab expects is of the run with them. A row that the faults kept from its end has a dash.
func TestBaseline(t *testing.T) {
	const head = "name: b\ntopology: {star: {hosts: 4}}\nnics: {timeout: 262us, retries: 1}\n"
	const work = "workloads: [{bcast: {schemes: [cepheus, chain], sizes: [1MiB], iterations: 1}}]\n"
	const loss = "faults: [{loss: {links: h1-leaf0, direction: down, frames: {kind: data}, nth: [100]}}]\n"
	runs := t.TempDir()
	file := write(t, head+work+loss+"expect: [bcast.cepheus.1MiB.jct.p50 > 90us]\n")
	whole := call(t, hooks{}, "", "run", "-q", "--runs", runs, "--baseline", file)
	if whole.code != 0 {
		t.Fatalf("exit code %d\n%s%s", whole.code, whole.out, whole.err)
	}
	for _, want := range []string{
		`(?m)^\[PASS\] bcast.cepheus.1MiB.jct.p50 > 90us$`,
		`(?m)^Without the faults \(\S+b-1\) and with them \(\S+b-2\):$`,
		`(?m)^ +cepheus +1MiB +87\.50 us +95\.52 us +1\.09x$`, `(?m)^ +chain +1MiB +134\.27 us +138\.62 us +1\.03x$`,
	} {
		if !regexp.MustCompile(want).MatchString(whole.out) {
			t.Errorf("%s lacks %s", whole.out, want)
		}
	}
	page, err := os.ReadFile(filepath.Join(runs, "b-2", "report.html"))
	if err != nil || !strings.Contains(string(page), "b-1") || !strings.Contains(string(page), "b-2") {
		t.Errorf("the page lacks one of the runs: %v", err)
	}
	crash := write(t, head+work+"faults: [{in: run, at: 150us, crash: {node: h1}}]\n") // in the second row
	o := call(t, hooks{}, "", "run", "-q", "--runs", runs, "--baseline", crash)
	if o.code != exitRuntime || !regexp.MustCompile(`(?m)^ +chain +1MiB +134\.27 us +- +-$`).MatchString(o.out) {
		t.Errorf("a crash: exit code %d\n%s%s", o.code, o.out, o.err)
	}
	for _, c := range []struct{ text, flags, want string }{
		{head + work, "", "the lab has none: add faults, or leave it out"},
		{head + work + loss, "--format json", "leave --format json out"},
		{head + work + loss, "--acts x", "has faults of another run"},
		{head + work + loss, "-r netns", "is for simulations"},
		{head + work + loss + "sweep: {over: [{key: seed, values: [1, 2]}]}\n", "", "is for a single run"},
	} {
		o := call(t, hooks{}, "", append([]string{"run", "-q", "--runs", runs, "--baseline", write(t, c.text)}, strings.Fields(c.flags)...)...)
		if o.code != exitUsage || !strings.Contains(o.err, c.want) {
			t.Errorf("%s: exit code %d, %q lacks %q", c.flags, o.code, o.err, c.want)
		}
	}
}
