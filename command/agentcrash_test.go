// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// agentLab is a lab that a process of a node dies in; more are its faults.
func agentLab(name, fallback, more string) string {
	scheme := "[cepheus]"
	if fallback != "" {
		scheme = "[{cepheus: {fallback: " + fallback + "}}]"
	}
	return strings.NewReplacer("[cepheus, binomial, unicast]", scheme, "[64B, 64KiB, 1MiB]", "[256KiB]", "iterations: 2", "iterations: 40").
		Replace(starLab(name, "nics: {timeout: 1ms}\nlinks: {rate: 10Gbps}\n"+more))
}

// agentRun is the report of a run with faults of agents.
type agentRun struct {
	Results []struct {
		Verified *bool
		Fallback struct{ Fallbacks, Overlay, Apart int }
	}
	Faults []struct {
		Kind      string
		Seen, Hit uint64
	}
	EventsCut uint64 `json:"events_cut"`
	Counters  map[string]struct{ Counts, Drops map[string]uint64 }
}

// TestAgentCrashSwitch: in the middle of a run, twice, the process that is the switch ends and
// another one takes its place, with an empty table of groups. Every byte comes, round by unicast,
// counters go on, and the lab holds afterwards what it held when it was deployed; so it does after
// a second run, and after a fault that was added by hand.
func TestAgentCrashSwitch(t *testing.T) {
	need(t)
	unchanged(t)
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			t.Parallel()
			lab := "t-agent-" + runtime
			file := write(t, agentLab(lab, "full", "faults:\n  - {at: 2ms, for: 3ms, every: 8ms, agent-crash: {nodes: leaf0}}\n"))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			must(t, "deploy", "-q", "-r", runtime, file)
			fresh := held(t, lab)
			for range 2 {
				o := runFaulty(t, file, "--dilation", "100", "--runtime", runtime)
				var r agentRun
				if err := json.Unmarshal([]byte(o.out), &r); o.code != exitOK && o.code != exitFidelity || err != nil || len(r.Results) != 1 || len(r.Faults) != 1 {
					t.Fatalf("exit %d, %v\n%s%s", o.code, err, o.out, o.err)
				}
				if row := r.Results[0]; row.Verified == nil || !*row.Verified || row.Fallback.Fallbacks == 0 || row.Fallback.Overlay+row.Fallback.Apart == 0 {
					t.Errorf("the row is %+v", row)
				}
				if f := r.Faults[0]; f.Kind != "agent-crash" || f.Seen < 2 || f.Hit == 0 {
					t.Errorf("the fault: %+v", f)
				}
				// What the processes before the last one have counted is among it: data of the group.
				if c := r.Counters["switch"]; c.Counts["cloned"] == 0 || c.Drops["no-route"]+c.Drops["unknown-group"] == 0 || r.EventsCut != 0 {
					t.Errorf("it counts %+v, and has lost %d events", c, r.EventsCut)
				}
				rested(t, lab, fresh)
			}
			must(t, "fault", "add", "--lab", lab, "--node", "h1", "--for", "1ms", "agent-crash")
			waitFor(t, func() bool {
				f := agentFaults(t, lab)
				return len(f.Faults) == 1 && f.Faults[0].Seen == 1 && f.Faults[0].Over
			})
			must(t, "fault", "reset", "--lab", lab)
			rested(t, lab, fresh)
			must(t, "destroy", lab)
		})
	}
}

// agentFaults lists the faults of a lab.
func agentFaults(t *testing.T, lab string) (f faultStates) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, "fault", "ls", "--lab", lab, "--format", "json").out), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestAgentCrashHost: when the process that is a host ends, its rank ends with the reason. A job
// that cannot do without it ends; with a fallback the others get everything, and the run names
// it. The lab is as it was deployed, and a run without the fault is none the worse for it.
func TestAgentCrashHost(t *testing.T) {
	need(t)
	unchanged(t)
	for _, fallback := range []string{"", "full"} {
		t.Run("fallback "+fallback, func(t *testing.T) {
			lab := "t-agent-host" + fallback
			file := write(t, agentLab(lab, fallback, ""))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			must(t, "deploy", "-q", "-r", "netns", file)
			fresh := held(t, lab)
			must(t, "fault", "add", "--lab", lab, "--node", "h2", "--every", "4ms", "--for", "500us", "agent-crash")
			why := "host crashed: h2 at "
			if fallback != "" {
				why = "(h2)" // that it was lost, or given up by those who had nothing from it
			}
			if o := runFaulty(t, file, "--dilation", "400"); o.code != exitRuntime || !strings.Contains(o.err, why) {
				t.Errorf("exit %d, %s", o.code, o.err)
			}
			must(t, "fault", "reset", "--lab", lab)
			rested(t, lab, fresh)
			if o := runRouted(t, file, "--dilation", "400"); o.code != exitOK && o.code != exitFidelity {
				t.Errorf("afterwards: exit %d, %s", o.code, o.err)
			}
			rested(t, lab, fresh)
			must(t, "destroy", lab)
		})
	}
}
