// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestWatchdogSteps: the actions of a port's watchdog on priority 3, which is taken over after 10 ns
// and given back after 5. A step is "instant what: result".
func TestWatchdogSteps(t *testing.T) {
	for _, c := range []struct{ name, steps string }{
		{"paused for good", "0 watch: | 9 expire: | 10 expire: storm | 30 expire:"},
		{"a break", "0 watch: | 9 released: | 10 expire: | 11 watch: | 20 expire: | 21 expire: storm"},
		{"given back", "0 watch: | 10 expire: storm | 12 released: | 16 expire: | 17 expire: over | 30 expire:"},
		{"paused again meanwhile", "0 watch: | 10 expire: storm | 12 released: | 16 stopped: holds | 30 expire: | 31 released: | 36 expire: over"},
		{"stopped outside of a storm", "0 stopped: | 1 watch: | 2 stopped: | 11 expire: storm"},
		{"a late look", "0 watch: | 25 expire: storm | 26 released: | 60 expire: over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWatchdog(WatchdogConfig{Detect: 10, Restore: 5})
			for _, s := range strings.Split(c.steps, " | ") {
				step, want, _ := strings.Cut(s, ":")
				var now vtime.Time
				var what, got string
				if _, err := fmt.Sscan(step, &now, &what); err != nil {
					t.Fatalf("step %q: %v", step, err)
				}
				switch what {
				case "watch":
					if due := w.watch(now, 3); due != now+10 {
						t.Errorf("%s: due at %d", step, due)
					}
				case "released":
					w.released(now, 1<<3)
				case "stopped":
					if w.stopped(3) {
						got = "holds"
					}
				case "expire":
					begun, over := w.expire(now)
					got = map[[2]uint8]string{{8, 0}: "storm", {0, 8}: "over", {0, 0}: ""}[[2]uint8{begun, over}]
				}
				if got != strings.TrimSpace(want) {
					t.Errorf("%s: %q, want %q", step, got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// TestWatchdogModel: the priorities of a port do not disturb each other, and next is never
// later than the first change.
func TestWatchdogModel(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0xd06))
		c := WatchdogConfig{Detect: 20, Restore: 8}
		w := newWatchdog(c)
		var since [8]vtime.Time // when the priority got into its state
		var state [8]int        // 0 idle, 1 watched, 2 storm, 3 storm and released
		storms := 0
		for now := vtime.Time(0); now < 2000; now += vtime.Time(1 + r.IntN(3)) {
			first := vtime.Never
			var begin, end uint8
			for p := range state {
				at := vtime.Never
				switch state[p] {
				case 1:
					if at = since[p].Add(c.Detect); at <= now {
						begin |= 1 << p
						state[p] = 2
						storms++
					}
				case 3:
					if at = since[p].Add(c.Restore); at <= now {
						end |= 1 << p
						state[p] = 0
					}
				}
				first = min(first, at)
			}
			if w.next() != first {
				t.Fatalf("seed %d: at %d the first is due at %d, want %d", seed, now, w.next(), first)
			}
			if begun, over := w.expire(now); begun != begin || over != end {
				t.Fatalf("seed %d: at %d storms begin and end for %08b and %08b, want %08b and %08b", seed, now, begun, over, begin, end)
			}
			prio := uint8(r.IntN(8))
			switch s := &state[prio]; {
			case *s == 0:
				w.watch(now, prio)
				*s, since[prio] = 1, now
			case *s == 3 && r.IntN(2) == 0:
				if !w.stopped(prio) {
					t.Fatalf("seed %d: at %d the storm of priority %d does not hold", seed, now, prio)
				}
				*s = 2
			case *s == 1 && r.IntN(4) == 0:
				w.released(now, 1<<prio)
				*s = 0
			case *s == 2:
				w.released(now, 1<<prio)
				*s, since[prio] = 3, now
			}
		}
		if storms == 0 {
			t.Errorf("seed %d: no storm", seed)
		}
	}
}

// TestObeyedPause: each class resumes when its own pause has run out, or earlier at an XON.
func TestObeyedPause(t *testing.T) {
	var p obeyedPause
	if p.next() != vtime.Never || p.expired(100) != 0 {
		t.Errorf("nothing is stopped, and something runs out at %v", p.next())
	}
	p.stop(3, 50)
	p.stop(5, 40)
	p.stop(5, 60) // the later one counts
	p.stop(6, 45)
	if got := p.release(1<<6 | 1<<7); got != 1<<6 {
		t.Errorf("an XON for 6 and 7 frees %08b, want 6 only", got)
	}
	if p.stopped != 1<<3|1<<5 || p.next() != 50 {
		t.Errorf("%08b is stopped until %v, want 3 and 5 until 50", p.stopped, p.next())
	}
	for now, want := range map[vtime.Time]uint8{49: 0, 50: 1 << 3, 59: 1 << 3, 60: 1<<3 | 1<<5} {
		if got := p.expired(now); got != want {
			t.Errorf("at %d %08b has run out, want %08b", now, got, want)
		}
	}
	p.release(p.expired(50))
	if p.stopped != 1<<5 || p.next() != 60 {
		t.Errorf("%08b is stopped until %v, want 5 until 60", p.stopped, p.next())
	}
	p.stop(5, 0) // one of no length
	if p.expired(0) != 1<<5 {
		t.Error("a pause of no length does not run out")
	}
}
