// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// crossed has hosts send to one host, to several or to none, in any class, to a switch whose neighbours
// pause it, whose links come and go and which restarts. Each copy arrives once, in the order of its
// ingress and class, or is dropped and counted; at rest nothing waits. A repeated carrier signal
// changes nothing.
func crossed(t *testing.T, seed uint64) *lone {
	t.Helper()
	once, again := crossRun(t, seed, false), crossRun(t, seed, true)
	for i := range once.stub {
		if !slices.Equal(once.stub[i].got, again.stub[i].got) {
			t.Errorf("told twice, the switch sends port %d something else:\n%q\n%q", i, once.stub[i].got, again.stub[i].got)
		}
	}
	return again
}

// crossConfig draws the place of queues and their room.
func crossConfig(r *rand.Rand, c *Config) {
	if r.IntN(4) > 0 {
		c.Input = &InputConfig{Together: r.IntN(2) == 0}
	}
	pfc := PFCConfig{Lossless: 1 << 3, Headroom: []int{40000, 40000, 40000, 40000, 40000, 40000}}
	switch r.IntN(4) {
	case 0:
		c.Buffer = 3000 + r.IntN(30000)
	case 1:
		c.PFC = pfc
		c.PFC.XOFF = 1 + r.IntN(5000)
	case 2:
		c.PFC = pfc
		c.PFC.Alpha = []float64{1. / 16, 1}[r.IntN(2)]
	}
	if c.Input != nil && c.PFC.Lossless != 0 && r.IntN(2) == 0 {
		c.Input.Credits = true
		c.Hosts = slices.Repeat([]bool{true}, len(c.Ports)) // which give no credits
	}
}

func crossRun(t *testing.T, seed uint64, again bool) *lone {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 23))
	const group = 239<<24 | 7
	l := newLone(t, func(c *Config) { crossConfig(r, c) })
	l.sw.SetMulticast(wire.MulticastEntry{Group: group, Ports: []uint16{1, 2, 3}, From: []uint16{0, 4}})
	instant := func() float64 { return 10 * r.Float64() }
	want, sent := 0, wire.PSN(0)
	for range 30 + r.IntN(90) {
		i, to, tos := r.IntN(len(l.stub)), r.IntN(loneHosts), oneOf[uint8](r, 0, 0, 3<<5, 5<<5)
		dst := oneOf(r, hostIP(to), hostIP(3), hostIP(3), group)
		switch {
		case dst != group, i == 5: // to one, or from where it must not come
			want++
		case i == 1, i == 2, i == 3:
			want += 2
		default:
			want += 3
		}
		l.at(instant(), func() {
			sent++
			l.stub[i].send(l.data(hostIP(i), dst, 1, wire.PSN(tos>>5)<<16|sent, tos))
		})
	}
	for range r.IntN(6) {
		i, classes, quanta := r.IntN(len(l.stub)), oneOf[uint8](r, 1, 1<<3, 0xff), uint16(r.IntN(5000))
		l.at(instant(), func() { l.pause(i, classes, quanta) })
	}
	for range r.IntN(6) { // also when all has come, and waits
		p, up := r.IntN(len(l.stub)), r.IntN(2) == 0
		l.at(3*instant(), func() { l.sw.SetCarrier(l.net.Now, p, up) })
	}
	for range 10 {
		if p, us := r.IntN(len(l.stub)), instant(); again {
			l.at(us, func() { l.sw.SetCarrier(l.net.Now, p, !l.sw.noCarrier.has(p)) })
		}
	}
	if r.IntN(4) == 0 {
		l.at(instant(), func() {
			if l.sw.Restart(l.net.Now); l.sw.Queued() != 0 {
				t.Errorf("%d frames wait after a restart", l.sw.Queued())
			}
		})
	}
	l.run()
	l.wantOrder()
	got, pauses := 0, uint64(0)
	for i := range l.stub {
		got += len(l.times(i))
		pauses += uint64(len(l.stub[i].got) - len(l.times(i)))
	}
	st := l.sw.Stats()
	lost := st.Dropped() - (st.PausesSent - pauses) // pause frames that a restart took are no copies
	if l.sw.Queued() != 0 || got+int(lost) != want {
		t.Errorf("%d copies came and %d were dropped of %d; %d wait", got, lost, want, l.sw.Queued())
	}
	return l
}

// wantOrder checks that no packet of crossRun passed another of its ingress and class, and that none
// arrived twice. The class is in the upper byte of the PSN, the number below.
func (l *lone) wantOrder() {
	l.t.Helper()
	for i, s := range l.stub {
		last := map[string]int{}
		for _, line := range s.got {
			_, text, _ := strings.Cut(line, " ")
			var psn int
			if found := psns([]string{line}); len(found) != 1 {
				continue // a pause
			} else if _, err := fmt.Sscanf(found[0], "psn=%d", &psn); err != nil {
				l.t.Fatal(err)
			}
			src, _, _ := strings.Cut(text, ">")
			flow := fmt.Sprint(src, " in class ", psn>>16)
			if before, some := last[flow]; some && psn <= before {
				l.t.Errorf("port %d: of %s number %d comes after %d", i, flow, psn&0xffff, before&0xffff)
			}
			last[flow] = psn
		}
	}
}
