// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// A lab in dilated time has one line of lab time over wall time, in CLOCK_MONOTONIC of the server that runs it. Each other server has
// such a clock of its own: how far it is ahead is asked of the server's share, and nodes get the line in the clock that they read.

// clockOffset is an estimate of another server's CLOCK_MONOTONIC.
type clockOffset struct {
	ahead int64 // of the clock here, in ns
	trip  int64 // round trip of the request, in ns: the error is at most half of it
	moved int64 // by how much it was found elsewhere than expected, when it was last asked, in ns
}

// better returns what is known after another question. An answer that took longer only counts if it contradicts what was known: the
// clocks of two servers drift apart.
func (a clockOffset) better(b clockOffset) clockOffset {
	off := b.ahead - a.ahead
	switch slack := (a.trip + b.trip) / 2; {
	case a.trip == 0:
		return b
	case off > slack || -off > slack:
		b.moved = int64(math.Abs(float64(off)))
		return b
	case b.trip < a.trip:
		return b
	}
	a.moved = 0
	return a
}

// serverClocks are the clocks of all servers of a lab, by server. A lab on one server has none.
type serverClocks struct {
	mu  sync.Mutex
	all []clockOffset
}

// clockTries is the number of clock requests to a server per measurement.
const clockTries = 12

// AskClocks asks all servers for their clocks.
func (s *serverNodes) AskClocks(ctx context.Context) error {
	mono, err := live.NewMonotonic()
	if err != nil {
		return err
	}
	now := make([]clockOffset, len(s.placement.Servers))
	err = s.eachServer(func(i int, m *engine.Server) error {
		c, err := s.callShare(ctx, m, &shareapi.Open{Stream: shareapi.Stream_STREAM_CLOCK})
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }() // nothing is under way
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		defer stop()
		if now[i], err = askClock(c, mono); err != nil {
			return fmt.Errorf("server %s: ask for its clock: %w", m, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.clocks.mu.Lock()
	defer s.clocks.mu.Unlock()
	if s.clocks.all == nil {
		s.clocks.all = make([]clockOffset, len(now))
	}
	for i := range now {
		s.clocks.all[i] = s.clocks.all[i].better(now[i])
	}
	return nil
}

// askClock asks a few times, and believes the answer that took the shortest.
func askClock(c net.Conn, mono *live.Monotonic) (best clockOffset, err error) {
	if err := c.SetDeadline(time.Now().Add(peerWait)); err != nil {
		return best, err
	}
	var b [8]byte
	for range clockTries {
		before := mono.Now()
		if _, err := c.Write(b[:1]); err != nil {
			return best, err
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return best, err
		}
		after := mono.Now()
		if trip := max(1, after-before); best.trip == 0 || trip < best.trip {
			best = clockOffset{ahead: int64(binary.BigEndian.Uint64(b[:])) - (before + trip/2), trip: trip}
		}
	}
	return best, nil
}

// clock tells this server's CLOCK_MONOTONIC, once for each byte that comes.
func (x *worker) clock(c net.Conn) error {
	mono, err := live.NewMonotonic()
	if err := shareapi.Reply(c, err); err != nil || mono == nil {
		return err
	}
	for {
		var b [8]byte
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return nil // the caller has closed the connection
		}
		binary.BigEndian.PutUint64(b[:], uint64(mono.Now()))
		if _, err := c.Write(b[:]); err != nil {
			return nil // likewise
		}
	}
}

// Ahead returns by how much CLOCK_MONOTONIC of a node's server is ahead of the one here, in ns.
func (s *serverNodes) Ahead(node string) int64 {
	s.clocks.mu.Lock()
	defer s.clocks.mu.Unlock()
	if s.clocks.all == nil {
		return 0
	}
	server, _ := s.serverOf(node)
	return s.clocks.all[server].ahead
}

// ClockUncertainty returns by how much lab time on two servers may differ, and a frame be later between them than the lab says, in ns of
// wall time: half of the time that a question takes for the one and for the other, and by how much clocks have drifted.
func (s *serverNodes) ClockUncertainty() (ns int64) {
	s.clocks.mu.Lock()
	defer s.clocks.mu.Unlock()
	var each []int64
	for _, a := range s.clocks.all {
		each = append(each, a.trip+a.moved)
	}
	slices.Sort(each)
	for _, v := range each[max(0, len(each)-2):] {
		ns += v
	}
	return ns
}

// Trip returns how long a message to the farthest server and back takes, in ns of wall time.
func (s *serverNodes) Trip() (ns int64) {
	s.clocks.mu.Lock()
	defer s.clocks.mu.Unlock()
	for _, a := range s.clocks.all {
		ns = max(ns, a.trip)
	}
	return ns
}
