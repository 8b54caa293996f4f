// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// metricsWait bounds how long a node may take to answer with its metrics.
const metricsWait = 10 * time.Second

// Metrics writes the metrics of all nodes in Prometheus' text format: each metric's help
// once, and under it every node's.
func (d *Deployed) Metrics(ctx context.Context, out io.Writer) error {
	all := make(prometheus.Gatherers, len(d.Graph.Nodes))
	err := d.Each(func(i int) error {
		families, err := fetchMetrics(ctx, d.Access.DialMetrics(i))
		if err != nil {
			return fmt.Errorf("metrics of node %s: %w", d.Graph.Nodes[i].Name, err)
		}
		all[i] = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
		return nil
	})
	if err != nil {
		return err
	}
	return writeMetrics(out, all)
}

// Dialer makes a connection.
type Dialer func(ctx context.Context) (net.Conn, error)

// dialerOf returns what connects to a socket.
func dialerOf(socket string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
}

// fetchMetrics fetches the metrics of a node.
func fetchMetrics(ctx context.Context, dial Dialer) ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, metricsWait)
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://node/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := t.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, MessageMax))
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", answer.Status, lastLine(text))
	}
	var p expfmt.TextParser
	byName, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	families := make([]*dto.MetricFamily, 0, len(byName))
	for _, f := range byName { // sorted below
		families = append(families, f)
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families, nil
}

// writeMetrics merges the nodes' metrics and writes them, by name and then by node.
func writeMetrics(out io.Writer, all prometheus.Gatherers) error {
	families, err := all.Gather()
	if err != nil {
		return fmt.Errorf("merge metrics: %w", err)
	}
	e := expfmt.NewEncoder(out, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := e.Encode(f); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
	}
	return nil
}
