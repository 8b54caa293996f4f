// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/flows"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/rank"
)

const mix = `name: mix
topology: {star: {hosts: 5}}
links: {rate: 10Gbps, delay: 1us}
switches: {buffer: 1MB}
workloads:
  - flows:
      message: 4KiB
      interval: 50us
      flows:
        - {name: cast, from: h0, to: h1..h3, end: 1ms}
        - {name: one, from: h4, to: h2, begin: 300us, end: 600us}
        - {name: back, from: h3, to: h0, end: 500us}
        - {name: short, from: h1, to: [h4], begin: 10us, end: 10100ns}
`

// TestFlows: every receiver gets all bytes of its flows, at one time with others in both directions; the rates add up to
// them, and the run leaves them as a picture with its points.
func TestFlows(t *testing.T) {
	l, err := lab.Parse("f", []byte(mix))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 4 {
		t.Fatalf("%d rows", len(r.Results))
	}
	for i, row := range r.Results {
		c := apps.DetailsOf[flows.Course](row)
		got := 0.0
		for _, v := range c.Rates {
			got += v * 1e9 / 8 * 50e-6
		}
		if want := float64(c.Messages) * 4096; got < want*0.999999 || got > want*1.000001 {
			t.Errorf("%s: rates add up to %g bytes, and %d messages came", row.Scheme, got, c.Messages)
		}
		if row.Verified == nil || !*row.Verified || c.Messages == 0 || row.Scheme != []string{"cast", "one", "back", "short"}[i] {
			t.Errorf("%+v", row)
		}
	}
	if c := apps.DetailsOf[flows.Course](r.Results[0]); c.Rates[3] < 9 || c.Rates[10] > 7 { // alone, and beside the other
		t.Errorf("cast has %v Gb/s", c.Rates)
	}
	points, err := os.ReadFile(strings.TrimSuffix(r.Plots[0], "svg") + "csv")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(points)).ReadAll()
	if err != nil || len(rows) < 21 || fmt.Sprint(rows[0]) != "[time in ms cast one back short]" || rows[20][0] != "1" {
		t.Errorf("%v, %v", rows, err)
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil || strings.Contains(table.String(), "times as long") || !strings.Contains(table.String(), "Gb/s") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestFlowsWrong: a byte that is damaged at a receiver is found.
func TestFlowsWrong(t *testing.T) {
	l, err := lab.Parse("f", []byte(mix))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Simulate(t.Context(), l, Options{Base: t.TempDir(), Env: apps.Env{Delivered: func(r *rank.Rank, b *rank.Buffer) {
		if r.Name() == "h2" {
			b.Flip(9)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, false, true, true} {
		if v := r.Results[i].Verified; v == nil || *v != want {
			t.Errorf("%s: right bytes: %v, want %v", r.Results[i].Scheme, v, want)
		}
	}
}
