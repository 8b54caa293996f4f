// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/internal/httpserve"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// Bounds of the server of metrics.
const (
	metricsAnswer = 30 * time.Second // to be scraped and to take the answer
	metricsAtOnce = 4                // requests under way: each asks all nodes
)

func (p *program) metricsCommand() *cli.Command {
	const name = "metrics"
	return &cli.Command{
		Name: name, Usage: "serve the counters of a running lab to Prometheus", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: "GET /metrics has the counters of all nodes (docs/counters.md) and mcastlab_node_up. It runs until it is interrupted, also while the lab is\n" +
			"destroyed and deployed again. docs/running.md has a configuration of Prometheus, docs/grafana.json a dashboard.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9464", Usage: "ADDRESS:PORT to listen at; port 0: any that is free", EnvVars: envOf(name, "listen")},
			&cli.StringSliceFlag{
				Name: "host", EnvVars: envOf(name, "host"),
				Usage: "accept requests for this host name, besides localhost and addresses (repeat, or separate by commas)",
			},
		},
		Action: p.metricsAction,
	}
}

func (p *program) metricsAction(c *cli.Context) error {
	at, err := netip.ParseAddrPort(c.String("listen"))
	if err != nil {
		return usageError{fmt.Errorf("listen %q: write an address and a port, such as 127.0.0.1:9464 or [::1]:0", c.String("listen"))}
	}
	name, err := p.labName(c)
	if err != nil {
		return err
	}
	x := orchestrator.Scraper{Lab: name, Engines: engines(), Say: p.say}
	if err := x.Scrape(c.Context, io.Discard); err != nil { // is it up at all, and may we?
		return err
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return fmt.Errorf("serve metrics: %w: choose another --listen", err)
	}
	p.say("metrics of lab %s are at http://%v/metrics", name, l.Addr())
	if err := httpserve.Serve(c.Context, l, metricsServer(x.Scrape, c.StringSlice("host")), metricsAnswer); err != nil && c.Context.Err() == nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return c.Context.Err()
}

// metricsServer answers GET /metrics with what scrape writes. It does so to requests that call it by an address,
// localhost or one of the names: a page of another site, whose name an attacker lets point here, is refused.
func metricsServer(scrape func(context.Context, io.Writer) error, hosts []string) http.Handler {
	gate := make(chan struct{}, metricsAtOnce)
	m := http.NewServeMux()
	m.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case gate <- struct{}{}:
			defer func() { <-gate }()
		default:
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		var text bytes.Buffer
		if err := scrape(r.Context(), &text); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // a client that has gone needs no answer
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		if !calledRightly(r.Host, hosts) {
			http.Error(w, "this server is not called so: see --host", http.StatusForbidden)
			return
		}
		m.ServeHTTP(w, r)
	})
}

// calledRightly reports whether a Host header is an address, localhost or one of the names.
func calledRightly(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, host) })
}
