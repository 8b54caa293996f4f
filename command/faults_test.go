// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
)

// faultStates is the output of fault ls.
type faultStates struct {
	Faults []struct {
		ID, Kind  string
		On, Over  bool
		Seen, Hit uint64
		Applied   []string
	}
}

func faultLs(t *testing.T) (f faultStates) {
	t.Helper()
	out := must(t, "fault", "ls", "--lab", "t-kinds", "--format", "json").out
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return f
}

// runFaulty runs a lab whose times are not asserted: only bytes and hits are looked
// at. It returns what the program says.
func runFaulty(t *testing.T, file string, more ...string) outcome {
	t.Helper()
	return invoke(t, nil, append(append([]string{"run", "-q", "--runtime", "netns", "--dilation", "4000", "--runs", t.TempDir(), "--format", "json"}, more...), file)...)
}

// runRouted is runFaulty, again as long as the ranks begin while a host is away: its link is
// down then, or switches have not heard yet (switches.reconverge) that it is back.
func runRouted(t *testing.T, file string, more ...string) (o outcome) {
	t.Helper()
	for range 6 {
		if o = runFaulty(t, file, more...); !strings.Contains(o.err, "no route to a member") {
			break
		}
	}
	return o
}

// TestLiveFaultKinds: on real interfaces, in one run, all kinds that the transport heals:
// every byte is right, each hits, and when they are over the lab is as before. Then, by
// hand, those that end a run: it says why, and after a reset the lab works again.
func TestLiveFaultKinds(t *testing.T) {
	need(t)
	before := snapshot(t)
	text := strings.Replace(starLab("t-kinds", `faults:
  - {in: run, for: 1s, loss: {links: h1-leaf0, direction: down, frames: {kind: data}, every-nth: 90}}
  - {in: run, for: 1s, corrupt: {links: h2-leaf0, direction: down, frames: {kind: data}, nth: [40, 120]}}
  - {in: run, for: 1s, truncate: {links: h2-leaf0, direction: down, frames: {kind: data}, nth: [80]}}
  - {in: run, for: 1s, duplicate: {links: h3-leaf0, every-nth: 50}}
  - {in: run, for: 1s, reorder: {links: h3-leaf0, direction: down, every-nth: 70, delay: 2us}}
  - {in: run, for: 1s, delay: {links: h1-leaf0, delay: 3us, jitter: 1us}}
  - {in: run, for: 1s, rate-cut: {links: h2-leaf0, rate: 50Gbps}}
  - {in: run, at: 20us, for: 20us, every: 300us, link-down: {links: h3-leaf0}}
  - {in: run, at: 60us, for: 10us, pause: {node: h3}}
  - {in: run, at: 80us, for: 10us, pause-storm: {node: h3, gap: 2us}}
  - {in: run, for: 1s, slow-receiver: {nodes: h2, rate: 40Gbps}}
  - {in: run, for: 20us, every: 200us, nic-stall: {nodes: h1}}
  - {in: run, at: 50us, restart: {nodes: leaf0}}
nics: {timeout: 1ms}
`), "schemes: [cepheus, binomial, unicast]", "schemes: [binomial, unicast]", 1)
	file := write(t, text)
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-kinds") })
	must(t, "deploy", "-q", "-r", "netns", file)
	fresh := held(t, "t-kinds")
	o := runFaulty(t, file)
	if o.code != exitOK && o.code != exitFidelity {
		t.Fatalf("exit %d\n%s%s", o.code, o.out, o.err)
	}
	var r struct {
		Results []struct{ Verified *bool }
		Faults  []struct {
			What      string
			Seen, Hit uint64
		}
	}
	if err := json.Unmarshal([]byte(o.out), &r); err != nil || len(r.Results) != 6 || len(r.Faults) != 13 {
		t.Fatalf("%v\n%s", err, o.out)
	}
	for i, row := range r.Results {
		if row.Verified == nil || !*row.Verified {
			t.Errorf("row %d: wrong bytes", i)
		}
	}
	for _, f := range r.Faults {
		// What a restart loses depends on what the switch happens to hold.
		if f.Seen == 0 || f.Hit == 0 && !strings.Contains(f.What, "restart") {
			t.Errorf("%s: %d seen, %d hit", f.What, f.Seen, f.Hit)
		}
	}
	if f := faultLs(t); len(f.Faults) != 0 {
		t.Errorf("after the run there are faults: %+v", f)
	}
	rested(t, "t-kinds", fresh)
	byHand(t)
	must(t, "destroy", "t-kinds")
	same(t, before, snapshot(t))
}

// byHand adds the faults that end a run, one after the other.
func byHand(t *testing.T) {
	t.Helper()
	plain := write(t, `name: t-kinds
topology: {star: {hosts: 4}}
nics: {timeout: 1ms, retries: 2}
workloads:
  - bcast: {schemes: [cepheus], sizes: [1MiB], iterations: 15} # goes on for more than a millisecond
`)
	must(t, "destroy", "t-kinds")
	must(t, "deploy", "-q", "-r", "netns", plain)
	fresh := held(t, "t-kinds")
	if out := must(t, "fault", "add", "--lab", "t-kinds", "--link", "re:^h[12]-leaf0$", "--rate", "1", "--dry-run", "loss").out; out != "h1:0>leaf0:1\nleaf0:1>h1:0\nh2:0>leaf0:2\nleaf0:2>h2:0\n" {
		t.Errorf("dry run:\n%s", out)
	}
	if f := faultLs(t); len(f.Faults) != 0 {
		t.Errorf("a dry run has added %+v", f)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no room in the multicast forwarding table", []string{"--node", "leaf0", "mft-full"}},
		// Whether a group does not come about or is gone when data comes is up to the moment.
		{"did not confirm|transport retry counter exceeded", []string{"--node", "tier:leaf", "--every", "20us", "wipe-mft"}},
		{"host crashed: h2", []string{"--node", "h2", "--at", "1ms", "--every", "10ms", "--for", "1ms", "crash"}},
	} {
		must(t, append([]string{"fault", "add", "--lab", "t-kinds"}, c.args...)...)
		// A registration that nobody confirms ends after 60 ms: on this clock, 12 s.
		o := runRouted(t, plain, "--dilation", "200")
		if o.code != exitRuntime || !regexp.MustCompile(c.want).MatchString(o.err) {
			t.Errorf("%v: exit %d, %s; want %q", c.args, o.code, o.err, c.want)
		}
		if f := faultLs(t); len(f.Faults) != 1 || f.Faults[0].Seen == 0 || f.Faults[0].Hit == 0 && f.Faults[0].Kind != "crash" || len(f.Faults[0].Applied) != 1 {
			t.Errorf("%v: fault ls says %+v", c.args, f)
		}
		must(t, "fault", "reset", "--lab", "t-kinds")
		rested(t, "t-kinds", fresh)
		if o := runRouted(t, plain, "--dilation", "400"); o.code != exitOK && o.code != exitFidelity {
			t.Errorf("after %v: exit %d, %s", c.args, o.code, o.err)
		}
	}
	must(t, "fault", "add", "--lab", "t-kinds", "--link", "h1-leaf0", "--for", "1us", "link-down")
	deadline := time.Now().Add(3 * time.Minute)
	for f := faultLs(t); f.Faults[0].On || !f.Faults[0].Over; f = faultLs(t) {
		if time.Now().After(deadline) {
			t.Fatalf("a fault does not end by itself: %+v", f)
		}
	}
}

// TestLiveFallback: on real interfaces multicast that does not work is gone round. A leaf
// that has no memory for the group, one that forgets it in the middle, a receiver that
// crawls: every byte is right, the report says what happened, and when it is over the group is
// used again. When a receiver's host crashes the others get everything, and the run names it.
func TestLiveFallback(t *testing.T) {
	need(t)
	unchanged(t)
	text := func(lab, mode, faults string) string {
		return strings.NewReplacer("[cepheus, binomial, unicast]", "[{cepheus: {fallback: "+mode+"}}]", "[64B, 64KiB, 1MiB]", "[256KiB]", "iterations: 2", "iterations: 40").
			Replace(starLab(lab, "nics: {timeout: 1ms}\nlinks: {rate: 10Gbps}\n"+faults))
	}
	for _, c := range []struct {
		name, mode, faults string
		returns            bool
		dead               string
	}{
		{"no memory", "full", "faults: [{for: 3ms, mft-full: {nodes: leaf0}}]\n", true, ""}, // with a dilated clock; the others in virtual time
		{"forgotten", "full", "faults: [{at: 2ms, wipe-mft: {nodes: leaf0}}]\n", true, ""},
		{"crawler", "partial", "faults: [{at: 2ms, for: 10s, slow-receiver: {nodes: h2, rate: 2Gbps}}]\n", true, ""},
		{"crash", "full", "faults: [{at: 2ms, for: 10s, crash: {nodes: h2}}]\n", true, "h2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lab := "t-fallback-" + strings.ReplaceAll(c.name, " ", "-")
			clock, more := []string{"--dilation", "400"}, ""
			if c.name != "no memory" {
				clock, more = nil, "runtime: {clock: lockstep}\n"
			}
			file := write(t, text(lab, c.mode, c.faults+more))
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			must(t, "deploy", "-q", "-r", "netns", file)
			fresh := held(t, lab)
			o := invoke(t, nil, append(append([]string{"run", "-q", "--runtime", "netns", "--runs", t.TempDir(), "--format", "json"}, clock...), file)...)
			rested(t, lab, fresh)
			must(t, "destroy", lab)
			if more != "" {
				if sim := invoke(t, nil, "run", "-q", "--runs", t.TempDir(), "--format", "json", file); sim.code != o.code || digestOf(sim.out) != digestOf(o.out) {
					t.Errorf("exit %d, digest %s; in the simulation %d, %s\n%s", o.code, digestOf(o.out), sim.code, digestOf(sim.out), o.err)
				}
			}
			if c.dead != "" && (o.code != exitRuntime || !strings.Contains(o.err, c.dead)) || c.dead == "" && o.code != exitOK && o.code != exitFidelity {
				t.Fatalf("exit %d\n%s%s", o.code, o.out, o.err)
			}
			if c.dead != "" {
				return // what it says is all that is printed
			}
			var r struct {
				Results []struct {
					Verified *bool
					Fallback struct{ Fallbacks, Returns, Overlay, Apart int }
				}
				Counters map[string]struct{ Counts map[string]uint64 }
			}
			if err := json.Unmarshal([]byte(o.out), &r); err != nil || len(r.Results) != 1 {
				t.Fatalf("%v\n%s", err, o.out)
			}
			row := r.Results[0]
			if row.Verified == nil || !*row.Verified || row.Fallback.Fallbacks == 0 || row.Fallback.Overlay+row.Fallback.Apart == 0 || c.returns && row.Fallback.Returns == 0 {
				t.Errorf("%s", o.out)
			}
			if n := r.Counters["host"].Counts["fallbacks"]; n != uint64(row.Fallback.Fallbacks) {
				t.Errorf("the counters know of %d fallbacks, the row of %+v", n, row.Fallback)
			}
		})
	}
}

// digestOf returns the digest in a report, empty if there is none.
func digestOf(report string) string {
	return regexp.MustCompile(`"digest": "[0-9a-f]*"`).FindString(report)
}

// TestFuzzCommand: a search says what it did; a lab with its own faults is replayed.
func TestFuzzCommand(t *testing.T) {
	file := write(t, starLab("t-fuzz", ""))
	o := call(t, hooks{}, "", "fuzz", "--seeds", "3", "--from", "5", "--out", t.TempDir(), file)
	if o.code != exitOK || !strings.Contains(o.out, "3 seeds from 5 on: 2 with kinds that overlap") {
		t.Errorf("exit %d: %s%s", o.code, o.out, o.err)
	}
	if o := call(t, hooks{}, "", "fuzz", "--replay", "../examples/faults/loss.mcl.yml"); o.code != exitOK || !strings.Contains(o.out, "fault-loss breaks no promise") {
		t.Errorf("exit %d: %s%s", o.code, o.out, o.err)
	}
}

// TestLabNames: --lab, and the variable that stands for it, take what can name a lab, and
// no path to a state.json elsewhere.
func TestLabNames(t *testing.T) {
	for _, name := range []string{"../../tmp", "/tmp", ".", "A", "a b"} {
		for _, verb := range [][]string{{"exec", "--node", "h0", "true"}, {"fault", "ls"}, {"fault", "add", "--node", "h0", "crash"}, {"fault", "reset"},
			{"group", "ls"}, {"controller", "ls"}, {"capture", "h0:0"}, {"logs", "h0"}} {
			t.Setenv("MCASTLAB_LAB_NAME", name)
			if o := call(t, hooks{}, "", verb...); o.code != 2 || o.out != "" || !strings.Contains(o.err, "cannot be the name of a lab") {
				t.Errorf("%v of lab %q: exit %d\n%s%s", verb, name, o.code, o.out, o.err)
			}
		}
		if o := call(t, hooks{}, "", "fault", "ls", "--lab", name); o.code != 2 || !strings.Contains(o.err, "cannot be the name of a lab") {
			t.Errorf("lab %q: exit %d\n%s%s", name, o.code, o.out, o.err)
		}
	}
}
