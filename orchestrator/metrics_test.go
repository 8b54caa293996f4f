// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// serveText serves a text at a unix socket as a node does.
func serveText(t *testing.T, name string, status int, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text)) // the client notices
	})}
	ended := make(chan struct{})
	go func() {
		_ = s.Serve(l) // until Close
		close(ended)
	}()
	t.Cleanup(func() { _ = s.Close(); <-ended })
	return path
}

// TestMetrics: the metrics of several nodes become one text, each help once; a node that
// does not answer, answers with an error, or with no metrics, is an error.
func TestMetrics(t *testing.T) {
	const help = "# HELP mcastlab_host_sent_total frames sent\n# TYPE mcastlab_host_sent_total counter\n"
	var all prometheus.Gatherers
	for _, text := range []string{
		help + "mcastlab_host_sent_total{node=\"h1\"} 7\n",
		"# HELP mcastlab_switch_groups groups\n# TYPE mcastlab_switch_groups gauge\nmcastlab_switch_groups{node=\"leaf0\"} 2\n",
		help + "mcastlab_host_sent_total{node=\"h0\"} 3\n",
	} {
		families, err := fetchMetrics(context.Background(), dialerOf(serveText(t, "m", http.StatusOK, text)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil }))
	}
	var out strings.Builder
	if err := writeMetrics(&out, all); err != nil {
		t.Fatal(err)
	}
	want := help + "mcastlab_host_sent_total{node=\"h0\"} 3\nmcastlab_host_sent_total{node=\"h1\"} 7\n" +
		"# HELP mcastlab_switch_groups groups\n# TYPE mcastlab_switch_groups gauge\nmcastlab_switch_groups{node=\"leaf0\"} 2\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	for _, path := range []string{
		filepath.Join(t.TempDir(), "none"), serveText(t, "m", http.StatusInternalServerError, "not configured\n"), serveText(t, "m", http.StatusOK, "no metrics {"),
	} {
		if _, err := fetchMetrics(context.Background(), dialerOf(path)); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
