// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// farShares are the shares of two servers, of which the second may be away.
type farShares struct {
	engine.Spread
	away bool
}

// Dial answers as a share that has the metrics of nodes: their names.
func (x *farShares) Dial(_ context.Context, _ string, m *engine.Server) (net.Conn, error) {
	if m.Name == "m1" && x.away {
		return nil, fmt.Errorf("server %s does not answer: no route to host", m)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		q, err := shareapi.Accept(far)
		if err != nil { // it was only to see who answers
			return
		}
		if q.Stream != shareapi.Stream_STREAM_METRICS {
			err = fmt.Errorf("asked for %s", q.Stream)
		}
		if shareapi.Reply(far, err) == nil && err == nil {
			_, _ = far.Write([]byte(m.Name + " " + q.Node)) // the caller may have gone
		}
	}()
	return near, nil
}

// TestMetricsOfServers: the metrics of a node come from its server, and no node of a server that does not answer is asked.
func TestMetricsOfServers(t *testing.T) {
	x := &farShares{}
	d := &orchestrator.Deployed{Lab: &lab.Lab{Name: "l"}, Graph: &topo.Graph{}}
	for _, name := range []string{"h0", "h1", "h2", "h3"} {
		d.Graph.Nodes = append(d.Graph.Nodes, topo.Node{Name: name})
	}
	servers := []engine.Server{{Node: "a", Name: "m0", Address: "10.0.0.1"}, {Node: "b", Name: "m1", Address: "10.0.0.2"}}
	s := &serverNodes{d: d, servers: x, placement: &engine.Placement{At: []int{0, 1, 0, 1}, Servers: servers}}
	for _, away := range []bool{false, true} {
		x.away = away
		var mu sync.Mutex
		var got, gone []string
		err := s.EachReached(t.Context(), func(m *engine.Server, err error) error {
			if mu.Lock(); err != nil {
				gone = append(gone, m.Name+": "+err.Error())
			}
			mu.Unlock()
			return err
		}, func(node int) error {
			c, err := s.DialMetrics(node)(t.Context())
			if err != nil {
				return err
			}
			b, err := io.ReadAll(c)
			mu.Lock()
			got = append(got, string(b))
			mu.Unlock()
			return errors.Join(err, c.Close())
		})
		want, wantGone := []string{"m0 h0", "m0 h2", "m1 h1", "m1 h3"}, []string(nil)
		if away {
			want, wantGone = want[:2], []string{"m1: server m1 (10.0.0.2) does not answer: no route to host"}
		}
		if slices.Sort(got); !slices.Equal(got, want) || !slices.Equal(gone, wantGone) || (err != nil) != away {
			t.Errorf("away %v: %q, %q, %v", away, got, gone, err)
		}
	}
}
