// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// scrapeWait bounds how long nodes are waited for together. Prometheus gives up after ten seconds, and would have
// nothing then.
const scrapeWait = 5 * time.Second

// Scraper writes the metrics of the running lab of a name for a Prometheus, as Metrics does. It looks the lab up at each
// scrape. A node that does not answer is no error: mcastlab_node_up shows it.
type Scraper struct {
	Lab     string
	Engines []engine.Engine
	Say     func(format string, args ...any) // which servers of a lab on several do not answer, and which do again

	mu   sync.Mutex
	away map[string]bool // servers of which it has been said
}

// Scrape writes what there is at the moment.
func (x *Scraper) Scrape(ctx context.Context, out io.Writer) error {
	e, err := EngineOf(x.Lab, x.Engines)
	if err != nil {
		return err
	}
	d, err := find(x.Lab, Options{Engine: e})
	if err != nil {
		return err
	}
	return x.write(ctx, d, out)
}

// write is Scrape of a lab that has been found.
func (x *Scraper) write(ctx context.Context, d *Deployed, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	names := make([]string, len(d.Graph.Nodes))
	for i := range names {
		names[i] = d.Graph.Nodes[i].Name
	}
	each := func(f func(node int) error) error {
		return d.Access.EachReached(ctx, func(m *engine.Server, err error) error { return x.reached(ctx, m, err) }, f)
	}
	return writeMetrics(out, scrape(ctx, names, d.Access.DialMetrics, each))
}

// reached says so when a server stops answering, or answers again, and returns the error of one that does not answer.
func (x *Scraper) reached(ctx context.Context, m *engine.Server, err error) error {
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("server %s has not answered for %v", m, scrapeWait)
	case ctx.Err() != nil:
		return err // who asked has gone, which says nothing of the server
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch was := x.away[m.Node]; {
	case err != nil && !was:
		x.Say("%v: mcastlab_node_up is 0 for its nodes", err)
	case err == nil && was:
		x.Say("server %s answers again", m)
	}
	if x.away == nil {
		x.away = map[string]bool{}
	}
	x.away[m.Node] = err != nil
	return err
}

// scrape fetches the metrics of the nodes that answer, and adds which do. It returns what to gather.
func scrape(ctx context.Context, names []string, dial func(node int) Dialer, each func(func(i int) error) error) (all prometheus.Gatherers) {
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mcastlab_node_up", Help: "1 if the node has answered with its metrics"}, []string{"node"})
	got := make([][]*dto.MetricFamily, len(names))
	_ = each(func(i int) error { // what fails shows as a node that is not up
		var err error
		got[i], err = fetchMetrics(ctx, dial(i))
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
