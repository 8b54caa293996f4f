// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator"
)

const spreadLab = `name: t-spread
topology: {fat-tree: {k: 4}}
runtime: {hosts: auto}
trace: messages
workloads:
  - bcast: {schemes: [cepheus, {chain: {slices: 4}}], sizes: [64B, 64KiB], iterations: 2}
faults: [{at: 20us, for: 100us, loss: {links: agg*-core*, rate: 0.01}}]
`

// onServer runs a verb on server i and demands an exit code.
func onServer(t *testing.T, e *swarmEngines, i, code int, args ...string) outcome {
	t.Helper()
	o := invoke(t, e.env(i), args...)
	if o.code != code {
		t.Fatalf("%v: exit %d, want %d\n%s%s", args, o.code, code, o.out, o.err)
	}
	return o
}

// testbed makes a testbed of n engines, and returns it.
func testbed(t *testing.T, n int) *swarmEngines {
	t.Helper()
	e := newSwarmEngines(t, n)
	e.join()
	for i := 2; i <= n; i++ {
		onSwarm(t, e, i, exitOK, "image")
	}
	onSwarm(t, e, 1, exitOK, "up", "-q")
	return e
}

// TestSpread: a lab over three servers is its simulation, whatever carries its links, and goes without a trace. A stranger's frames do it no harm. A server whose
// engine is killed and whose network is cut ends the run, is named, and is cleaned when it is back. Only the first server's engine is called from here.
func TestSpread(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := testbed(t, 3)
	file, runs := write(t, spreadLab), t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread") }) // before the engines end
	plan := onServer(t, e, 1, exitOK, "deploy", "-n", file).out
	for _, want := range []string{"server sw1 (10.201.0.1)", "16 nodes: h0 h1 h2 h3", "server sw3", "between servers: 12 of 48 links, "} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan has no %q:\n%s", want, plan)
		}
	}
	if strings.Contains(plan, "of 48 links, 0.0 MB") || strings.TrimSpace(e.shares()) != "" {
		t.Errorf("a plan of no traffic, or more than a plan:\n%s%s", plan, e.shares())
	}
	kernel := write(t, strings.Replace(spreadLab, "hosts: auto", "hosts: auto, links: vxlan", 1))
	e.inside(2, "iptables -I INPUT -p udp --dport 7942 -j DROP")
	says(t, onServer(t, e, 1, exitRuntime, "deploy", "-q", kernel), "server sw2 (10.201.0.2): UDP port 7942 lets nothing in from sw1", "let it pass")
	e.inside(2, "iptables -D INPUT -p udp --dport 7942 -j DROP")
	if s := strings.TrimSpace(e.shares()); s != "" {
		t.Errorf("after a deployment that failed there are %s", s)
	}
	spreadBothKinds(t, e, file)
	if o := onServer(t, e, 1, exitOK, "deploy", "-q", file); !strings.Contains(o.out, "nothing changed") {
		t.Error(o.out)
	}
	o := onServer(t, e, 1, exitOK, "run", "-q", "-r", "docker", "--check-digest", "--capture", "h0:0,h5:0,h9:0,core0:0", "--runs", runs, file)
	if !strings.Contains(o.err, "which is the simulation's") || strings.Contains(o.out, "NO") {
		t.Errorf("%s%s", o.out, o.err)
	}
	for _, name := range []string{"events.jsonl", "trace.jsonl", "report.html"} {
		if _, err := os.Stat(filepath.Join(runs, "t-spread-1", name)); err != nil {
			t.Error(err)
		}
	}
	carriedBetween(t, e, "sw2", "sw3")
	onlyKnownPorts(t, e, "udp 7942") // of VXLAN
	spreadStranger(t, e, file, filepath.Join(runs, "t-spread-1", "core0_0.pcapng"))
	spreadVerbs(t, e)
	spreadMetrics(t, e)
	says(t, onSwarm(t, e, 1, exitRuntime, "down", "-q"), "lab t-spread is on sw1, sw2, sw3", "mcastlab destroy t-spread first")
	spreadLost(t, e, file, runs)
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// spreadBothKinds deploys the lab where VXLAN does not pass between two of the servers: their links are in user space.
func spreadBothKinds(t *testing.T, e *swarmEngines, file string) {
	t.Helper()
	if plan := onServer(t, e, 1, exitOK, "deploy", "-n", file).out; strings.Contains(plan, "user space") {
		t.Errorf("VXLAN passes, and the plan is\n%s", plan)
	}
	e.inside(2, "sysctl -qw net.ipv4.ipfrag_low_thresh=0 net.ipv4.ipfrag_high_thresh=0")
	plan := onServer(t, e, 1, exitOK, "deploy", "-n", file).out
	e.inside(2, "sysctl -qw net.ipv4.ipfrag_high_thresh=4194304 net.ipv4.ipfrag_low_thresh=3145728")
	for _, want := range []string{"sw1 and sw2: 4 links in user space (sw2: from sw1, frames of up to 1464 bytes arrive, and links need 4214)", "sw1 and sw3: 4 links, "} {
		if !strings.Contains(plan, "between "+want) {
			t.Errorf("where fragments are dropped, the plan has no %s:\n%s", want, plan)
		}
	}
	e.inside(2, "iptables -I INPUT -p udp -s 10.201.0.3 --dport 7942 -j DROP")
	const want = "between sw2 and sw3: 4 links in user space (sw2: UDP port 7942 lets nothing in from sw3)"
	for _, flag := range []string{"-n", "-q"} {
		o := onServer(t, e, 1, exitOK, "deploy", flag, file)
		if all := o.out + o.err; !strings.Contains(all, want) || strings.Count(all, "user space") != 1 {
			t.Errorf("deploy %s says\n%s", flag, all)
		}
	}
	b, err := os.ReadFile("/run/mcastlab/t-spread/hosts.json")
	if err != nil || !strings.Contains(string(b), "\"why\": \"sw2: UDP port 7942 lets nothing in from sw3\"") {
		t.Errorf("hosts.json: %v\n%s", err, b)
	}
	for i, n := range []int{8, 4, 4} { // of VXLAN in the namespaces of nodes
		script := fmt.Sprintf("for p in $(docker -H %s inspect -f {{.State.Pid}} $(docker -H %[1]s ps -q --filter label=mcastlab.node)); do nsenter -n -t $p ip -o link show type vxlan; done", e.host(i+1))
		if got := len(strings.Split(e.sh(script), "\n")); got != n {
			t.Errorf("sw%d has %d links by VXLAN, want %d", i+1, got, n)
		}
	}
}

// carriedBetween looks whether inspect shows that links in user space have carried frames between two servers, and none that were lost.
func carriedBetween(t *testing.T, e *swarmEngines, a, b string) {
	t.Helper()
	var all struct {
		Trunks []orchestrator.Trunk `json:"trunks"`
	}
	out := onServer(t, e, 1, exitOK, "inspect", "--format", "json", "t-spread").out
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatal(err)
	}
	sent := map[string][2]uint64{}
	for _, x := range all.Trunks {
		sent[x.Server+" "+x.To] = [2]uint64{x.SentFrames, x.ReceivedFrames}
		t.Logf("%s to %s: %+v", x.Server, x.To, x.Counters)
	}
	x, y := sent[a+" "+b], sent[b+" "+a]
	if x[0] == 0 || y[0] == 0 || x[0] != y[1] || y[0] != x[1] {
		t.Errorf("inspect shows %+v", all.Trunks)
	}
	if o := onServer(t, e, 1, exitOK, "inspect", "t-spread"); !strings.Contains(o.out, "\n"+a+"     "+b+"  4 ") {
		t.Errorf("inspect shows no links from %s to %s:\n%s", a, b, o.out)
	}
}

// spreadBroken: the connection of links in user space breaks in mid-run, which ends the run with a line that names both servers.
func spreadBroken(t *testing.T, e *swarmEngines, long, runs string) {
	t.Helper()
	cmd, said := e.begin("run", "-q", "-r", "docker", "--runs", runs, long)
	spreadCarries(t, e)
	e.inside(3, "iptables -I INPUT -p tcp -s 10.201.0.2 --dport 7940 -j REJECT --reject-with tcp-reset")
	_ = cmd.Wait() // the exit code says it
	e.inside(3, "iptables -D INPUT -p tcp -s 10.201.0.2 --dport 7940 -j REJECT --reject-with tcp-reset")
	line := regexp.MustCompile(`server sw[23] \(10.201.0.[23]\), at .* of lab time: the connection that its links to server sw[23] \(10.201.0.[23]\) have in user space has broken: `)
	if text := said.String(); cmd.ProcessState.ExitCode() != exitRuntime || len(line.FindAllString(text, -1)) != 1 {
		t.Errorf("exit %d\n%s", cmd.ProcessState.ExitCode(), text)
	}
	t.Logf("a connection that breaks: %s", said.String())
}

// spreadCarries waits until a run has frames on a link.
func spreadCarries(t *testing.T, e *swarmEngines) {
	t.Helper()
	waitFor(t, func() bool { // each time into another file
		file := filepath.Join(t.TempDir(), "port.pcapng")
		return invoke(t, e.env(1), "capture", "-l", "t-spread", "-c", "3", "-w", file, "h9:0").code == exitOK
	})
}

// TestSpreadLarge: a fat-tree of 208 nodes over three servers, and on one of them, is its simulation. What each takes is printed.
func TestSpreadLarge(t *testing.T) {
	if os.Getenv("MCASTLAB_SOAK") == "" {
		t.Skip("takes minutes: set MCASTLAB_SOAK")
	}
	needSwarmEngines(t)
	unchanged(t)
	e := testbed(t, 3)
	runs := t.TempDir()
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread") })
	for _, on := range []string{"auto", "sw1"} {
		file := write(t, "name: t-spread\ntopology: {fat-tree: {k: 8}}\nruntime: {hosts: "+on+"}\nworkloads:\n"+
			"  - bcast: {schemes: [cepheus], sizes: [64B, 64KiB], iterations: 1}\n")
		for _, args := range [][]string{
			{"deploy", "-q", file}, {"run", "-q", "-r", "docker", "--runs", runs, file}, {"run", "-q", "-r", "docker", "--check-digest", "--runs", runs, file},
			{"destroy", "t-spread"},
		} {
			began := time.Now()
			o := onServer(t, e, 1, exitOK, args...)
			t.Logf("hosts: %s: %s: %.1f s", on, strings.Join(args[:len(args)-1], " "), time.Since(began).Seconds())
			if slices.Contains(args, "--check-digest") && !strings.Contains(o.err, "which is the simulation's") {
				t.Errorf("%s%s", o.out, o.err)
			}
		}
	}
	e.undeployed()
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// spreadVerbs: each command on a running lab reaches every server, or is refused.
func spreadVerbs(t *testing.T, e *swarmEngines) {
	t.Helper()
	for _, node := range []string{"h0", "h5", "h9", "core1"} {
		onServer(t, e, 1, exitOK, "logs", "-l", "t-spread", node)
	}
	o := onServer(t, e, 1, exitOK, "inspect", "t-spread")
	for _, node := range []string{"h0 ", "h5 ", "h9 ", "core3 "} {
		if !strings.Contains(o.out, "\n"+node) || strings.Contains(o.out, "gone") {
			t.Errorf("no %s in\n%s", node, o.out)
		}
	}
	unknown := write(t, strings.Replace(strings.Replace(spreadLab, "t-spread", "t-spread-far", 1), "hosts: auto", "hosts: \"sw1,sw9\"", 1))
	says(t, onServer(t, e, 1, exitRuntime, "deploy", "-q", unknown), `"sw9" is no server that is ready: these are sw1, sw2, sw3`)
	e.docker(1, "node update --label-add rack=a sw2")
	labelled := strings.Replace(strings.Replace(spreadLab, "t-spread", "t-spread-label", 1), "hosts: auto", "hosts: \"node.labels.rack==a\"", 1)
	if o := onServer(t, e, 1, exitOK, "deploy", "-n", write(t, labelled)); !strings.Contains(o.out, "server sw2 (") || strings.Contains(o.out, "server sw1 (") {
		t.Errorf("of servers with a label:\n%s", o.out)
	}
	nowhere := write(t, strings.Replace(labelled, "==a", "==b", 1))
	says(t, onServer(t, e, 1, exitRuntime, "deploy", "-q", nowhere), "runtime.hosts: node.labels.rack==b: no server is left: sw1 has no labels, sw2 has rack=a")
	for _, lab := range []string{"t-spread-far", "t-spread-label"} {
		if _, err := os.Stat("/run/mcastlab/" + lab); err == nil {
			t.Errorf("lab %s, which was refused, has left its folder", lab)
		}
	}
}

// served fetches what a metrics verb on the first server serves.
func served(t *testing.T, s *started) string {
	t.Helper()
	r, err := http.Get(s.line(t, "are at (http://.*/metrics)\n")[1])
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if cerr := r.Body.Close(); err != nil || cerr != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v, %v\n%s", r.StatusCode, err, cerr, text)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, s.err) // all that it says is in s.all
	_ = s.cmd.Wait()                    // it was interrupted
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// spreadMetrics: the counters of all nodes come from all servers, with the names and labels of the same lab on one.
func spreadMetrics(t *testing.T, e *swarmEngines) {
	t.Helper()
	one := write(t, strings.Replace(strings.Replace(spreadLab, "t-spread", "t-spread-one", 1), "runtime: {hosts: auto}\n", "", 1))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-spread-one") })
	must(t, "deploy", "-q", "-r", "netns", one)
	must(t, "run", "-q", "-r", "netns", "--runs", t.TempDir(), one)
	near := served(t, start(t.Context(), t, "metrics", "t-spread-one", "--listen", "127.0.0.1:0"))
	must(t, "destroy", "t-spread-one")
	far := served(t, startIn(t.Context(), t, e.env(1), "metrics", "t-spread", "--listen", "127.0.0.1:0"))
	for _, node := range []string{"h0", "h5", "h9", "core3"} {
		if !strings.Contains(far, "mcastlab_node_up{node=\""+node+"\"} 1\n") {
			t.Errorf("the metrics do not show %s as up", node)
		}
	}
	series := func(text string) (all []string) { // what a line has before its value
		for line := range strings.Lines(text) {
			if i := strings.LastIndexByte(line, ' '); !strings.HasPrefix(line, "#") {
				line = line[:i]
			}
			all = append(all, line)
		}
		return all
	}
	if got, want := series(far), series(near); !slices.Equal(got, want) {
		t.Errorf("on three servers there are %d metrics, and on one %d:\n%s\nand\n%s", len(got), len(want), far, near)
	}
}

// spreadLost: a server is lost in mid-run.
func spreadLost(t *testing.T, e *swarmEngines, file, runs string) {
	t.Helper()
	onServer(t, e, 1, exitOK, "destroy", "t-spread")
	e.undeployed()
	long := write(t, strings.Replace(spreadLab, "iterations: 2", "iterations: 10000", 1))
	onServer(t, e, 1, exitOK, "deploy", "-q", long)
	spreadBroken(t, e, long, runs)
	cmd, said := e.begin("run", "-q", "-r", "docker", "--runs", runs, long) // by another connection
	spreadCarries(t, e)
	for _, port := range []string{"h0:0", "h5:0", "h9:0"} { // one of each server
		file := filepath.Join(t.TempDir(), "port.pcapng")
		onServer(t, e, 1, exitOK, "capture", "-l", "t-spread", "-c", "3", "-w", file, port)
		if got := len(blocksOf(t, file)); got != 5 {
			t.Errorf("capture of 3 frames at %s: %d blocks of pcapng, want 5", port, got)
		}
	}
	e.lose(3)
	_ = cmd.Wait() // the exit code says it
	if code := cmd.ProcessState.ExitCode(); code != exitRuntime || !strings.Contains(said.String(), "server sw3 (10.201.0.3)") ||
		!strings.Contains(said.String(), " of lab time") {
		t.Errorf("exit %d\n%s", code, said.String())
	}
	m := startIn(t.Context(), t, e.env(1), "metrics", "t-spread", "--listen", "127.0.0.1:0")
	text := served(t, m)
	if !strings.Contains(text, "mcastlab_node_up{node=\"h0\"} 1\n") || !strings.Contains(text, "mcastlab_node_up{node=\"h9\"} 0\n") ||
		!strings.Contains(m.all.String(), "server sw3 (10.201.0.3) does not answer: ") || strings.Count(m.all.String(), "sw3") != 1 {
		t.Errorf("without sw3, metrics says %s\n%s", m.all.String(), text)
	}
	spreadBack(t, e, "t-spread", 3)
}

// begin starts a command on the first server. What it says may be read when it has ended.
func (e *swarmEngines) begin(args ...string) (cmd *exec.Cmd, said *strings.Builder) {
	e.t.Helper()
	cmd, said = exec.CommandContext(e.t.Context(), program1(e.t), args...), &strings.Builder{}
	cmd.Env = append(os.Environ(), e.env(1)...)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	return cmd, said
}

// lose kills a server's engine, and cuts its network.
func (e *swarmEngines) lose(machine int) {
	e.t.Helper()
	e.killEngine(machine)
	e.cut(machine)
}

// spreadBack: a server that was lost is named by destroy, and is cleaned when it is back.
func spreadBack(t *testing.T, e *swarmEngines, lab string, machine int) {
	t.Helper()
	o := onServer(t, e, 1, exitRuntime, "destroy", lab)
	says(t, o, fmt.Sprintf("server sw%d (10.201.0.%[1]d) does not answer", machine))
	says(t, o, "mcastlab destroy "+lab+" again when they answer")
	for i := 1; i <= e.n; i++ {
		if i == machine {
			continue
		}
		if left := e.docker(i, "ps -a --format '{{.Names}}'"); strings.Contains(left, lab) {
			t.Errorf("on sw%d there is still %s", i, left)
		}
	}
	e.mend(machine)
	waitFor(t, func() bool { return invoke(t, e.env(1), "destroy", lab).code == exitOK })
	e.undeployed()
}

// undeployed looks whether anything of a lab is left on the servers.
func (e *swarmEngines) undeployed() {
	e.t.Helper()
	if s := strings.TrimSpace(e.shares()); s != "" {
		e.t.Errorf("after destroy there are %s", s)
	}
}

// shares lists what labs have on the servers.
func (e *swarmEngines) shares() (all string) {
	for i := 1; i <= e.n; i++ {
		all += e.sh("docker -H "+e.host(i)+" ps -a --format '{{.Names}}' | grep -v ^mcastlab-host || true") + "\n"
		all += e.inside(i, "ip -o link show type vxlan; ss -uln sport = 7942 | tail -n +2") + "\n"
		if left, _ := filepath.Glob(e.root(i) + "/run/mcastlab/*"); len(left) > 0 {
			all += strings.Join(left, " ") + "\n"
		}
	}
	return all
}

// startAgain starts engine i again, which was killed, on what is still there of its server.
func (e *swarmEngines) startAgain(i int) {
	e.t.Helper()
	e.sh(fmt.Sprintf("setsid nsenter -t %d --mount --uts --net=%s/net%d sh -c \"$(tail -n 1 %s/start)\" >> %[4]s/log 2>&1 < /dev/null &",
		e.shim(i), e.dir, i, e.path(i)))
	e.sh(fmt.Sprintf(`for i in $(seq 300); do docker -H %s version > /dev/null 2>&1 && exit; sleep 0.1; done; exit 1`, e.host(i)))
}

// shim returns a process that keeps a container of engine i: it outlives the engine, and sees the server's file system.
func (e *swarmEngines) shim(i int) int {
	e.t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range all {
		line, err := os.ReadFile(name)
		if err == nil && strings.Contains(string(line), "containerd-shim") && strings.Contains(string(line), e.path(i)+"/") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			return pid
		}
	}
	e.t.Fatalf("no container of engine %d is left", i)
	return 0
}

// TestTwoServers: a lab over two servers is up, is its simulation, and goes without a trace.
func TestTwoServers(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := testbed(t, 2)
	file := write(t, strings.Replace(spreadLab, "t-spread", "t-two", 1))
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-two") }) // before the engines end
	onServer(t, e, 1, exitOK, "deploy", "-q", file)
	o := onServer(t, e, 1, exitOK, "run", "-q", "-r", "docker", "--check-digest", "--runs", t.TempDir(), file)
	if !strings.Contains(o.err, "which is the simulation's") || strings.Contains(o.out, "NO") {
		t.Errorf("%s%s", o.out, o.err)
	}
	onServer(t, e, 1, exitOK, "destroy", "t-two")
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}
