// SPDX-License-Identifier: Apache-2.0

package house

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/mcastlab/mcastlab/internal/counters"
)

// TestCountersDashboard: docs/grafana.json asks for metrics that there are.
func TestCountersDashboard(t *testing.T) {
	b, err := os.ReadFile("docs/grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{
		"mcastlab_node_up": true, "mcastlab_node_lab_seconds": true, "mcastlab_node_frames_held": true, "mcastlab_switch_groups": true, "mcastlab_port_queue_peak_bytes": true,
	}
	for _, kind := range counters.Kinds() {
		known["mcastlab_"+kind+"_dropped_total"] = true
		for _, c := range counters.Names(kind) {
			known["mcastlab_"+kind+"_"+c.Name+"_total"] = true
		}
	}
	for _, c := range counters.PortNames() {
		known["mcastlab_port_"+c.Name+"_total"] = true
	}
	asked := 0
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			for _, name := range regexp.MustCompile(`mcastlab_[a-z_]+`).FindAllString(target.Expr, -1) {
				if asked++; !known[name] {
					t.Errorf("panel %q asks for %s, which there is not", p.Title, name)
				}
			}
		}
	}
	if asked == 0 {
		t.Error("the dashboard asks for nothing")
	}
}
