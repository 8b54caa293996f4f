// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/internal/counters"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
)

// LabClock is the clock of a lab that runs: one rate for all nodes, changed between
// measurements only.
type LabClock struct {
	Deployed *Deployed
	mono     *live.Monotonic

	mu    sync.Mutex
	clock live.Clock
	rate  live.Rate
}

// rateLead is the time between the announcement of a change of rate and the change, and ReleaseLead
// that of a common start: enough for a message to reach every node. A node that learns of a change
// late only keeps the old rate for longer while nothing is on the links.
const (
	rateLead    = 20 * time.Millisecond
	ReleaseLead = 10 * time.Millisecond
)

// NewLabClock starts from the clock that a node has.
func NewLabClock(ctx context.Context, d *Deployed, node string, have counters.Rate) (*LabClock, error) {
	if err := d.Access.AskClocks(ctx); err != nil {
		return nil, err
	}
	m, err := live.NewMonotonic()
	if err != nil {
		return nil, err
	}
	p := &LabClock{Deployed: d, mono: m, rate: live.Rate{Mono: have.Mono - d.Access.Ahead(node), Lab: vtime.Time(have.Lab), Dilation: have.Dilation}}
	p.clock.Set(p.rate)
	return p, nil
}

// Now returns the lab time.
func (p *LabClock) Now() vtime.Time { return p.Ahead(0) }

// Ahead returns the lab time a span of wall time from now.
func (p *LabClock) Ahead(d time.Duration) vtime.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.Lab(p.mono.Now() + int64(d))
}

// Wall returns the wall time that a span of lab time takes at the present rate.
func (p *LabClock) Wall(d vtime.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Duration(float64(d) / float64(vtime.Nanosecond) * p.clock.Dilation())
}

// Lab returns the lab time of a monotonic instant.
func (p *LabClock) Lab(mono int64) vtime.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clock.Lab(mono)
}

// SetRate changes the dilation on all nodes and returns the lag they recorded since the last
// call. It returns when the change has come into force.
func (p *LabClock) SetRate(ctx context.Context, dilation float64) (live.Lag, error) {
	if err := p.Deployed.Access.AskClocks(ctx); err != nil {
		return live.NewLag(), err
	}
	p.mu.Lock()
	now, lead := p.mono.Now(), int64(rateLead)+p.Deployed.Access.Trip()
	r := live.Rate{Mono: now + lead, Lab: p.clock.Lab(now).Add(vtime.Duration(float64(lead) * 1000 / p.clock.Dilation())), Dilation: dilation}
	if r.Dilation == p.rate.Dilation {
		r = p.rate // only the lag is wanted
	} else {
		p.clock.Set(r)
		p.rate = r
	}
	p.mu.Unlock()
	all := make([]*nodeapi.LagReply, len(p.Deployed.Nodes))
	err := p.Deployed.Each(func(i int) (err error) {
		if all[i], err = p.Deployed.Nodes[i].SetRate(ctx, agentCallsOf(p.Deployed).rateAt(p.Deployed.Nodes[i].Name, r)); err != nil {
			return fmt.Errorf("set the clock of node %s: %w", p.Deployed.Nodes[i].Name, err)
		}
		return nil
	})
	total := live.NewLag()
	if err != nil {
		return total, err
	}
	p.Deployed.Plane.setRate(ctx, func(name string) *nodeapi.Rate { return agentCallsOf(p.Deployed).rateAt(name, r) })
	for _, g := range all {
		if g == nil {
			continue // of a node that is lost
		}
		if err := errors.Join(g.Sent.AddTo(total.Sent), g.Acted.AddTo(total.Acted)); err != nil {
			return total, fmt.Errorf("read lag: %w", err)
		}
	}
	if wait := r.Mono - p.mono.Now(); wait > 0 {
		time.Sleep(time.Duration(wait))
	}
	return total, nil
}

// Round2Down rounds down to two digits.
func Round2Down(d float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(d))-1)
	return math.Floor(d/e) * e
}

// Round2 rounds a dilation up to two digits.
func Round2(d float64) float64 {
	e := math.Pow(10, math.Floor(math.Log10(d))-1)
	return math.Ceil(d/e) * e
}

// rateAt returns a rate, which is in the clock here, in that of a node.
func (d agentCalls) rateAt(node string, r live.Rate) *nodeapi.Rate {
	return &nodeapi.Rate{Mono: r.Mono + d.Access.Ahead(node), Lab: int64(r.Lab), Dilation: r.Dilation}
}
