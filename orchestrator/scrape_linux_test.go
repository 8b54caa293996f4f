package orchestrator

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestScrape: nodes that answer have their metrics in the text, and those that do not are shown as not up.
func TestScrape(t *testing.T) {
	const help = "# HELP mcastlab_host_sent_total frames sent\n# TYPE mcastlab_host_sent_total counter\n"
	sockets := map[string]string{
		"h0": told(t, "m", http.StatusOK, help+"mcastlab_host_sent_total{node=\"h0\"} 7\n"), "h1": told(t, "m", http.StatusInternalServerError, "not configured"),
		"h2": filepath.Join(t.TempDir(), "nobody"),
	}
	names := []string{"h0", "h1", "h2", "h3"}
	all := scrape(t.Context(), names, func(name string) string { return sockets[name] }, func(f func(int) error) (err error) {
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
