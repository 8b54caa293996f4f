// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const managedLab = `name: t-manage
topology: {star: {hosts: 3}}
runtime: {clock: dilated, dilation: 100, management: true}
`

// TestManagementCrash: at each step that makes, repairs or removes a management network the command is killed, or the
// kernel refuses, or nobody learns of its success. Then a deploy links the hosts, and a destroy leaves nothing. The gate draws one of these for each step by the day, a soak does all.
func TestManagementCrash(t *testing.T) {
	need(t)
	verbsTools(t, "ping")
	c := &crashing{t: t, program: variant(t, "CGO_ENABLED=0", "-tags", "failpoint"), runtime: "netns", lab: "t-manage", file: write(t, managedLab), runs: t.TempDir()}
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", c.lab) }) // what a failed test has left
	wrongs := []string{"kill", "error:EBUSY", "error:EEXIST", "timeout"}
	day, soak := int(time.Now().Unix()/86400), os.Getenv("MCASTLAB_SOAK") != ""
	cells := 0
	for _, verb := range []string{"deploy", "repair", "destroy"} {
		c.prepare(verb)
		steps := c.count(verb)
		c.must("destroy", verb)
		of := 0
		for i, name := range steps {
			if !strings.Contains(name, "manage") && name != "write hosts" {
				continue
			}
			of++
			for k, wrong := range wrongs {
				if !soak && k != (day+i)%len(wrongs) {
					continue
				}
				c.managed(verb, i+1, wrong, (i+k)%2 == 0)
				cells++
			}
		}
		if of == 0 {
			t.Errorf("no step of %s is one of the management network: %q", verb, steps)
		}
	}
	t.Logf("%d cells, day %d", cells, day)
}

// managed is cell for a lab of which nothing runs.
func (c *crashing) managed(verb string, step int, wrong string, resume bool) {
	c.t.Helper()
	c.prepare(verb)
	spaces := nodeSpaces(c.t, c.lab)
	at, code, said := c.do(verb, fmt.Sprintf("%d:%s", step, wrong))
	what := fmt.Sprintf("%s, step %d (%s): %s", verb, step, at, wrong)
	if at == "" || wrong == "kill" && code != -1 || wrong != "kill" && code != exitOK && code != exitRuntime || strings.Contains(said, "panic:") {
		c.t.Errorf("%s: exit %d\n%s", what, code, said)
	}
	if resume {
		c.must("deploy", what)
		c.linked(what)
	}
	for to, name := range nodeSpaces(c.t, c.lab) {
		spaces[to] = name
	}
	c.must("destroy", what)
	if noLab(c.t, c.lab, spaces); c.t.Failed() {
		c.t.Fatalf("after %s, resumed %v:\n%s", what, resume, said)
	}
}

// linked demands that every host reaches every other by its name.
func (c *crashing) linked(after string) {
	c.t.Helper()
	const script = `for h in h0 h1 h2; do ping -c 1 -W 60 $h > /dev/null || { echo "$h does not answer"; exit 1; }; done`
	if r := invoke(c.t, nil, "exec", "--lab", c.lab, "--node", "h*", "--", "sh", "-c", script); r.code != 0 {
		c.t.Errorf("after %s: exit %d\n%s%s", after, r.code, r.out, r.err)
	}
}

// nodeSpaces returns the nodes of a lab that run by their network namespaces.
func nodeSpaces(t *testing.T, lab string) map[string]string {
	t.Helper()
	spaces := map[string]string{}
	for name, pid := range nodePIDs(t, lab) {
		if to, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil { // it may be ending
			spaces[to] = name
		}
	}
	return spaces
}

// TestManagementKilled: a deploy with a management network is killed at random moments; what is left then, a
// destroy takes away.
func TestManagementKilled(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			r := moments(t)
			lab := "t-killed-" + runtime
			file := write(t, strings.NewReplacer("t-manage", lab, ", management: true", "").Replace(managedLab))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) }) // what a failed test has left
			start := time.Now()
			must(t, "deploy", "-q", "--management", "-r", runtime, file)
			span := time.Since(start)
			must(t, "destroy", lab)
			for range 8 * rounds() {
				moment := time.Duration(r.Int64N(int64(span)))
				cmd := exec.Command(program1(t), "deploy", "-q", "--management", "-r", runtime, file)
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				<-time.After(moment)
				_ = cmd.Process.Kill() // it may have come to its end
				_ = cmd.Wait()
				spaces := nodeSpaces(t, lab)
				must(t, "destroy", lab)
				if noLab(t, lab, spaces); t.Failed() {
					t.Fatalf("killed after %v of %v", moment, span)
				}
			}
		})
	}
}

// TestManagementRepair: what is gone of a management network comes back by a deploy: a host's interface, the end of
// it in the bridge, a host, the whole network.
func TestManagementRepair(t *testing.T) {
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			verbsTools(t, "ping")
			c := &crashing{t: t, program: program1(t), runtime: runtime, lab: "t-mend-" + runtime, runs: t.TempDir()}
			c.file = write(t, strings.Replace(managedLab, "t-manage", c.lab, 1))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", c.lab) })
			c.must("deploy", "nothing")
			c.linked("a deploy")
			hub := c.hub()
			for _, w := range []struct {
				what string
				do   func()
			}{
				{"an interface is removed", func() { must(t, "exec", "--lab", c.lab, "--root", "--node", "h1", "--", "ip", "link", "del", "mgmt0") }},
				{"an interface is down", func() {
					must(t, "exec", "--lab", c.lab, "--root", "--node", "h2", "--", "ip", "link", "set", "mgmt0", "down")
				}},
				{"an address is removed", func() {
					must(t, "exec", "--lab", c.lab, "--root", "--node", "h2", "--", "ip", "addr", "flush", "dev", "mgmt0")
				}},
				{"a host dies", func() { killNode(t, c.lab, "h0") }},
				{"the network is removed", func() {
					if err := syscall.Unmount(hub, syscall.MNT_DETACH); err != nil {
						t.Fatal(err)
					}
				}},
			} {
				w.do()
				c.must("deploy", w.what)
				c.linked(w.what)
			}
			spaces := nodeSpaces(t, c.lab)
			c.must("destroy", "repairs")
			noLab(t, c.lab, spaces)
		})
	}
}

// hub returns the file that holds the bridge's namespace.
func (c *crashing) hub() string {
	c.t.Helper()
	found, err := filepath.Glob("/run/mcastlab/*/management")
	more, moreErr := filepath.Glob("/run/mcastlab/*/*/management")
	found = append(found, more...)
	found = slices.DeleteFunc(found, func(p string) bool { return !strings.Contains(p, c.lab) })
	if err != nil || moreErr != nil || len(found) != 1 {
		c.t.Fatalf("the bridges of lab %s are %v", c.lab, found)
	}
	return found[0]
}
