// SPDX-License-Identifier: Apache-2.0

package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// TestRankHosts: rank i is at the host number i, of the lab or of the list, and with more ranks the hosts start over.
func TestRankHosts(t *testing.T) {
	l, err := lab.Parse("x", []byte("name: x\ntopology: {star: {hosts: 3}}\nhosts: [{name: h1, kind: external}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	d := &orchestrator.Deployed{Lab: l, Graph: g}
	many := strings.TrimSuffix(strings.Repeat("h0,", ranksPerHost), ",")
	for _, c := range []struct {
		ranks      int // 0: not given
		list, want string
		err        string
	}{
		{2, "", "h0,h2", ""}, {1, "", "h0", ""}, {5, "", "h0,h2,h0,h2,h0", ""}, // h1 is a device
		{0, "h2,h0", "h2,h0", ""}, {0, "h2, h0,h2 ", "h2,h0,h2", ""}, {4, "h2,h0,h0", "h2,h0,h0,h2", ""}, {0, many, many, ""},
		{0, "", "", "needs the number of ranks"}, {-1, "", "", "at least one rank"}, {1, "h0,h2", "", "name as many as there are ranks"}, {0, "h0,h7", "", "no node h7"},
		{0, ",", "", "names no host"}, {2*ranksPerHost + 1, "", "", "rank 128 would be number 65 at h0: a host has room for 64"}, {0, many + ",h0", "", "room for 64"},
	} {
		at, err := rankHosts(d, c.ranks, c.ranks != 0, c.list)
		if err != nil && c.err == "" || err == nil && (c.err != "" || !slices.Equal(at, strings.Split(c.want, ","))) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%d ranks at %q: %v, %v", c.ranks, c.list, at, err)
		}
	}
}
