package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
)

// TestQuantities: what the kinds of workloads say that their rows have, which validate holds lines
// of expect to, rows have.
func TestQuantities(t *testing.T) {
	for _, c := range []struct{ topology, workload string }{
		{"{star: {hosts: 4}}", "storage: {client: h0, schemes: [unicasts], bs: [512B], size: 4KiB}"},
		{"{star: {hosts: 4}}", "hpl: {n: [32], nb: [8], grids: [2x2], bcast: [cepheus]}"},
		{"{star: {hosts: 4}}", "fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [4KiB], iterations: 1}"},
		{"{m-port-n-tree: {m: 4, n: 2}}", "many-to-many: {schemes: [opensm], sizes: [4KiB], iterations: 1}"},
	} {
		l, err := lab.Parse("lab.mcl.yml", fmt.Appendf(nil, "name: q\ntopology: %s\nworkloads: [{%s}]\n", c.topology, c.workload))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		own, ok := l.Workloads[0].Chosen().Kind.(apps.Measurer)
		if !ok {
			t.Fatalf("%s has no quantities of its own", c.workload)
		}
		row := r.Results[0]
		for of, parts := range own.Quantities() {
			for _, part := range parts {
				text := fmt.Sprintf("%s.%s.%dB.%s.%s >= 0", row.Workload, row.Scheme, row.SizeBytes, of, part)
				if e := evaluate([]string{text}, r.Results)[0]; e.Got == nil && !strings.Contains(fmt.Sprint(e.missing), "needs at least 100") {
					t.Errorf("%s: %v", text, e.missing)
				}
			}
		}
	}
}
