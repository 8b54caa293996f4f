// SPDX-License-Identifier: Apache-2.0

package labspec

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
)

// keyLabs are labs that set what others depend on: a nested key that goes nowhere in any of them is not passed on.
func keyLabs(t *testing.T) (labs []*lab.Lab) {
	t.Helper()
	for _, text := range []string{`
topology: {leaf-spine: {leaves: 2, spines: 2, hosts: 2}}
links: {vlan: 12, tiers: {host-leaf: {rate: 25Gbps, delay: 100ns}, leaf-spine: {rate: 50Gbps, delay: 200ns}}}
switches:
  pfc: {priorities: [3], xoff: 100kB, xon: 50kB, headroom: 200kB, quanta: 1000}
  ecn: {enabled: true, priorities: [3], kmin: 100kB, kmax: 400kB, pmax: 0.25}
  watchdog: {enabled: true, detect: 1ms, restore: 2ms, action: forward}
  scheduling: [1, 2, 0, 0, 0, 4, 0, 0]
  classes: [{dscp: 28, priority: 5}, {pcp: 1, priority: 2}]
  cnp-filter: {window: 20us}
  feedback-delay: 300ns
  group-memory: 64kB
  group-net: 11.0.0.0/16
  fan-out: 3
nics: {congestion: dcqcn, byte-counter: 1MB, retransmit: irn, irn: {cap: 128KiB, rto-low: 50us, rto-high: 1ms},
  scheduling: [1, 2, 0, 0, 0, 4, 0, 0], host-cost: {post: 1us, poll: 1us, stack: 1us, connection: 1us, jitter: 1us}}
`, `
topology: {star: {hosts: 4}}
switches: {pfc: {alpha: 0.125, resume-offset: 3KiB}, accelerator: look-aside}
`, `
topology: {m-port-n-tree: {m: 4, n: 4}}
links: {tiers: {leaf-agg: {rate: 50Gbps, delay: 200ns}, agg-core: {rate: 50Gbps, delay: 200ns}, core-core: {rate: 50Gbps, delay: 200ns}}}
switches: {queues: input, forwarding: cut-through}
`} {
		l, err := lab.Parse("keys", []byte("name: keys\n"+strings.TrimPrefix(text, "\n")+"workloads: [{bcast: {schemes: [{name: cepheus, fallback: full}], sizes: [64B], memory: phantom}}]\n"))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		labs = append(labs, l)
	}
	return labs
}

// builtOf returns all that nodes and ranks are given of a lab, by path.
func builtOf(t *testing.T, l *lab.Lab) map[string]string {
	t.Helper()
	g, err := Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	spec := Fabric(l, g)
	all := map[string]string{}
	leaves(all, "links", reflect.ValueOf(g.Links))
	leaves(all, "switch", reflect.ValueOf(spec.Switch))
	leaves(all, "nic", reflect.ValueOf(spec.NIC))
	leaves(all, "ranks", reflect.ValueOf(RankParams(l)))
	all["vlan"], all["icrc"], all["family"], all["groups"] = fmt.Sprint(spec.VLAN), fmt.Sprint(spec.TrustICRC), fmt.Sprint(g.IPv6), fmt.Sprint(g.Groups)
	all["channel"] = fmt.Sprint(ChannelDelay(l))
	return all
}

// leaves enters the values below v that are no structures, by path.
func leaves(all map[string]string, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		all[path+"?"] = fmt.Sprint(!v.IsNil())
		if !v.IsNil() {
			leaves(all, path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(all, path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			leaves(all, fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Func, reflect.Chan, reflect.Map:
	default:
		all[path] = fmt.Sprint(v)
	}
}

// elsewhere lists keys that change nothing in builtOf's result, each with its reader and the test that shows its
// effect.
var elsewhere = map[string]string{
	"Switches.Reconverge": "when drivers give switches new routes",
	"Runtime.Dilation":    "the clock of a running lab",
	"Runtime.Clock":       "which driver carries a running lab",
	"Runtime.Management":  "a network beside the fabric, of the orchestrator (TestManagementRepair)",
	"Runtime.Hosts":       "which servers carry a lab (TestSpread)",
	"Runtime.Links":       "how links cross servers (TestSpreadMPI)",
	"Runtime.IO":          "how nodes write to veth (TestLiveTrains)",
}

// TestKeysReachNodes: each key of links, switches and nics, nested ones too, changes something that nodes or ranks are
// given, and each setting of the cores is changed by a key.
func TestKeysReachNodes(t *testing.T) {
	reached, keys := map[string]bool{}, map[string]bool{}
	for _, l := range keyLabs(t) {
		usual := builtOf(t, l)
		for _, part := range []string{"Links", "Switches", "NICs", "Runtime"} {
			v := reflect.ValueOf(l).Elem().FieldByName(part)
			perturb(v, part, "", func(key string) {
				changed := false
				now := builtOf(t, l)
				for _, path := range pathsOf(usual, now) {
					if usual[path] != now[path] {
						changed = true
						reached[general(path)] = true
					}
				}
				keys[general(key)] = keys[general(key)] || changed
			})
		}
		for path := range usual {
			reached[general(path)] = reached[general(path)] || false
		}
	}
	for key, changed := range keys {
		why, listed := elsewhere[key]
		if !changed && !listed {
			t.Errorf("%s changes nothing that nodes or ranks are given: pass it on (CONTRIBUTING, a key of the lab file)", key)
		}
		if changed && listed {
			t.Errorf("%s changes something: take it out of elsewhere (%s)", key, why)
		}
	}
	for path, changed := range reached {
		if !changed && !strings.HasSuffix(path, "?") && !slices.ContainsFunc(fixed, func(f string) bool { return strings.HasPrefix(path, f) }) {
			t.Errorf("no key changes %s: add one, or say in fixed where it is from", path)
		}
	}
}

// fixed are settings that no key changes.
var fixed = []string{
	"links.A", "links.B", // the topology's
	"switch.Settings.ECN.Random", // drawn for each switch, by seed
	"switch.Settings.PFC.Obey",   // tests of switches alone
	"nic.Credits",                // package fabric's, from the switch's input queues
	"ranks.FirstPSN",             // random labs
}

// general returns a path without numbers in brackets.
func general(path string) string {
	for {
		i := strings.IndexByte(path, '[')
		if i < 0 {
			return path
		}
		j := i + strings.IndexByte(path[i:], ']')
		path = path[:i] + path[j+1:]
	}
}

func pathsOf(maps ...map[string]string) (all []string) {
	for _, m := range maps {
		for p := range m {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// perturb gives each leaf below v other values, one at a time, calls look with its path, and puts the old one back.
func perturb(v reflect.Value, path string, enum string, look func(path string)) {
	old := reflect.New(v.Type()).Elem()
	old.Set(v)
	set := func(x any) {
		v.Set(reflect.ValueOf(x).Convert(v.Type()))
		look(path)
		v.Set(old)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
			perturb(v.Elem(), path, enum, look)
			v.Set(old)
			return
		}
		perturb(v.Elem(), path, enum, look)
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			perturb(v.Field(i), path+"."+f.Name, f.Tag.Get("enum"), look)
		}
	case reflect.Slice:
		for i := range v.Len() {
			perturb(v.Index(i), fmt.Sprintf("%s[%d]", path, i), "", look)
		}
	case reflect.Bool:
		set(!v.Bool())
	case reflect.Float64:
		set(v.Float()/2 + 0.25)
	case reflect.String:
		for word := range strings.SplitSeq(enum, ",") {
			if word != v.String() && word != "" {
				set(word)
			}
		}
		if enum == "" {
			set("11.1.0.0/16") // of switches.group-net
		}
	default:
		if enum != "" {
			for word := range strings.SplitSeq(enum, ",") {
				var n int64
				if _, err := fmt.Sscan(word, &n); err == nil && word != fmt.Sprint(v) {
					set(n)
				}
			}
			return
		}
		if v.CanInt() {
			set(other(v.Int()))
		} else {
			set(other(int64(v.Uint())))
		}
	}
}

// other returns a number near n that is not n.
func other(n int64) int64 {
	if n == 1 {
		return 2
	}
	return n/2 + 1
}
