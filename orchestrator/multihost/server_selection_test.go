// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestPick: runtime.hosts names servers, in its order, or says what their labels have to be, or both.
func TestPick(t *testing.T) {
	all := []engine.Server{
		{Node: "n1", Name: "sw1", Labels: map[string]string{"rack": "a", "nvme": ""}},
		{Node: "n2", Name: "sw2", Labels: map[string]string{"rack": "b"}},
		{Node: "n3", Name: "sw3"},
	}
	for _, c := range []struct{ hosts, want string }{
		{"auto", "sw1 sw2 sw3"},
		{"", "sw1 sw2 sw3"},
		{"sw3, n1", "sw3 sw1"},
		{"node.labels.rack==a", "sw1"},
		{"node.labels.rack!=a", "sw2 sw3"},
		{"auto,node.labels.rack == b", "sw2"},
		{"sw3,sw2,node.labels.rack!=a", "sw3 sw2"},
		{"node.labels.rack!=a,node.labels.rack!=b", "sw3"},
		{"sw9", `error: "sw9" is no server that is ready: these are sw1, sw2, sw3`},
		{"sw1,n1", `error: "n1" appears twice`},
		{"node.labels.rack==c", "error: node.labels.rack==c: no server is left: sw1 has nvme= rack=a, sw2 has rack=b, sw3 has no labels"},
		{"sw3,node.labels.rack==a", "error: node.labels.rack==a: no server is left: sw3 has no labels"},
		{"node.labels.rack=a", `error: "node.labels.rack=a" is no constraint: give node.labels.KEY==VALUE, or with !=`},
		{"node.labels.==a", `error: "node.labels.==a" is no constraint: give node.labels.KEY==VALUE, or with !=`},
	} {
		some, err := selectServers(all, c.hosts)
		var names []string
		for _, m := range some {
			names = append(names, m.Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("hosts %q: %s, want %s", c.hosts, got, c.want)
		}
	}
}
