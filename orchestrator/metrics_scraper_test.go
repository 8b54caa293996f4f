//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// TestScrape: nodes that answer have their metrics in the text, and those that do not are shown as not up.
func TestScrape(t *testing.T) {
	const help = "# HELP mcastlab_host_sent_total frames sent\n# TYPE mcastlab_host_sent_total counter\n"
	sockets := map[string]string{
		"h0": told(t, "m", http.StatusOK, help+"mcastlab_host_sent_total{node=\"h0\"} 7\n"), "h1": told(t, "m", http.StatusInternalServerError, "not configured"),
		"h2": filepath.Join(t.TempDir(), "nobody"),
	}
	names := []string{"h0", "h1", "h2", "h3"}
	all := scrape(t.Context(), names, func(i int) dialer { return dialerOf(sockets[names[i]]) }, func(f func(int) error) (err error) {
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

// farShares are the shares of two machines, of which the second may be away.
type farShares struct {
	engine.Spread
	sockets map[string]string // of the nodes' metrics
	away    atomic.Bool
}

// Dial answers as a share that passes bytes to a node's metrics does.
func (x *farShares) Dial(ctx context.Context, _ string, m *engine.Machine) (net.Conn, error) {
	if m.Name == "m1" && x.away.Load() {
		return nil, fmt.Errorf("machine %s does not answer: no route to host", m)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		q, err := shareapi.Read(far)
		if err != nil { // it was only to see who answers
			return
		}
		c, err := dialerOf(x.sockets[q.Node])(ctx)
		if q.Do != shareapi.Metrics {
			err = fmt.Errorf("asked for %s", q.Do)
		}
		if shareapi.Reply(far, shareapi.Answer{}, err) != nil || err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, far) }() // until the pipe is closed
		_, _ = io.Copy(far, c)
		_ = c.Close()
	}()
	return near, nil
}

// TestScrapeSpread: the metrics of nodes on several machines are one text. While a machine does not answer its nodes are not
// up, which is said once, as is that it answers again.
func TestScrapeSpread(t *testing.T) {
	x := &farShares{sockets: map[string]string{}}
	names := []string{"h0", "h1", "h2", "h3"}
	d := &Deployed{Lab: &lab.Lab{Name: "l"}, Graph: &topo.Graph{}, Options: Options{Engine: x}}
	for _, name := range names {
		d.Graph.Nodes = append(d.Graph.Nodes, topo.Node{Name: name})
		x.sockets[name] = told(t, "m", http.StatusOK, "# TYPE mcastlab_host_sent_total counter\nmcastlab_host_sent_total{node=\""+name+"\"} 7\n")
	}
	x.sockets["h2"] = filepath.Join(t.TempDir(), "nobody")
	d.Access = &serverNodes{d: d, placement: &engine.Placement{At: []int{0, 1, 0, 1}, Machines: []engine.Machine{{Node: "a", Name: "m0", Address: "10.0.0.1"}, {Node: "b", Name: "m1", Address: "10.0.0.2"}}}}
	var said []string
	s := Scraper{Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	for i, away := range []bool{false, true, true, false, false} {
		x.away.Store(away)
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
	want := []string{"machine m1 (10.0.0.2) does not answer: no route to host: mcastlab_node_up is 0 for its nodes", "machine m1 (10.0.0.2) answers again"}
	if !slices.Equal(said, want) {
		t.Errorf("said %q, want %q", said, want)
	}
	x.away.Store(true)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.write(gone, d, io.Discard); err != nil || len(said) != len(want) {
		t.Errorf("of a request that has gone: %v, said %q", err, said)
	}
}
