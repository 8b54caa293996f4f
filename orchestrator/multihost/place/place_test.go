// SPDX-License-Identifier: Apache-2.0

package place

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

func graph(t *testing.T, topology string) *topo.Graph {
	t.Helper()
	l, err := lab.Parse("place", []byte("name: place\ntopology: "+topology+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestNodes: every node goes somewhere, pods stay together where servers are large enough, and cores count.
func TestNodes(t *testing.T) {
	for _, c := range []struct {
		topology string
		cores    []int
		most     int // links between servers, at the most
		whole    bool
	}{
		{"{fat-tree: {k: 4}}", []int{2}, 0, true},
		{"{fat-tree: {k: 4}}", []int{2, 2}, 8, true},
		{"{fat-tree: {k: 4}}", []int{2, 2, 2}, 12, true},
		{"{fat-tree: {k: 8}}", []int{4, 2, 2}, 80, true},
		{"{leaf-spine: {leaves: 4, spines: 2, hosts: 4}}", []int{2, 2}, 4, true},
		{"{star: {hosts: 9}}", []int{2, 2, 2}, 8, false},
		{"{custom: {preset: back-to-back}}", []int{2, 2}, 1, false},
	} {
		g := graph(t, c.topology)
		var servers []Server
		all := 0
		for i, n := range c.cores {
			servers = append(servers, Server{fmt.Sprint("m", i), n, 8 << 30})
			all += n
		}
		at, err := Nodes(g, servers)
		if err != nil {
			t.Fatal(err)
		}
		has, pods, crossing := make([]int, len(servers)), map[int]int{}, 0
		for i, m := range at {
			has[m]++
			if pod := g.Nodes[i].Pod; pod >= 0 && c.whole {
				if before, ok := pods[pod]; ok && before != m {
					t.Errorf("%s on %v: pod %d is on two servers", c.topology, c.cores, pod)
				}
				pods[pod] = m
			}
		}
		for _, k := range g.Links {
			if at[k.A.Node] != at[k.B.Node] {
				crossing++
			}
		}
		if crossing > c.most {
			t.Errorf("%s on %v: %d links between servers, and %d would do", c.topology, c.cores, crossing, c.most)
		}
		for m, n := range has {
			if fair := float64(len(at)*c.cores[m]) / float64(all); float64(n) > 1.6*fair+1 || n == 0 && len(at) >= len(servers) {
				t.Errorf("%s on %v: server %d has %d nodes, and its share is %.1f", c.topology, c.cores, m, n, fair)
			}
		}
	}
}

// TestNodesTooMany: what does not fit is refused with the figures, and a small server gets no more than it has room for.
func TestNodesTooMany(t *testing.T) {
	g := graph(t, "{fat-tree: {k: 4}}")
	_, err := Nodes(g, []Server{{"a", 64, 1 << 30}, {"b", 64, 512 << 20}})
	if err == nil || !strings.Contains(err.Error(), "36 nodes of 48 MiB each do not fit: 2 servers have memory for 25") {
		t.Error(err)
	}
	at, err := Nodes(g, []Server{{"a", 64, 512 << 20}, {"b", 1, 8 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	has := [2]int{}
	for _, m := range at {
		has[m]++
	}
	if room := (&Server{Memory: 512 << 20}).room(); has[0] > room {
		t.Errorf("%d nodes are on a server with memory for %d", has[0], room)
	}
}
