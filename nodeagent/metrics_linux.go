// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/httpserve"
)

// Bounds of the metrics' server, whose clients are trusted but may be broken.
const (
	metricsAnswer = 10 * time.Second // to take an answer
	metricsAtOnce = 4                // requests under way
)

// serveMetrics serves the metrics of the agent's current node, until ctx ends. Only root and the
// node's user may enter the node's directory and connect to the socket.
func (a *agent) serveMetrics(ctx context.Context, l net.Listener) error {
	if err := httpserve.Serve(ctx, l, metricsHandler(a.snapshot), metricsAnswer); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// listenPrivate listens at a socket in the node's directory that only root and the node's
// user can connect to, whatever the directory's rights are. It changes the umask, which the whole
// process shares: it must be called before anything else may create files.
func listenPrivate(dir, name string) (*net.UnixListener, error) {
	defer unix.Umask(unix.Umask(0o177))
	return listen(dir, name)
}

// snapshot returns the state that inspect shows. The node does not change meanwhile.
func (a *agent) snapshot() (counters.Node, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.node == nil {
		return counters.Node{}, errors.New("the node is not configured yet")
	}
	return a.node.state()
}

// metricsHandler serves /metrics from snapshots of the node's counters.
func metricsHandler(snapshot func() (counters.Node, error)) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{snapshot})
	m := http.NewServeMux()
	m.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: metricsAtOnce, ErrorLog: errorLog{}}))
	return m
}

// errorLog is the node's log.
type errorLog struct{}

// Println implements promhttp.Logger.
func (errorLog) Println(v ...any) { fmt.Fprintln(os.Stderr, append([]any{"mcastlab node:"}, v...)...) }

// collector makes metrics of a snapshot. Names and help are those of package counters.
type collector struct {
	snapshot func() (counters.Node, error)
}

// Describe implements prometheus.Collector: which metrics there are depends on the kind of
// node, so none are promised.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s, err := c.snapshot()
	if err != nil {
		out <- prometheus.NewInvalidMetric(prometheus.NewDesc("mcastlab_node", "the node", nil, nil), err)
		return
	}
	put := func(kind prometheus.ValueType, name, help string, v float64, labels ...string) {
		names, values := []string{"node"}, []string{s.Node}
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc("mcastlab_"+name, help, names, nil), kind, v, values...)
	}
	for _, k := range counters.Names(s.Kind) {
		put(prometheus.CounterValue, s.Kind+"_"+k.Name+"_total", k.Doc, float64(s.Counts[k.Name]))
	}
	for _, r := range counters.Reasons(s.Kind) {
		put(prometheus.CounterValue, s.Kind+"_dropped_total", "frames dropped, by reason", float64(s.Drops[r]), "reason", r)
	}
	for i := range s.Ports {
		values := s.Ports[i].Counts()
		for k, p := range counters.PortNames() {
			put(prometheus.CounterValue, "port_"+p.Name+"_total", p.Doc, float64(values[k]), "port", strconv.Itoa(s.Ports[i].Port))
		}
		if s.Kind == counters.KindSwitch {
			put(prometheus.GaugeValue, "port_queue_peak_bytes", "the most bytes that one queue of the port has held", float64(s.Ports[i].QueuePeak),
				"port", strconv.Itoa(s.Ports[i].Port))
		}
	}
	put(prometheus.GaugeValue, "node_lab_seconds", "lab time", s.LabUS/1e6)
	put(prometheus.GaugeValue, "node_frames_held", "frames not yet sent, delivered or dropped", float64(s.Live))
	if s.Kind == counters.KindSwitch {
		put(prometheus.GaugeValue, "switch_groups", "multicast groups installed", float64(len(s.Groups)))
		ports := 0
		for _, j := range s.Joined {
			ports += len(j.Ports)
		}
		put(prometheus.GaugeValue, "switch_joined_groups", "multicast groups of programs that the switch forwards", float64(len(s.Joined)))
		put(prometheus.GaugeValue, "switch_joined_ports", "ports behind which those have members, over all of them", float64(ports))
		put(prometheus.GaugeValue, "switch_mft_bytes", "packed size of the multicast forwarding tables", float64(s.MFTBytes))
	}
}
