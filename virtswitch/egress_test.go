// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestEgress: whatever classes frames have, and however neighbours pause them and the switch restarts, the invariants at
// the fields of an egress hold after every event, and the frames of one sender and class leave in their order.
func TestEgress(t *testing.T) {
	second, paused, peaks := 0, 0, 0 // events at which queues of two classes had frames, and at which a port was paused
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 0xe9))
		l := newLone(t, func(c *Config) {
			some, more := uint8(r.Uint32()), uint8(r.Uint32())
			c.PFC.Lossless = some & more
			if r.IntN(3) == 0 {
				c.Weights[r.IntN(8)], c.Weights[r.IntN(8)] = 1+uint8(r.IntN(3)), 2
			}
			if r.IntN(3) == 0 {
				c.Watchdog = WatchdogConfig{Detect: 3 * vtime.Microsecond, Restore: 2 * vtime.Microsecond, Forward: r.IntN(2) == 0}
			}
		})
		for _, s := range l.stub {
			s.keep = true
		}
		var sent wire.PSN
		classes := []uint8{uint8(r.IntN(8)), uint8(r.IntN(8)), uint8(r.IntN(8))}[:1+r.IntN(3)]
		for i := range 20 + r.IntN(100) {
			at := r.Float64() * 20
			switch from := r.IntN(loneHosts - 1); r.IntN(8) {
			case 0:
				l.at(at, func() { l.pause(r.IntN(loneHosts), uint8(r.Uint32()), uint16(r.IntN(400))) })
			case 1:
				if r.IntN(6) == 0 {
					l.at(at, func() { l.sw.Restart(l.net.Now) })
				}
			default:
				to, class := from+1+r.IntN(loneHosts-1-from), classes[r.IntN(len(classes))]
				l.at(at, func() {
					for range 1 + i%5 {
						l.stub[from].send(l.data(hostIP(from), hostIP(to), uint16(from), sent, class<<5))
						sent++
					}
				})
			}
		}
		for l.net.Step() {
			two, stopped := l.sw.checkEgresses(t, seed)
			second += two
			paused += stopped
		}
		l.run()
		for p := range l.sw.eg {
			peaks += min(l.sw.QueuePeak(p), 1)
		}
		for _, s := range l.stub {
			s.checkOrder(t, seed)
		}
	}
	if second < 1000 || paused < 1000 || peaks < 100 {
		t.Errorf("%d times two classes waited, %d times a port was paused, %d ports had a queue: that is too few", second, paused, peaks)
	}
}

// checkOrder compares the order of received frames with that in which each sender has sent each class.
func (s *stub) checkOrder(t *testing.T, seed uint64) {
	t.Helper()
	type flow struct {
		from  uint32
		class uint8
	}
	last := map[flow]wire.PSN{}
	for _, f := range s.raw {
		if f.Kind() != wire.KindRoCE {
			continue
		}
		w := flow{f.SrcIP(), f.Traffic() >> 5}
		if before, any := last[w]; any && f.PSN() <= before {
			t.Fatalf("seed %d: of %x, class %d, packet %d came after %d", seed, w.from, w.class, f.PSN(), before)
		}
		last[w] = f.PSN()
	}
}

// checkEgresses checks all egresses for the invariants stated at their fields. It returns the number of egresses at
// which two classes wait, and of those that must not start some class.
func (s *Switch) checkEgresses(t *testing.T, seed uint64) (two, stopped int) {
	t.Helper()
	for p := range s.eg {
		e := &s.eg[p]
		var wrong []string
		ready, waits := uint8(0), 0
		for prio := range uint8(8) {
			n := 0
			if prio == e.prio {
				n = e.first.Len()
			}
			if e.rest != nil && e.rest.fifo[prio].Len() > 0 {
				if prio == e.prio {
					wrong = append(wrong, "frames of the class of first are elsewhere")
				}
				n += e.rest.fifo[prio].Len()
			}
			if n > 0 {
				ready |= 1 << prio
				waits++
				if q := e.queue(prio); q.bytes > int(e.peak) || q.Len() != n {
					wrong = append(wrong, "a queue holds more than its peak, or is not where it is looked for")
				}
			}
		}
		if waits > 1 {
			two++
		}
		if e.paused != 0 {
			stopped++
		}
		switch {
		case ready != e.ready:
			wrong = append(wrong, "ready is not what has frames")
		case s.stopped.has(p) != (e.paused != 0):
			wrong = append(wrong, "the set of stopped ports is another")
		case s.waiting.has(p) != (s.ports[p].Next() != vtime.Never):
			wrong = append(wrong, "the set of waiting ports is another")
		case e.discarded&e.ready != 0:
			wrong = append(wrong, "what is discarded waits")
		case (ready&^e.paused == 0 && e.pauses() == 0) != (s.ports[p].Next() == vtime.Never):
			wrong = append(wrong, "the next start is not that of what may start")
		}
		if len(wrong) > 0 {
			t.Fatalf("seed %d, port %d: %s (%+v)", seed, p, strings.Join(wrong, "; "), *e)
		}
	}
	return two, stopped
}
