// SPDX-License-Identifier: Apache-2.0

package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const traced = "name: small\ntopology: {star: {hosts: 4}}\ntrace: messages\nworkloads:\n  - bcast: {schemes: [cepheus, unicast], sizes: [64B, 10kB], iterations: 2}\n"

// runOnce runs a lab and returns its folder.
func runOnce(t *testing.T, text string, flags ...string) string {
	t.Helper()
	runs := t.TempDir()
	args := append([]string{"run", "-q", "--format", "json", "--runs", runs}, flags...)
	if o := call(t, hooks{}, "", append(args, write(t, text))...); o.code != 0 {
		t.Fatalf("exit %d, %s", o.code, o.err)
	}
	all, err := filepath.Glob(filepath.Join(runs, "*"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	return all[0]
}

// TestTrace: each view of a run as text and as JSON, flags before the run or after it.
func TestTrace(t *testing.T) {
	dir := runOnce(t, traced)
	for _, c := range []struct {
		args   []string
		schema string
		text   string
	}{
		{nil, "mcastlab/messages/v1", "Worst receiver"},
		{[]string{"--message", "3"}, "mcastlab/story/v1", "Message 3: bcast cepheus, 10000 bytes, iteration 1, from h0 to 3 receivers"},
		{[]string{"--explain"}, "mcastlab/explain/v1", "serialisation"},
		{[]string{"-e", "-m=8"}, "mcastlab/explain/v1", "Critical path, to h"},
	} {
		for _, after := range []bool{false, true} {
			args := append(append([]string{"trace"}, c.args...), dir)
			if after {
				args = append([]string{"trace", dir}, c.args...)
			}
			if o := call(t, hooks{}, "", args...); o.code != 0 || !strings.Contains(o.out, c.text) || o.err != "" {
				t.Errorf("%v: exit %d, %s, no %q in\n%s", args, o.code, o.err, c.text, o.out)
			}
			var v struct{ Schema string }
			o := call(t, hooks{}, "", append(args[:1:1], append([]string{"--format", "json"}, args[1:]...)...)...)
			if err := json.Unmarshal([]byte(o.out), &v); err != nil || v.Schema != c.schema || o.code != 0 {
				t.Errorf("%v: exit %d, schema %q, %v: %s", args, o.code, v.Schema, err, o.err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "perfetto.json")
	o := call(t, hooks{}, "", "trace", dir, "--perfetto", "-o", out)
	b, err := os.ReadFile(out)
	if o.code != 0 || err != nil || !json.Valid(b) || !strings.Contains(o.err, "ui.perfetto.dev") {
		t.Errorf("exit %d, %s, %v, %d bytes", o.code, o.err, err, len(b))
	}
	if o := call(t, hooks{}, "", "trace", "--perfetto", dir); o.out != string(b) {
		t.Error("on standard output there is something else")
	}
}

// TestTraceErrors: what is wrong, and what to do about it.
func TestTraceErrors(t *testing.T) {
	dir, without := runOnce(t, traced), runOnce(t, traced, "--trace", "none")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	damaged := runOnce(t, star, "--trace", "messages")
	if err := os.WriteFile(filepath.Join(damaged, "trace.jsonl"), []byte("{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{}, 2, "trace takes one run folder, not 0"},
		{[]string{dir, dir}, 2, "trace takes one run folder, not 2"},
		{[]string{"runs/nowhere-1"}, 2, "runs/nowhere-1: no such run folder"},
		{[]string{file}, 4, file + " is not a run folder"},
		{[]string{without}, 4, without + " has no trace.jsonl: write trace: messages into the lab file, or run with --trace messages"},
		{[]string{damaged}, 4, "read trace of " + damaged + ": its first line is not of the schema mcastlab/trace/v1"},
		{[]string{dir, "--message", "99"}, 4, dir + " has no message 99: it has 1 to 8 (mcastlab trace " + dir + " lists them)"},
		{[]string{dir, "--format", "csv"}, 2, `no format "csv": use table or json`},
		{[]string{dir, "--slowest", "0"}, 2, "--slowest 0: use 1 or more"},
		{[]string{dir, "--slowest", "3", "--explain"}, 2, "--slowest is for the list: leave --message, --explain and --perfetto out"},
		{[]string{dir, "-o", "x"}, 2, "-o goes with --perfetto"},
		{[]string{dir, "--perfetto", "--explain"}, 2, "--perfetto exports all messages, in its own format: leave --message, --explain and --format out"},
	} {
		if o := call(t, hooks{}, "", append([]string{"trace"}, c.args...)...); o.code != c.code || o.err != "mcastlab: "+c.err+"\n" || o.out != "" {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, o.code, o.err, c.code, c.err)
		}
	}
	short := runOnce(t, traced)
	name := filepath.Join(short, "trace.jsonl")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{short}, {short, "--format", "json"}, {short, "--explain"}, {short, "--perfetto"}} {
		o := call(t, hooks{}, "", append([]string{"trace"}, args...)...)
		if o.code != 4 || o.out == "" || !strings.HasPrefix(o.err, "mcastlab: read trace of "+short+": the trace has no end after its ") {
			t.Errorf("%v of half a trace: exit %d, %s\n%s", args, o.code, o.err, o.out)
		}
	}
	if o := call(t, hooks{}, "", "run", "--trace", "all", "-q", write(t, star)); o.code != 2 || o.err != "mcastlab: no trace \"all\": use none or messages\n" {
		t.Errorf("exit %d, %s", o.code, o.err)
	}
}
