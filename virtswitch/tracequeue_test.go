// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// queueTracer keeps the last queue lengths that a switch has reported.
type queueTracer struct {
	t    *testing.T
	now  map[int]vtime.Time
	told map[int]int
	most int
}

func (*queueTracer) Trace(vtime.Time, machine.Event) {}

func (q *queueTracer) TraceQueue(now vtime.Time, port, bytes int) {
	if now < q.now[port] {
		q.t.Errorf("port %d: %v after %v", port, now, q.now[port])
	}
	q.now[port], q.told[port], q.most = now, bytes, max(q.most, bytes)
}

// TestTraceQueue: the last report of a port is its queue: when frames wait, after they have left, after the watchdog has
// dropped them, and after a restart.
func TestTraceQueue(t *testing.T) {
	for _, c := range []struct {
		name   string
		quanta uint16 // of the pause: 6000 are 31 us, 65535 335 us
		us     float64
		do     func(l *lone)
		left   bool
	}{
		{"waits", 65535, 60, func(*lone) {}, true},
		{"has left", 6000, 60, func(*lone) {}, false},
		{"dropped by the watchdog", 65535, 130, func(*lone) {}, false},
		{"restarted", 65535, 60, func(l *lone) { l.sw.Restart(l.net.Now) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &queueTracer{t: t, now: map[int]vtime.Time{}, told: map[int]int{}}
			l := newLone(t, func(s *Config) {
				s.Trace, s.Watchdog = q, WatchdogConfig{Detect: 100 * vtime.Microsecond, Restore: 100 * vtime.Microsecond}
			})
			l.pause(3, 0xff, c.quanta)
			l.at(1.2, func() {
				for i := range 20 {
					l.stub[0].send(l.data(hostIP(0), hostIP(3), 1, wire.PSN(i), 1<<5))
					l.stub[1].send(l.data(hostIP(1), hostIP(3), 1, wire.PSN(i), 2<<5))
				}
			})
			l.at(c.us, func() {
				c.do(l)
				if got := l.sw.QueuedAt(3); q.told[3] != got || (got > 0) != c.left {
					t.Errorf("%d bytes wait, and the tracer was told of %d", got, q.told[3])
				}
			})
			l.run()
			if q.most != l.sw.QueuedAt(3) && q.most == 0 || q.told[3] != l.sw.QueuedAt(3) {
				t.Errorf("in the end %d bytes wait, of %d, and the tracer was told of %d", l.sw.QueuedAt(3), q.most, q.told[3])
			}
		})
	}
}
