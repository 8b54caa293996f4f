// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestLiveTrace: a running lab records what a simulation does, with a dilated clock and in virtual time. Every message's time is
// split without a rest, and a lost packet shows as retransmission.
func TestLiveTrace(t *testing.T) {
	text := strings.Replace(starLab("t-trace", "trace: messages\nfaults: [{loss: {links: h1-leaf0, frames: {kind: data, from: h0}, nth: [9]}}]\n"), "iterations: 2", "iterations: 1", 1)
	for runtime, more := range map[string]string{"netns": "", "docker": "runtime: {clock: lockstep}\n"} { // by themselves
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			r := runLab(t, runtime, write(t, text+more))
			o := invoke(t, nil, "trace", r.RunDir, "--explain", "--format", "json")
			if o.code != 0 {
				t.Fatalf("exit %d\n%s", o.code, o.err)
			}
			var table struct {
				Rows []struct {
					Scheme   string
					Bytes    int
					Messages int
					Times    map[string]int64
				}
			}
			if err := json.Unmarshal([]byte(o.out), &table); err != nil {
				t.Fatal(err)
			}
			repeated := int64(0)
			for _, row := range table.Rows {
				sum := int64(0)
				for name, ns := range row.Times {
					if name != "jct_ns" {
						sum += ns
					}
				}
				repeated += row.Times["retransmission_ns"]
				if row.Messages == 0 || sum != row.Times["jct_ns"] || row.Times["unknown_ns"] != 0 || row.Times["serialisation_ns"] <= 0 {
					t.Errorf("%+v", row)
				}
			}
			if len(table.Rows) < len(r.Results) || repeated == 0 {
				t.Errorf("%d rows of %d, %d ns of retransmission\n%s", len(table.Rows), len(r.Results), repeated, o.out)
			}
		})
	}
}
