// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// reproFolder returns the folder of small cases that once failed: MCASTLAB_REPRO, or shared/repro beside this
// repository. Where there is none the test skips.
func reproFolder(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MCASTLAB_REPRO")
	if dir == "" {
		dir = "../../shared/repro"
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		t.Skip(err)
	}
	return dir
}

// repros are the cases by file, each with the way in which it holds. A file that is missing here fails TestRepros, so
// that none is forgotten.
var repros = map[string]func(r *reproCase){
	"deadlock-allgather.mcl.yml": ends, "deadlock-ring-crash.mcl.yml": ends, "deadlock-ring-timeout.mcl.yml": ends,
	"fat128.mcl.yml": refused, "fz1-seed1000260.mcl.yml": ends, "overflow-hostcost.mcl.yml": refused,
	"panic-calls.mcl.yml": ends, "panic-fallback-0B.mcl.yml": ends, "panic-late.mcl.yml": ends, "treeloop-custom.mcl.yml": ends,
	"lockstep-next-event.mcl.yml": equal, "lockstep-tiers.mcl.yml": equal,
	"attack/credits-back-to-back.mcl.yml": succeeds, "attack/expect-inf.mcl.yml": notFinite, "attack/star7.mcl.yml": succeeds,
	"attack/trace-outstanding.mcl.yml": succeeds, "attack/verbs.mcl.yml": succeeds,
	"attack/fdleak.sh": descriptorsKept, "attack/full-destroy.sh": destroyedFull, "attack/nil-shared.sh": noPanic,
	"attack/evilverbs.py": elsewhere("TestHostileMemory of nodeagent/verbs"), "attack/metrics-body.py": elsewhere("TestBodies of internal/httpserve"),
	"attack/trace-hosts.sh": damagedTrace, "attack/first_linux_test.go.txt": elsewhere("TestFirstFrame of drivers/netdev"),
	"programs/shwait.mcl.yml": inTurns, "programs/nest.mcl.yml": inTurns, "programs/pool.mcl.yml": inTurns, "programs/cmtime.mcl.yml": endless,
	"programs/cqchan.mcl.yml": inTurns, "programs/resolve.mcl.yml": inTurns, "programs/fi.mcl.yml": inTurns, "programs/pace.mcl.yml": inTurns,
	"programs/rnr.mcl.yml": lateReceives, "programs/depth.mcl.yml": depths, "programs/exitmask.mcl.yml": unmasked,
}

// reproCase is a case under test. dir has the programs, and the labs with their paths.
type reproCase struct {
	*testing.T
	file, folder, dir string
}

// run runs the case's lab, in virtual time in namespaces if it has programs.
func (r *reproCase) run(more ...string) outcome {
	r.Helper()
	args := append([]string{"run", "-q", "--allow-programs", "--runs", r.TempDir()}, more...)
	o := invoke(r.T, nil, append(args, r.file)...)
	if strings.Contains(o.err, "goroutine ") {
		r.Fatalf("exit %d: %s", o.code, o.err)
	}
	return o
}

func (r *reproCase) report(o outcome) *runner.Report {
	r.Helper()
	var report runner.Report
	if err := json.Unmarshal([]byte(o.out), &report); err != nil {
		r.Fatalf("%v: exit %d\n%s", err, o.code, o.err)
	}
	return &report
}

func succeeds(r *reproCase) {
	if o := r.run(); o.code != exitOK {
		r.Errorf("exit %d: %s", o.code, o.err)
	}
}

// ends is for labs whose faults make rows fail: the run ends, with a result or with the error of a work request.
func ends(r *reproCase) {
	o := r.run()
	named := regexp.MustCompile(`retry counter exceeded|no route to a member`).MatchString(o.err)
	if o.code != exitOK && o.code != exitFailed && (o.code != exitRuntime || !named) {
		r.Errorf("exit %d: %s", o.code, o.err)
	}
}

func refused(r *reproCase) {
	if o := r.run(); o.code != exitLab || strings.Count(o.err, "\n") != 1 {
		r.Errorf("exit %d: %s", o.code, o.err)
	}
}

// equal is for labs that run in namespaces as in the simulation.
func equal(r *reproCase) {
	if o := r.run("--runtime", "netns", "--check-digest"); o.code != exitOK {
		r.Errorf("exit %d: %s", o.code, o.err)
	}
}

func notFinite(r *reproCase) {
	o := r.run("--format", "json")
	report := r.report(o)
	if _, err := os.Stat(filepath.Join(report.RunDir, "summary.json")); err != nil || o.code != exitFailed {
		r.Errorf("exit %d, %v: %s", o.code, err, o.err)
	}
}

func inTurns(r *reproCase) {
	if o := r.run("--runtime", "netns"); o.code != exitOK {
		r.Errorf("exit %d: %s%s", o.code, o.out, o.err)
	}
}

// lateReceives: two of its programs wait for a completion that an error has taken the place of, and end by their timeout.
func lateReceives(r *reproCase) {
	if o := r.run("--runtime", "netns"); o.code != exitOK && o.code != exitFailed || strings.Contains(o.err, "deadlock") {
		r.Errorf("exit %d: %s%s", o.code, o.out, o.err)
	}
}

// endless is for a program that does all its work and then, by its own code, waits for an event without end.
func endless(r *reproCase) {
	o := r.run("--runtime", "netns", "--format", "json")
	if o.code != exitFailed || len(r.report(o).Results) != 1 {
		r.Errorf("exit %d: %s%s", o.code, o.out, o.err)
	}
}

// depths: the rate that ib_write_bw prints does not depend on the depth of its queue.
func depths(r *reproCase) {
	o := r.run("--runtime", "netns", "--format", "json")
	report := r.report(o)
	if o.code != exitOK {
		r.Fatalf("exit %d: %s", o.code, o.err)
	}
	want := column(r.T, report, "t128", 3)
	for _, label := range []string{"t900", "t1100", "t1500", "t2048"} {
		near(r.T, label, column(r.T, report, label, 3), want, 0.3)
	}
}

// unmasked: a rank's failure is named, and the row behind it runs.
func unmasked(r *reproCase) {
	o := r.run("--runtime", "netns", "--format", "json")
	report := r.report(o)
	labels := map[string]bool{}
	for _, row := range report.Results {
		labels[row.Workload] = true
	}
	if o.code != exitFailed || !labels["later"] || !strings.Contains(o.err, "exit code 7") || strings.Contains(o.err, "deadlock") {
		r.Errorf("exit %d, rows %v: %s", o.code, labels, o.err)
	}
}

// script runs a case that is a script, in namespaces of its own, and returns what it prints.
func (r *reproCase) script(args ...string) string {
	r.Helper()
	cmd := exec.CommandContext(r.Context(), "unshare", append([]string{"-m", "-n", "-p", "-f", "--mount-proc", "bash", r.file, program1(r.T)}, args...)...)
	out, err := cmd.CombinedOutput()
	r.Logf("%v\n%s", err, out)
	return string(out)
}

func descriptorsKept(r *reproCase) {
	if out := r.script(); strings.Contains(out, "root:") || strings.Contains(out, "lock is held") || !strings.Contains(out, "free after destroy") {
		r.Error("a descriptor of the caller is inherited")
	}
}

func destroyedFull(r *reproCase) {
	if out := r.script(); !strings.Contains(out, "destroy rc 0") || !strings.Contains(out, "left: 0 processes") {
		r.Error("a lab in a full file system is not destroyed")
	}
}

func noPanic(r *reproCase) {
	if out := r.script(); strings.Contains(out, "panic") || !strings.Contains(out, "No such file or directory") {
		r.Error("a limit of the process ends it by a panic, or leaves the lab")
	}
}

// damagedTrace damages the trace of a run: each command says so in a line.
func damagedTrace(r *reproCase) {
	runs := r.TempDir()
	lab := write(r.T, "name: traced\ntopology: {star: {hosts: 4}}\ntrace: messages\nworkloads: [{bcast: {schemes: [cepheus], sizes: [64KiB], iterations: 1}}]\n")
	if o := invoke(r.T, nil, "run", "-q", "--runs", runs, lab); o.code != exitOK {
		r.Fatal(o.err)
	}
	if out := r.script(filepath.Join(runs, "traced-1")); strings.Contains(out, "panic") || strings.Contains(out, "rc 2") {
		r.Error("a damaged trace ends a command by a panic")
	}
}

// elsewhere is a case that another test of the suite is made from.
func elsewhere(test string) func(*reproCase) {
	return func(r *reproCase) { r.Skip("see " + test) }
}

// reproParts are files that belong to other cases: what labs run, and what builds it. visible and the like are run by
// tests of nodeagent/verbs and by TestLivePyverbs.
var reproParts = regexp.MustCompile(`^(programs/[a-z0-9_]+\.c|programs/build\.sh|rdmacm/[a-z0-9]+\.pcap)$`)

// TestRepros: each small case that once failed holds.
func TestRepros(t *testing.T) {
	folder := reproFolder(t)
	need(t, "netns")
	verbsTools(t, "fi_pingpong", "cmtime", "rping", "ib_write_bw", "mpicc")
	dir := filepath.Join(t.TempDir(), "built")
	if out, err := exec.Command("sh", filepath.Join(folder, "programs", "build.sh"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var names []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, folder+"/")
		if err == nil && !d.IsDir() && !reproParts.MatchString(name) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		holds, ok := repros[name]
		if !ok {
			t.Errorf("%s: no test names it", name)
			continue
		}
		t.Run(strconv.Quote(name), func(t *testing.T) {
			r := &reproCase{T: t, file: filepath.Join(folder, name), folder: folder, dir: dir}
			if strings.HasPrefix(name, "programs/") {
				r.file = filepath.Join(dir, filepath.Base(name))
			}
			holds(r)
		})
	}
}
