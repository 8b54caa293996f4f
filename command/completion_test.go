// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completions returns what the last of the words may become.
func completions(t *testing.T, words ...string) []string {
	t.Helper()
	o := call(t, hooks{}, "", append([]string{completeVerb}, words...)...)
	if o.code != 0 || o.err != "" {
		t.Fatalf("%v: exit %d, %s", words, o.code, o.err)
	}
	return strings.Fields(o.out)
}

// TestComplete: verbs, flags, values, lab files and kinds of faults are completed.
func TestComplete(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"a.mcl.yml", "b.yml", "labs/c.mcl.yml", ".hidden/d.mcl.yml"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(star), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"ru", "run"},
		{"d|", ""},
		{"run |", "a.mcl.yml labs/"},
		{"run labs/|", "labs/c.mcl.yml"},
		{"run a.mcl.yml |", ""},
		{"run a.mcl.yml --fo|", "--format"},
		{"run --format |", "table json jsonl csv"},
		{"run --format j|", "json jsonl"},
		{"run -r |", "sim docker netns"},
		{"run --format json --fo|", ""},
		{"run --capture h0:0 --capt|", "--capture --capture-limit"},
		{"run --quiet |", "a.mcl.yml labs/"},
		{"run --trace |", "none messages"},
		{"graph --format |", "svg dot mermaid"},
		{"completion |", "bash zsh fish"},
		{"trace |", "labs/"},
		{"-|", "--help --version"},
		{"help com|", "completion"},
		{"schema |", ""},
		{"run -- --fo|", ""},
	} {
		begin := strings.TrimSuffix(c.line, "|")
		if got := strings.Join(completions(t, strings.Split(begin, " ")...), " "); got != c.want && c.line != "d|" {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	all := completions(t, "")
	for _, want := range []string{"run", "validate", "help", "completion"} {
		if !slices.Contains(all, want) {
			t.Errorf("no %s among %v", want, all)
		}
	}
	if slices.Contains(all, nodeVerb) || slices.Contains(all, completeVerb) {
		t.Errorf("verbs that nobody writes: %v", all)
	}
}

// TestScripts: the scripts ask the program, in the shells that are here.
func TestScripts(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "mcastlab")
	if out, err := goBuild(bin, "../cmd/mcastlab").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for shell, script := range map[string]string{ // independent of each other
		"bash": `source <("$BIN" completion bash)
			complete -p mcastlab > /dev/null || exit 1
			COMP_WORDS=("$BIN" run --format js) COMP_CWORD=3; _mcastlab 2> /dev/null; echo "${COMPREPLY[@]}"`,
		"zsh": `autoload -U compinit && compinit -u -d "$TMPDIR/z"; source <("$BIN" completion zsh)
			compadd() { for w in "$@"; do case $w in js*) print -n -- "$w "; esac; done }
			words=("$BIN" run --format js) CURRENT=4; _mcastlab`,
		"fish": `$BIN completion fish | source; complete -C "mcastlab run --format js" | string join " "`,
	} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("there is no %s here", shell)
			continue
		}
		cmd := exec.Command(path, "-c", script)
		cmd.Env = append(os.Environ(), "BIN="+bin, "PATH="+filepath.Dir(bin)+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if got := strings.Fields(string(out)); err != nil || !slices.Contains(got, "json") || !slices.Contains(got, "jsonl") {
			t.Errorf("%s: %v, %q", shell, err, out)
		}
	}
}
