package orchestrator

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// scrapeWait bounds how long nodes are waited for together. Prometheus gives up after ten seconds, and would have
// nothing then.
const scrapeWait = 5 * time.Second

// Scrape writes the metrics of a lab that is up for a Prometheus, as Metrics does. It looks each time which lab is up
// under the name, and a node that does not answer is no error: mcastlab_node_up says which do.
func Scrape(ctx context.Context, name string, out io.Writer) error {
	s, err := storeOf(name)
	if err != nil {
		return err
	}
	st, ok, err := s.get()
	if err != nil {
		return err
	}
	if !ok || st.Phase != phaseUp {
		return fmt.Errorf("lab %s is not up: mcastlab deploy it first", name)
	}
	l, err := s.deployed(&st)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(s.dir, engine.PlacementFile)); err == nil {
		return fmt.Errorf("lab %s is on several machines, and metrics does not go there yet: deploy it on one", name)
	}
	d, err := plan(l, Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	names := make([]string, len(d.Graph.Nodes))
	for i := range names {
		names[i] = d.Graph.Nodes[i].Name
	}
	return writeMetrics(out, scrape(ctx, names, func(name string) string { return filepath.Join(d.store.nodePath(name), counters.MetricsSocket) }, d.each))
}

// scrape fetches the metrics of the nodes that answer, and adds which do. It returns what to gather.
func scrape(ctx context.Context, names []string, socket func(name string) string, each func(func(i int) error) error) (all prometheus.Gatherers) {
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcastlab_node_up", Help: "1 if the node has answered with its metrics"}, []string{"node"})
	got := make([][]*dto.MetricFamily, len(names))
	_ = each(func(i int) error { // what fails shows as a node that is not up
		var err error
		got[i], err = fetchMetrics(ctx, at(socket(names[i])))
		return err
	})
	for i, families := range got {
		up.WithLabelValues(names[i]).Set(0)
		if families != nil {
			up.WithLabelValues(names[i]).Set(1)
			all = append(all, prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil }))
		}
	}
	r := prometheus.NewRegistry()
	r.MustRegister(up)
	return append(all, r)
}
