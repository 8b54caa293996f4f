package command

import (
	"bytes"
	"os"
	"path/filepath"
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
