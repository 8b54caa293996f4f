// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
)

// copies counts the data packets that arrive at nodes and that links carry, and notes when a switch
// has sent more copies of a packet by one port than it has received.
type copies struct {
	got    map[string]int // by node and PSN
	sent   map[string]int // by link and PSN
	lost   int
	excess []string
}

// counted is a link on the way down the tree, which loses every losing-th data packet, or delivers
// every doubling-th twice.
type counted struct {
	c                *copies
	from, to         string
	losing, doubling int // one in that many; 0: none
	seen             int
}

// Arrive implements faults.Link.
func (l *counted) Arrive(_ vtime.Time, f *wire.Frame) (v faults.Verdict) {
	if !simlab.IsData(f) {
		return v
	}
	l.seen++
	at := func(where string) string { return fmt.Sprint(where, " ", f.PSN()) }
	sent := at(l.from + ">" + l.to)
	if l.c.sent[sent]++; l.from != "S" && l.c.sent[sent] > l.c.got[at(l.from)] {
		l.c.excess = append(l.c.excess, sent)
	}
	v.Drop = l.losing > 0 && l.seen%l.losing == 0
	v.Twice = l.doubling > 0 && l.seen%l.doubling == 0
	if v.Drop {
		l.c.lost++
	} else {
		l.c.got[at(l.to)]++
	}
	return v
}

// TestSwitchesNeverRetransmit (CEP-50): whichever packets are lost, and at whichever level, a switch
// sends no more copies of a packet by a port than it has received. Packets that a link delivers twice,
// which are not counted, show that the test would notice.
func TestSwitchesNeverRetransmit(t *testing.T) {
	down := [][2]string{{"S", "L1"}, {"L1", "S1"}, {"S1", "L2"}, {"L2", "R1"}, {"S1", "C2"}, {"C2", "S3"}, {"S3", "L3"}, {"L3", "R2"}, {"S3", "L4"}, {"L4", "R3"}}
	run := func(t *testing.T, losing, doubling int, on int) *copies {
		g, err := figureTree()
		s := newScene(t, g, err)
		c := &copies{got: map[string]int{}, sent: map[string]int{}}
		for i, d := range down {
			l := &counted{c: c, from: d[0], to: d[1]}
			if i == on {
				l.losing, l.doubling = losing, doubling
			}
			s.fault(d[0], d[1], l)
		}
		s.must(message{0, 200})
		return c
	}
	for i, d := range down {
		c := run(t, 23, 0, i)
		if c.lost == 0 || len(c.excess) > 0 {
			t.Errorf("%s>%s lost %d packets; copies that nothing came in for: %v", d[0], d[1], c.lost, c.excess)
		}
	}
	if c := run(t, 0, 23, 1); len(c.excess) == 0 { // L1>S1
		t.Error("packets that S1 got twice and sent on twice were not noticed")
	}
}
