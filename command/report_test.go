// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestReport: a run's page goes to its folder, or where it is asked for; what is no run is refused.
func TestReport(t *testing.T) {
	t.Chdir(t.TempDir())
	file := write(t, "name: paged\ntopology: {star: {hosts: 3}}\nworkloads: [{bcast: {schemes: [cepheus, chain], sizes: [1KiB]}}]\n")
	do := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := run(t.Context(), append([]string{"mcastlab"}, args...), nil, &out, &errOut, hooks{})
		return code, out.String(), errOut.String()
	}
	for _, dir := range []string{"runs/paged-1", "runs/paged-2"} {
		if code, _, said := do("run", "-q", file); code != exitOK {
			t.Fatal(said)
		}
		if page, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !bytes.Contains(page, []byte("Load: time for which a link was busy")) {
			t.Errorf("the run has left no page: %v", err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
			t.Error(left)
		}
	}
	if err := os.Remove("runs/paged-1/report.html"); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		file string
	}{{[]string{"runs/paged-1"}, "runs/paged-1/report.html"}, {[]string{"runs/paged-1", "runs/paged-2", "-o", "both.html"}, "both.html"}} {
		code, out, said := do(append([]string{"report"}, c.args...)...)
		page, err := os.ReadFile(c.file)
		if code != exitOK || said != "" || strings.TrimSpace(out) != filepath.FromSlash(c.file) || err != nil || !bytes.Contains(page, []byte("<svg")) {
			t.Errorf("%v: exit %d, %q, %q, %v", c.args, code, out, said, err)
		}
	}
	if runtime.GOOS != "windows" { // where a link needs a privilege
		checkPlantedLinks(t, do)
	}
	for _, c := range []struct {
		args []string
		code int
		said string
	}{
		{nil, exitUsage, "report needs the folder of a run"},
		{[]string{"runs"}, exitUsage, "no folder of a run"},
		{[]string{"runs/paged-1", "nowhere"}, exitUsage, "nowhere: no such run folder"},
		{[]string{"runs/paged-1", "-o", "no/such/folder.html"}, exitRuntime, "write the report"},
	} {
		code, out, said := do(append([]string{"report"}, c.args...)...)
		if code != c.code || out != "" || !strings.Contains(said, c.said) || strings.Count(said, "\n") != 1 {
			t.Errorf("%v: exit %d, %q, %q", c.args, code, out, said)
		}
	}
}

// checkPlantedLinks runs report in a folder whose owner has put links where the command writes: the files that they
// point to stay as they are.
func checkPlantedLinks(t *testing.T, do func(args ...string) (int, string, string)) {
	t.Helper()
	const page = "runs/paged-1/report.html"
	victim := filepath.Join(t.TempDir(), "victim")
	for _, link := range []string{page, page + ".tmp"} {
		err := errors.Join(os.WriteFile(victim, []byte("untouched"), 0o600), os.RemoveAll(link), os.Symlink(victim, link))
		if err != nil {
			t.Fatal(err)
		}
		code, _, said := do("report", "runs/paged-1")
		if text, err := os.ReadFile(victim); err != nil || string(text) != "untouched" {
			t.Errorf("report wrote through the link %s: %q, %v", link, text, err)
		}
		if st, err := os.Lstat(page); code == exitOK && (err != nil || !st.Mode().IsRegular()) {
			t.Errorf("report with the link %s left no page: %v, %v, %q", link, st, err, said)
		}
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
	}
}
