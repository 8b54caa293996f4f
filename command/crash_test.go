// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// wrongs returns the failures of a step (see failpoint.At).
func wrongs() []string {
	const oneAgent = `docker ps -q -f label=mcastlab.lab=t-crash | head -n 1 | xargs -r docker kill
for d in /proc/[0-9]*; do if grep -zqx MCASTLAB_LAB=t-crash $d/environ 2>/dev/null; then kill -9 ${d#/proc/}; break; fi; done`
	return []string{"kill", "error:EBUSY", "error:EEXIST", "error:ENOSPC", "timeout", "run:" + oneAgent}
}

// crashing runs a program whose effects go wrong.
type crashing struct {
	t       *testing.T
	program string
	runtime string
	lab     string // its name
	file    string
	runs    string
}

func newCrashing(t *testing.T, runtime, lab string) *crashing {
	t.Helper()
	c := &crashing{t: t, program: variant(t, "CGO_ENABLED=0", "-tags", "failpoint"), runtime: runtime, lab: "t-crash", file: write(t, lab), runs: t.TempDir()}
	t.Cleanup(func() { _ = exec.Command(c.program, "destroy", c.lab).Run() }) // what a failed test has left
	return c
}

// args are those of a verb of the life cycle.
func (c *crashing) args(verb string) []string {
	switch verb {
	case "destroy":
		return []string{"destroy", c.lab}
	case "run":
		return []string{"run", "-q", "-r", c.runtime, "--dilation", "2000", "--runs", c.runs, c.file}
	}
	return []string{"deploy", "-q", "-r", c.runtime, c.file} // a repair is one, too
}

// do runs a verb, with something going wrong if fail is not empty, and returns the step at
// which it did, its exit code and what it said.
func (c *crashing) do(verb, fail string) (step string, code int, said string) {
	c.t.Helper()
	seen := filepath.Join(c.t.TempDir(), "seen")
	cmd := exec.Command(c.program, c.args(verb)...)
	cmd.Env = append(os.Environ(), "MCASTLAB_FAIL="+fail, "MCASTLAB_FAIL_SEEN="+seen)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		c.t.Fatal(err)
	}
	b, _ := os.ReadFile(seen) // not there if it did not come to that step
	return string(b), cmd.ProcessState.ExitCode(), string(out)
}

// must runs a verb that has to do its work.
func (c *crashing) must(verb, after string) {
	c.t.Helper()
	if _, code, said := c.do(verb, ""); code != exitOK && (verb != "run" || code != exitFidelity) {
		c.t.Fatalf("%s after %s: exit %d\n%s", verb, after, code, said)
	}
}

// prepare brings about what a verb starts from.
func (c *crashing) prepare(verb string) {
	c.t.Helper()
	if verb == "deploy" {
		return
	}
	c.must("deploy", "nothing")
	if verb == "repair" {
		killNode(c.t, c.lab, "h1")
	}
}

// cell lets something go wrong at one step of a verb, and then has the lab either brought
// up again and run, or destroyed: nothing of it is left.
func (c *crashing) cell(verb string, step int, wrong string, resume bool, before map[string]string) {
	c.t.Helper()
	c.prepare(verb)
	at, code, said := c.do(verb, fmt.Sprintf("%d:%s", step, wrong))
	kind, _, _ := strings.Cut(wrong, " ") // of a command its first word
	what := fmt.Sprintf("%s, step %d (%s): %s", verb, step, at, kind)
	switch {
	case wrong == "kill" && at != "" && code != -1:
		c.t.Errorf("%s: exit %d", what, code)
	case wrong != "kill" && code != exitOK && code != exitRuntime && code != exitFidelity, strings.Contains(said, "panic:"), strings.Contains(said, "goroutine "):
		c.t.Errorf("%s: exit %d\n%s", what, code, said)
	}
	if resume {
		c.must("deploy", what)
		c.must("run", what)
	}
	c.must("destroy", what)
	if c.nothingLeft(before, what); c.t.Failed() {
		c.t.Fatalf("after %s, resumed %v:\n%s", what, resume, said)
	}
}

// nothingLeft compares the server's state with an earlier one. The engine continues with a request
// whose command was killed: a container that it creates after a destroy has listed what there is
// belongs to the next destroy.
func (c *crashing) nothingLeft(before map[string]string, after string) {
	c.t.Helper()
	const containers = "docker ps -aq"
	now := snapshot(c.t)
	if c.runtime == "docker" && now[containers] != before[containers] {
		c.t.Logf("after %s the engine has created a container late: %s", after, now[containers])
		c.must("destroy", after+", a second time")
		now = snapshot(c.t)
	}
	same(c.t, before, now)
}

const crashLab = `name: t-crash
topology: {star: {hosts: 2}}
workloads:
  - bcast: {schemes: [cepheus], sizes: [4KiB], iterations: 2}
`

// TestCrashMatrix: at each step of deploy, repair, run and destroy the command is killed,
// an agent dies, an effect fails as the kernel's may, or nobody learns of its success.
// Then deploy and run work, or destroy leaves nothing. The gate draws cells of the matrix
// by the day, a soak does all of them, and those of deploy on a fat-tree.
func TestCrashMatrix(t *testing.T) {
	need(t, "docker")
	soak := os.Getenv("MCASTLAB_SOAK") != ""
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			c := newCrashing(t, runtime, crashLab)
			c.must("deploy", "nothing") // the image is made
			c.must("destroy", "a deploy")
			before := snapshot(t)
			day := uint64(time.Now().Unix() / 86400)
			draw := rand.New(rand.NewPCG(day, uint64(len(runtime))))
			cells := 0
			for _, verb := range []string{"deploy", "repair", "run", "destroy"} {
				steps := len(c.steps(verb, before))
				for k, wrong := range wrongs() {
					each := 1
					if soak {
						each = steps
					}
					for i := range each {
						step := i + 1
						if !soak {
							step = 1 + draw.IntN(steps)
						}
						c.cell(verb, step, wrong, (step+k)%2 == 0, before)
						cells++
					}
				}
				t.Logf("%s: %d steps", verb, steps)
			}
			t.Logf("%d cells, day %d", cells, day)
		})
	}
}

// steps names the steps of a verb that goes well, in their order.
func (c *crashing) steps(verb string, before map[string]string) []string {
	c.t.Helper()
	c.prepare(verb)
	names := c.count(verb)
	c.must("destroy", verb)
	same(c.t, before, snapshot(c.t))
	return names
}

// count does a verb, which goes well, and returns its steps.
func (c *crashing) count(verb string) []string {
	c.t.Helper()
	count := filepath.Join(c.t.TempDir(), "count")
	cmd := exec.Command(c.program, c.args(verb)...)
	cmd.Env = append(os.Environ(), "MCASTLAB_FAIL_COUNT="+count)
	if out, err := cmd.CombinedOutput(); err != nil && cmd.ProcessState.ExitCode() != exitFidelity {
		c.t.Fatalf("%s: %v\n%s", verb, err, out)
	}
	b, err := os.ReadFile(count)
	if err != nil {
		c.t.Fatal(err)
	}
	names := strings.Split(strings.TrimSpace(string(b)), "\n")
	if len(names) < 4 {
		c.t.Fatalf("%s has the steps %q", verb, names)
	}
	return names
}

// TestCrashTree: the steps of a deploy of 36 nodes, each with another failure.
func TestCrashTree(t *testing.T) {
	if os.Getenv("MCASTLAB_SOAK") == "" {
		t.Skip("takes long: set MCASTLAB_SOAK")
	}
	need(t)
	c := newCrashing(t, "netns", strings.Replace(crashLab, "star: {hosts: 2}", "fat-tree: {k: 4}", 1))
	before := snapshot(t)
	steps := len(c.steps("deploy", before))
	all := wrongs()
	for step := 1; step <= steps; step++ {
		c.cell("deploy", step, all[step%len(all)], step%5 == 0, before)
	}
	t.Logf("%d steps", steps)
}

// TestResidueAtEachStep kills a deployment at one step after the other, and a destruction of
// what there is, too; the next destroy leaves nothing. A kind of step comes as often as there
// are nodes or links: it is hit at its first, in a soak on a fat-tree at its middle and its
// last time, too. The gate takes a third of the kinds each day.
func TestResidueAtEachStep(t *testing.T) {
	soak, text := os.Getenv("MCASTLAB_SOAK") != "", crashLab
	if soak {
		text = strings.Replace(text, "star: {hosts: 2}", "fat-tree: {k: 4}", 1)
	}
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			c := newCrashing(t, runtime, text)
			c.must("deploy", "nothing") // the image is made
			c.must("destroy", "a deploy")
			before := snapshot(t)
			at := map[string][]int{}
			var kinds []string
			for i, name := range c.steps("deploy", before) {
				if at[name] == nil {
					kinds = append(kinds, name)
				}
				at[name] = append(at[name], i+1)
			}
			day, hit := int(time.Now().Unix()/86400), 0
			for i, kind := range kinds {
				all := at[kind]
				steps := []int{all[0], all[len(all)/2], all[len(all)-1]}
				if !soak {
					steps = steps[:1-min(1, (i+day)%3)]
				}
				for _, step := range slices.Compact(steps) {
					_, code, said := c.do("deploy", strconv.Itoa(step))
					if code != -1 && code != exitOK { // parallel effects come in another order each time
						t.Errorf("deploy: exit %d\n%s", code, said)
					}
					c.do("destroy", strconv.Itoa(1+step%7))
					c.must("destroy", "a kill")
					if c.nothingLeft(before, "a kill"); t.Failed() {
						t.Fatalf("after a kill at step %d (%s)", step, kind)
					}
					hit++
				}
			}
			t.Logf("%d kinds of steps, killed at %d steps", len(kinds), hit)
		})
	}
}
