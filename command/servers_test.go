// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/hosts"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/trust"
)

// onSwarm runs a verb of hosts on server i and demands an exit code.
func onSwarm(t *testing.T, e *swarmEngines, i, code int, args ...string) outcome {
	t.Helper()
	o := invoke(t, e.env(i), append([]string{"servers"}, args...)...)
	if o.code != code {
		t.Fatalf("hosts %v: exit %d, want %d\n%s%s", args, o.code, code, o.out, o.err)
	}
	return o
}

// serversOf reads hosts --format json.
func serversOf(t *testing.T, o outcome) (all []hosts.Server) {
	t.Helper()
	var v struct {
		Schema string
		Hosts  []hosts.Server
	}
	if err := json.Unmarshal([]byte(o.out), &v); err != nil || v.Schema != "mcastlab/hosts/v1" {
		t.Fatalf("%v\n%s", err, o.out)
	}
	return v.Hosts
}

func states(all []hosts.Server) string {
	var s []string
	for _, m := range all {
		s = append(s, m.Name+" "+m.State)
	}
	return strings.Join(s, ", ")
}

// says demands that one line of a command's complaints has all of these.
func says(t *testing.T, o outcome, words ...string) {
	t.Helper()
	for line := range strings.Lines(o.err) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return
		}
	}
	t.Errorf("no line says all of %q:\n%s", words, o.err)
}

// TestHosts: servers of a Swarm are made a testbed, and are as before afterwards. What a server lacks is said in one line.
func TestHosts(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := newSwarmEngines(t, 3)
	says(t, onSwarm(t, e, 1, exitRuntime, "up"), "in no Swarm", "docker swarm init")
	e.join()
	says(t, onSwarm(t, e, 2, exitRuntime, "up"), "a worker", "on a manager, at 10.201.0.1")
	if s := states(serversOf(t, onSwarm(t, e, 1, exitOK, "--format", "json"))); s != "sw1 none, sw2 none, sw3 none" {
		t.Errorf("before up: %s", s)
	}
	says(t, onSwarm(t, e, 1, exitRuntime, "up"), "sw2 (10.201.0.2)", "run mcastlab servers image there")
	for i := 2; i <= 3; i++ {
		onSwarm(t, e, i, exitOK, "image")
	}
	all := serversOf(t, onSwarm(t, e, 1, exitOK, "up", "--format", "json"))
	if s := states(all); s != "sw1 ready, sw2 ready, sw3 ready" {
		t.Fatalf("after up: %s", s)
	}
	for _, m := range all {
		if m.Cores < 1 || m.Memory < 1 || m.Version == "" || m.Ahead == nil || m.Error != "" {
			t.Errorf("%+v", m)
		}
	}
	waitFor(t, func() bool { return !strings.Contains(e.containers(), "-join") }) // an engine removes them a moment after their tasks have gone
	before := e.containers()
	onSwarm(t, e, 1, exitOK, "up", "-q")
	if after := e.containers(); after != before {
		t.Errorf("a second up has changed\n%s\nto\n%s", before, after)
	}
	if left := e.docker(1, "secret ls -q") + e.docker(1, "service ls --format '{{.Name}}'"); left != "mcastlab-host" {
		t.Errorf("after up there are %s", left)
	}
	intrude(t, e)
	trouble(t, e)
	leaveAndReturn(t, e)
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
	if o := onSwarm(t, e, 1, exitOK, "down"); !strings.Contains(o.out, "nothing was there") {
		t.Errorf("a second down: %s", o.out)
	}
}

// TestHostsKilled: at a step of servers up or servers down the command is killed or interrupted, an effect fails, or nobody learns of its
// success. Another up makes the testbed, and a down leaves nothing. The gate draws steps by the day, a soak takes all.
func TestHostsKilled(t *testing.T) {
	needSwarmEngines(t)
	unchanged(t)
	e := newSwarmEngines(t, 2)
	e.join()
	program := variant(t, "CGO_ENABLED=0", "-tags", "failpoint")
	do := func(fail string, args ...string) (at string, code int, said string) {
		seen := filepath.Join(t.TempDir(), "seen")
		cmd := exec.Command(program, append([]string{"servers"}, args...)...)
		cmd.Env = append(append(os.Environ(), e.env(1)...), "MCASTLAB_FAIL="+fail, "MCASTLAB_FAIL_SEEN="+seen)
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(seen) // not there if it did not come to that step
		return string(b), cmd.ProcessState.ExitCode(), string(out)
	}
	must := func(after string, args ...string) {
		t.Helper()
		if _, code, said := do("", args...); code != exitOK {
			t.Fatalf("%v after %s: exit %d\n%s", args, after, code, said)
		}
	}
	e.sh("DOCKER_HOST=" + e.host(2) + " " + program + " servers image")
	day := uint64(time.Now().Unix() / 86400)
	draw := rand.New(rand.NewPCG(day, 18))
	wrongs := []string{"kill", "run:kill -INT $PPID", "error:EBUSY"}
	for _, verb := range []string{"up", "down"} {
		first, last := 1, 0
		if os.Getenv("MCASTLAB_SOAK") == "" {
			first = 1 + draw.IntN(map[string]int{"up": 16, "down": 10}[verb])
			last = first
		}
		for step := first; last == 0 || step <= last; step++ {
			if verb == "down" {
				must("nothing", "up", "-q")
			}
			wrong := wrongs[draw.IntN(len(wrongs))]
			at, code, said := do(fmt.Sprintf("%d:%s", step, wrong), verb)
			what := fmt.Sprintf("%s, step %d (%s): %s", verb, step, at, wrong)
			t.Logf("%s: exit %d", what, code)
			if strings.Contains(said, "goroutine ") || wrong == "error:EBUSY" && at != "" && code != exitRuntime {
				t.Errorf("%s: exit %d\n%s", what, code, said)
			}
			if draw.IntN(2) == 0 {
				must(what, "up", "-q")
				if s := states(serversOf(t, onSwarm(t, e, 1, exitOK, "--format", "json"))); s != "sw1 ready, sw2 ready" {
					t.Errorf("up after %s: %s", what, s)
				}
			}
			must(what, "down", "-q")
			e.nothing(what)
			if at == "" { // that was the last
				break
			}
		}
	}
}

// containers lists all that run on the engines.
func (e *swarmEngines) containers() (all string) {
	for i := 1; i <= e.n; i++ {
		all += e.docker(i, "ps -a --no-trunc --format '{{.ID}} {{.Names}}'") + "\n"
	}
	return all
}

// nothing demands that nothing of hosts is left on any engine.
func (e *swarmEngines) nothing(after string) {
	e.t.Helper()
	waitFor(e.t, func() bool { return strings.TrimSpace(e.containers()) == "" }) // as above
	for _, what := range []string{"service ls -q", "secret ls -q", "config ls -q"} {
		if left := e.docker(1, what); left != "" {
			e.t.Errorf("after %s, %s: %s", after, what, left)
		}
	}
	for i := 1; i <= e.n; i++ {
		if left := e.docker(i, "volume ls -q"); left != "" {
			e.t.Errorf("after %s volumes are left: %s", after, left)
		}
		if left, _ := filepath.Glob(e.root(i) + "/run/mcastlab*"); len(left) > 0 {
			e.t.Errorf("after %s there is %s", after, left)
		}
		if _, err := os.Stat(filepath.Join(e.path(i), "hosts")); err == nil {
			e.t.Errorf("after %s the state of server %d is left", after, i)
		}
	}
}

// intrude: from elsewhere, nothing is open to a caller that has no certificate, an expired one, or the role of a host.
func intrude(t *testing.T, e *swarmEngines) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(e.path(1), "hosts", "authority.pem"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := trust.ParseAuthority(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range serversOf(t, onSwarm(t, e, 1, exitOK, "--format", "json")) {
		for _, x := range []struct {
			role trust.Role
			made time.Time
			want string // of the error; empty: none
		}{
			{trust.Deployer, time.Now(), ""},
			{trust.Deployer, time.Now().Add(-trust.Valid - time.Hour), "bad certificate"},
			{trust.Host, time.Now(), "host intruder may not call Status"},
		} {
			c, err := a.Issue(trust.Identity{Role: x.role, Node: "intruder"}, x.made)
			if err != nil {
				t.Fatal(err)
			}
			k := daemon.NewClient(c, m.Node, daemon.At(m.Address, daemon.Port), time.Now)
			_, _, err = k.Status(t.Context())
			k.Close()
			if (err == nil) != (x.want == "") || err != nil && !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: a %s of %v: %v", m.Name, x.role, x.made, err)
			}
		}
	}
	for _, address := range []string{"10.201.0.1", "10.201.0.2", "10.201.0.3"} {
		c, err := tls.Dial("tcp", address+":7940", &tls.Config{InsecureSkipVerify: true})
		if err == nil { // in TLS 1.3 a client learns later that it is refused
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: without a certificate: %v", address, err)
		}
		if c, err := tls.Dial("tcp", address+":7941", &tls.Config{InsecureSkipVerify: true}); err == nil {
			_ = c.Close()
			t.Errorf("%s: the port of joins is open", address)
		}
	}
}

// leaveAndReturn: a server that leaves the Swarm is missed, and when it has joined again, under another ID, it gets another certificate.
func leaveAndReturn(t *testing.T, e *swarmEngines) {
	t.Helper()
	e.docker(3, "swarm leave")
	waitFor(t, func() bool {
		return strings.Contains(e.docker(1, "node ls --format '{{.Hostname}} {{.Status}}'"), "sw3 Down")
	})
	says(t, onSwarm(t, e, 1, exitRuntime, "up", "-q"), "sw3 (10.201.0.3): the Swarm does not reach it")
	if s := states(serversOf(t, onSwarm(t, e, 1, exitOK, "--format", "json"))); s != "sw1 ready, sw2 ready, sw3 down" {
		t.Errorf("without sw3: %s", s)
	}
	e.docker(1, "node rm $(docker -H "+e.host(1)+" node ls -q --filter name=sw3)")
	e.docker(3, "swarm join --token $(docker -H "+e.host(1)+" swarm join-token -q worker) 10.201.0.1:2377")
	if s := states(serversOf(t, onSwarm(t, e, 1, exitOK, "up", "--format", "json"))); s != "sw1 ready, sw2 ready, sw3 ready" {
		t.Errorf("with sw3 again: %s", s)
	}
}

// trouble: what goes wrong between servers is laid to the one at fault.
func trouble(t *testing.T, e *swarmEngines) {
	t.Helper()
	for _, x := range []struct {
		wrong, right string
		words        []string
	}{
		{"sysctl -qw net.ipv4.ipfrag_low_thresh=0 net.ipv4.ipfrag_high_thresh=0", "sysctl -qw net.ipv4.ipfrag_high_thresh=4194304 net.ipv4.ipfrag_low_thresh=3145728",
			[]string{"sw2 (10.201.0.2): from sw1, sw3, frames of up to 1464 bytes arrive", "raise the MTU"}},
		{"iptables -I INPUT -p udp --dport 7940 -j DROP", "iptables -D INPUT -p udp --dport 7940 -j DROP",
			[]string{"sw2 (10.201.0.2): UDP port 7940 lets nothing in from sw1, sw3"}},
		{"iptables -I INPUT -p tcp --dport 7940:7941 -j REJECT", "iptables -D INPUT -p tcp --dport 7940:7941 -j REJECT",
			[]string{"sw2 (10.201.0.2): TCP port 7941 does not answer"}},
	} {
		e.inside(2, x.wrong)
		says(t, onSwarm(t, e, 1, exitRuntime, "up", "-q"), x.words...)
		e.inside(2, x.right)
	}
}
