// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestScrape: nodes that answer have their metrics in the text, and those that do not are shown as not up.
func TestScrape(t *testing.T) {
	const help = "# HELP mcastlab_host_sent_total frames sent\n# TYPE mcastlab_host_sent_total counter\n"
	sockets := map[string]string{
		"h0": serveText(t, "m", http.StatusOK, help+"mcastlab_host_sent_total{node=\"h0\"} 7\n"), "h1": serveText(t, "m", http.StatusInternalServerError, "not configured"),
		"h2": filepath.Join(t.TempDir(), "nobody"),
	}
	names := []string{"h0", "h1", "h2", "h3"}
	all := scrape(t.Context(), names, func(i int) Dialer { return dialerOf(sockets[names[i]]) }, func(f func(int) error) (err error) {
		for i := range names[:3] { // h3 is lost
			err = errors.Join(err, f(i))
		}
		return err
	})
	var out strings.Builder
	if err := writeMetrics(&out, all); err != nil {
		t.Fatal(err)
	}
	want := help + "mcastlab_host_sent_total{node=\"h0\"} 7\n# HELP mcastlab_node_up 1 if the node has answered with its metrics\n# TYPE mcastlab_node_up gauge\n" +
		"mcastlab_node_up{node=\"h0\"} 1\nmcastlab_node_up{node=\"h1\"} 0\nmcastlab_node_up{node=\"h2\"} 0\nmcastlab_node_up{node=\"h3\"} 0\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// twoServers are nodes of which the second and fourth are on a server that may be away.
type twoServers struct {
	NodeAccess
	dial map[int]Dialer
	away bool
}

// DialMetrics returns what connects to the metrics of a node.
func (x *twoServers) DialMetrics(node int) Dialer { return x.dial[node] }

// EachReached calls f for the nodes of the servers that answer.
func (x *twoServers) EachReached(_ context.Context, reached func(m *engine.Server, err error) error, f func(node int) error) (err error) {
	for i, name := range []string{"m0", "m1"} {
		m := &engine.Server{Node: name, Name: name, Address: fmt.Sprint("10.0.0.", i+1)}
		var why error
		if x.away && i == 1 {
			why = fmt.Errorf("server %s does not answer: no route to host", m)
		}
		if reached(m, why) == nil {
			err = errors.Join(err, f(i), f(i+2))
		}
	}
	return err
}

// TestScrapeServers: while a server does not answer its nodes are not up, which is said once, as is that it answers again.
func TestScrapeServers(t *testing.T) {
	x := &twoServers{dial: map[int]Dialer{}}
	names := []string{"h0", "h1", "h2", "h3"}
	d := &Deployed{Lab: &lab.Lab{Name: "l"}, Graph: &topo.Graph{}, Access: x}
	for i, name := range names {
		d.Graph.Nodes = append(d.Graph.Nodes, topo.Node{Name: name})
		x.dial[i] = dialerOf(serveText(t, "m", http.StatusOK, "# TYPE mcastlab_host_sent_total counter\nmcastlab_host_sent_total{node=\""+name+"\"} 7\n"))
	}
	x.dial[2] = dialerOf(filepath.Join(t.TempDir(), "nobody"))
	var said []string
	s := Scraper{Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	for i, away := range []bool{false, true, true, false, false} {
		x.away = away
		var out strings.Builder
		if err := s.write(t.Context(), d, &out); err != nil {
			t.Fatal(err)
		}
		for node, up := range map[string]bool{"h0": true, "h1": !away, "h2": false, "h3": !away} {
			if got := strings.Contains(out.String(), "mcastlab_host_sent_total{node=\""+node+"\"} 7\n"); got != up {
				t.Errorf("%d: counters of %s: %v, want %v\n%s", i, node, got, up, out.String())
			}
			if !strings.Contains(out.String(), fmt.Sprintf("mcastlab_node_up{node=%q} %d\n", node, map[bool]int{true: 1}[up])) {
				t.Errorf("%d: %s is not shown as up: %v\n%s", i, node, up, out.String())
			}
		}
	}
	want := []string{"server m1 (10.0.0.2) does not answer: no route to host: mcastlab_node_up is 0 for its nodes", "server m1 (10.0.0.2) answers again"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	x.away = true
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.write(gone, d, io.Discard); err != nil || len(said) != len(want) {
		t.Errorf("of a request that has gone: %v, said %q", err, said)
	}
}
