// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/orchestrator"
)

// TestLiveGroups: programs take part in groups that switches replicate in: of plain verbs by group bind, and of MPI, whose broadcasts
// libmcastmpi.so takes over. The test compares every byte, counts the frames on the wire, and finds nothing left, whichever process
// dies.
func TestLiveGroups(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			verbsTools(t, "mpicc", "mpirun")
			l := &groupLab{verbsLab: verbsLab{t: t, name: "t-group-" + runtime}}
			l.plain, l.mpi = l.build("cc", "group", "-libverbs"), l.build("mpicc", "bcast")
			file := write(t, "name: "+l.name+"\ntopology: {fat-tree: {k: 4}}\nruntime: {clock: dilated, dilation: 100, management: true}\n")
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", l.name) }) // what a failed test has left
			must(t, "deploy", "--runtime", runtime, file)
			l.fresh = held(t, l.name)
			t.Setenv("UCX_RC_TIMEOUT", "20ms") // of lab time, as the next: the default of a second would be minutes
			l.bound()
			l.boundEnds()
			l.broadcasts()
			l.usual()
			l.switchKilled()
			if os.Getenv("MCASTLAB_SOAK") != "" {
				l.hpcc()
			}
			spaces := nodeSpaces(t, l.name)
			must(t, "destroy", l.name)
			noLab(t, l.name, spaces)
		})
	}
}

// groupLab is a lab whose programs take part in groups.
type groupLab struct {
	verbsLab
	plain, mpi string // programs
}

// build compiles a program.
func (l *groupLab) build(cc, name string, flags ...string) string {
	l.t.Helper()
	program := filepath.Join(l.t.TempDir(), name)
	args := append([]string{"-O1", "-o", program, "../nodeagent/verbs/testdata/" + name + ".c"}, flags...)
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// asked is a command whose output is in a file, so that it can be read while it runs.
type asked struct {
	*exec.Cmd
	t    *testing.T
	file string
}

func (l *groupLab) ask(args ...string) *asked {
	l.t.Helper()
	a := &asked{exec.Command(program1(l.t), args...), l.t, filepath.Join(l.t.TempDir(), "said")}
	f, err := os.Create(a.file)
	if err != nil {
		l.t.Fatal(err)
	}
	a.Stdout, a.Stderr, a.Env = f, f, os.Environ()
	if err := a.Start(); err != nil {
		l.t.Fatal(err)
	}
	_ = f.Close() // the command has its own
	l.t.Cleanup(func() {
		if a.ProcessState == nil {
			_ = a.Process.Kill()
			_ = a.Wait()
		}
	})
	return a
}

func (a *asked) said() string {
	b, err := os.ReadFile(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(b)
}

// ends waits for the command, which is to end with an exit code and to have said something.
func (a *asked) ends(code int, said string) {
	a.t.Helper()
	_ = a.Wait() // its state says how
	if got := a.ProcessState.ExitCode(); got != code || !strings.Contains(a.said(), said) {
		a.t.Errorf("%s: exit code %d, not %d, or it does not say %q:\n%s", strings.Join(a.Args[1:], " "), got, code, said, a.said())
	}
}

// bind starts group bind, and returns it and the address that it says.
func (l *groupLab) bind(hosts ...string) (b *asked, address string) {
	l.t.Helper()
	b = l.ask(append([]string{"group", "bind", "--lab", l.name}, hosts...)...)
	waitFor(l.t, func() bool {
		if strings.HasPrefix(b.said(), "mcastlab: ") {
			l.t.Fatal(b.said())
		}
		m := regexp.MustCompile(`^group (\S+):.*\n`).FindStringSubmatch(b.said())
		if m != nil {
			address = m[1]
		}
		return m != nil
	})
	return b, address
}

func (l *groupLab) join(host, address string, args ...string) *asked {
	return l.ask(l.at(host, append([]string{l.plain, address}, args...)...)...)
}

// bound: a message of one program to a group reaches all others, and crosses the sender's link once.
func (l *groupLab) bound() {
	t := l.t
	t.Helper()
	hosts := []string{"h5", "h0", "h9", "h12", "h13"} // of which h5 registers, and h0 sends
	b, address := l.bind(hosts...)
	before := l.sent("h0")
	all := []*asked{l.join("h0", address, "send", "20", "65536")} // which waits for the others
	for _, h := range hosts {
		if h != "h0" {
			all = append(all, l.join(h, address, "receive", "20", "65536"))
		}
	}
	for i, a := range all {
		a.ends(0, []string{"20 messages sent", "20 messages received"}[min(i, 1)])
	}
	const frames = 20 * 65536 / 4096
	if n := l.sent("h0") - before; n < frames || n > 2*frames {
		t.Errorf("to four receivers h0 has sent %d frames, of messages of %d", n, frames)
	}
	b.ends(0, "registered: one of them may send\n")
	rested(t, l.name, l.fresh)
	if r := invoke(t, nil, l.at("h0", l.plain, address, "receive", "0")...); r.code != 1 || !strings.Contains(r.err, "errno 22") {
		t.Errorf("a group that nobody offers any more: exit code %d: %s", r.code, r.err)
	}
	for args, want := range map[string]string{"h0": "two hosts or more", "h0 h0": "name it once", "h0 leaf0": "a switch has no NIC"} { // independent of each other
		if r := invoke(t, nil, append([]string{"group", "bind", "--lab", l.name}, strings.Fields(args)...)...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("group bind %s: exit code %d: %s", args, r.code, r.err)
		}
	}
}

// boundEnds: when a member or the command is killed, all is taken back, and what a program then sends fails.
func (l *groupLab) boundEnds() {
	t := l.t
	t.Helper()
	hosts := []string{"h1", "h6", "h11"}
	for _, dies := range []string{"a member", "the member that has registered", "the command"} {
		b, address := l.bind(hosts...)
		var all []*asked
		for _, h := range hosts {
			all = append(all, l.join(h, address, "receive", "0"))
		}
		waitFor(t, func() bool { return strings.Contains(b.said(), "registered") })
		victim := map[string]*asked{"a member": all[1], "the member that has registered": all[0], "the command": b}[dies]
		if err := victim.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if dies != "the command" {
			waitFor(t, func() bool { return strings.Contains(b.said(), "has left") })
		}
		for _, a := range all {
			_ = a.Process.Kill() // of which one may be dead
			_ = a.Wait()
		}
		if dies != "the command" {
			b.ends(0, "registered")
		}
		rested(t, l.name, l.fresh)
	}
}

// mpirun returns the arguments of an MPI program with broadcasts by groups.
func (l *groupLab) mpirun(hosts string, args ...string) []string {
	return append([]string{"mpirun", "--lab", l.name, "--multicast", "--map", hosts, "--", l.mpi}, args...)
}

// broadcasts: MPI_Bcast of a program that knows nothing of groups crosses the root's link once, from each root, also where frames are lost.
func (l *groupLab) broadcasts() {
	t := l.t
	t.Helper()
	t.Setenv("MCASTLAB_MPI_VERBOSE", "1")
	const hosts = "h12,h3,h9,h0,h5"
	before := l.sent("h12")
	r := mustMPI(t, l.mpirun(hosts, "1048576", "1048576", "3", "s")...)
	if !strings.Contains(r.out, "5 ranks, 0 wrong") || strings.Count(r.err, ": 4 broadcasts by groups, 4 the usual way, 0 groups lost") != 5 {
		t.Errorf("the program says:\n%s%s", r.out, r.err)
	}
	const frames = 4 * 1048576 / 4096 // three rounds after a first; after each a flag goes the usual way
	if n := l.sent("h12") - before; n < frames || n > 2*frames {
		t.Errorf("for four receivers h12 has sent %d frames, of messages of %d", n, frames)
	}
	rested(t, l.name, l.fresh)
	must(t, "fault", "add", "loss", "--lab", l.name, "--link", "h*", "--rate", "1e-3")
	r = mustMPI(t, l.mpirun(hosts, "8192", "524288", "2")...) // the first size goes the usual way, and the others come from h3, h9 and h0
	if !strings.Contains(r.out, "5 ranks, 0 wrong") || strings.Count(r.err, ": 9 broadcasts by groups, 15 the usual way, 0 groups lost") != 5 {
		t.Errorf("with loss the program says:\n%s%s", r.out, r.err)
	}
	must(t, "fault", "reset", "--lab", l.name)
	rested(t, l.name, l.fresh)
}

// usual: where there can be no group, broadcasts take the usual path, and the user sees the reason.
func (l *groupLab) usual() {
	r := mustMPI(l.t, l.mpirun("h4,h4,h8", "65536", "65536", "1")...)
	if !strings.Contains(r.out, "3 ranks, 0 wrong") || !strings.Contains(r.err, "go the usual way: two of its ranks are at one host") {
		l.t.Errorf("with two ranks on a host the program says:\n%s%s", r.out, r.err)
	}
	rested(l.t, l.name, l.fresh)
}

// switchKilled: while broadcasts go by a group, one of its switches dies. They go on, by the routes that are left.
func (l *groupLab) switchKilled() {
	t := l.t
	t.Helper()
	stop := filepath.Join(t.TempDir(), "stop")
	job := l.ask(l.mpirun("h0,h5,h9,h12", "262144", "262144", stop)...)
	var core string
	waitFor(t, func() bool {
		core = l.core()
		return core != ""
	})
	must(t, "fault", "add", "crash", "--lab", l.name, "--node", core)
	waitFor(t, func() bool { return strings.Contains(job.said(), "is lost") })
	if err := os.WriteFile(stop, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	job.ends(0, "4 ranks, 0 wrong")
	must(t, "fault", "reset", "--lab", l.name)
	cut := func(n *node) { // switches behind the dead one do not know, and keep the group
		n.Groups, n.PortLoad, n.Registrations, n.Timers = 0, 0, 0, 0
	}
	restedBut(t, l.name, l.fresh, cut)
}

// hpcc: the HPC Challenge benchmark passes, with broadcasts by groups where it has long ones. It measures latency for a minute and more.
func (l *groupLab) hpcc() {
	t := l.t
	t.Helper()
	dir := t.TempDir()
	const input = "zcat -f /usr/share/doc/hpcc/examples/_hpccinf.txt* | sed 's/^1000 /200 /; s/^80 /32 /' > hpccinf.txt"
	run := exec.Command("sh", "-ec", input+"; exec "+program1(t)+" mpirun --lab "+l.name+" --multicast --map h0,h5,h9,h12 -- hpcc")
	run.Dir = dir
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("hpcc: %v\n%s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "hpccoutf.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(b); strings.Count(s, " PASSED") != 11 || strings.Contains(s, "FAILED") || !strings.Contains(s, "\nSuccess=1\n") {
		t.Errorf("hpcc writes:\n%s", s)
	}
}

// core returns the switch at the top of a group that is active, or nothing.
func (l *groupLab) core() string {
	var r struct{ Groups []orchestrator.GroupTree }
	if err := json.Unmarshal([]byte(must(l.t, "group", "ls", "--lab", l.name, "--format", "json").out), &r); err != nil {
		l.t.Fatal(err)
	}
	var find func(n *orchestrator.TreeNode) string
	find = func(n *orchestrator.TreeNode) string {
		if strings.HasPrefix(n.Switch, "core") {
			return n.Switch
		}
		for _, p := range n.Paths {
			if p.Below != nil {
				if c := find(p.Below); c != "" {
					return c
				}
			}
		}
		return ""
	}
	i := slices.IndexFunc(r.Groups, func(g orchestrator.GroupTree) bool { return g.Active && len(g.Roots) == 1 })
	if i < 0 {
		return ""
	}
	return find(&r.Groups[i].Roots[0])
}
