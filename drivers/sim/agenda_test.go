// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// starNet is a lab of one switch.
func starNet(t testing.TB, hosts int) *Net {
	t.Helper()
	g, err := topo.Star(hosts, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	c := labConfig(g)
	c.NIC.AckEvery = 8
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAgenda compares the heap with a list that is searched.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda[int]
		type thing struct {
			at   vtime.Time
			what int
		}
		var want []thing
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "push") || len(want) == 0 {
				at := vtime.Time(rapid.IntRange(0, 20).Draw(t, "at"))
				a.push(at, i)
				want = append(want, thing{at, i})
			} else {
				least := 0
				for k := range want {
					if want[k].at < want[least].at {
						least = k
					}
				}
				if at := a.first(); at != want[least].at {
					t.Fatalf("first at %d, want %d", at, want[least].at)
				}
				if got := a.pop(); got != want[least].what {
					t.Fatalf("popped %d, want %d", got, want[least].what)
				}
				want = append(want[:least], want[least+1:]...)
			}
			if a.len() != len(want) || len(want) == 0 && a.first() != vtime.Never {
				t.Fatalf("%d are left, first at %v, want %d", a.len(), a.first(), len(want))
			}
		}
	})
}

// held delays frames by the given spans.
type held struct{ by []vtime.Duration }

func (h *held) Arrive(_ vtime.Time, f *wire.Frame) (v faults.Verdict) {
	if len(h.by) > 0 && f.Kind() == wire.KindRoCE {
		v.Delay, h.by = h.by[0], h.by[1:]
	}
	return v
}

// TestFarEvents puts calls, sleeps and frames at instants all over lab time, from one
// picosecond to the end, in labs with small and large numbers of ids: each comes at its
// instant, to the picosecond, and in order.
func TestFarEvents(t *testing.T) {
	for _, hosts := range []int{2, 16, 200} {
		for shift := range 63 {
			d := vtime.Duration(1) << shift
			if vtime.Time(d) > vtime.End/2 {
				break
			}
			t.Run(fmt.Sprintf("%d hosts, %v", hosts, d), func(t *testing.T) { farEvents(t, hosts, d) })
		}
	}
}

func farEvents(t *testing.T, hosts int, d vtime.Duration) {
	n := starNet(t, hosts)
	if hosts == 200 { // as many ids as the largest topologies have: a key says 0.27 s
		n.idBits = 22
		n.from(0)
	}
	var called []vtime.Time
	for _, at := range []vtime.Duration{d + d/2, d, d - 1, 2 * d} {
		n.At(vtime.Time(at), func(now vtime.Time) {
			if now != vtime.Time(at) {
				t.Errorf("the call at %v came at %v", at, now)
			}
			called = append(called, now)
		})
	}
	n.SetFault(n.PortID(hosts, 1), &held{by: []vtime.Duration{d}})
	var slept, came vtime.Time
	patient := simlab.Params()
	patient.Timeout = 0 // infinite
	err := n.Run(Job{Name: "far", Hosts: []int{0, 1}, Params: patient, Program: func(r *rank.Rank) error {
		if err := simlab.Cross(r, 64); err != nil {
			return err
		}
		if came = max(came, r.Now()); r.ID() == 0 {
			from := r.Now()
			r.Sleep(d / 3)
			slept = r.Now() - from
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if came < vtime.Time(d) || slept != vtime.Time(d/3) || len(called) != 4 {
		t.Errorf("the frame came at %v, the sleep took %v, and %d of 4 calls came", came, slept, len(called))
	}
	for i := 1; i < len(called); i++ {
		if called[i] < called[i-1] {
			t.Errorf("calls came at %v", called)
		}
	}
}

// TestEndOfTime: a task that sleeps beyond the end of lab time gets an error.
func TestEndOfTime(t *testing.T) {
	for _, d := range []vtime.Duration{vtime.Duration(vtime.End) + vtime.Second, vtime.Duration(vtime.Never)} {
		n := starNet(t, 2)
		err := n.Run(Job{Name: "end", Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
			r.Sleep(vtime.Microsecond)
			r.Sleep(d)
			return nil
		}})
		if !errors.Is(err, rankhost.ErrEnd) || !strings.Contains(err.Error(), "100 days") {
			t.Errorf("a sleep of %v ends with %v", d, err)
		}
	}
}

// TestManyCalls: more calls wait for their time than events have numbers, and all of them
// come, those of an instant included.
func TestManyCalls(t *testing.T) {
	n := starNet(t, 2)
	count, most, last := 0, 1<<n.idBits+5000, vtime.Time(0)
	for i := range most {
		at := vtime.Time(1 + (i*7919)%1000)
		n.At(at, func(now vtime.Time) {
			if now != at || now < last {
				t.Errorf("the call at %v came at %v, after %v", at, now, last)
			}
			last = now
			count++
		})
	}
	for n.step() {
	}
	if count != most {
		t.Errorf("%d of %d calls came", count, most)
	}
}

// BenchmarkHeld runs a message whose frames are all held back by a delay fault, so that few
// or very many of them are held at a time. What a frame costs must not depend on that.
func BenchmarkHeld(b *testing.B) {
	for _, d := range []vtime.Duration{10 * vtime.Microsecond, vtime.Millisecond, 10 * vtime.Millisecond} {
		b.Run(d.String(), func(b *testing.B) {
			var hops uint64
			for range b.N {
				n := starNet(b, 2)
				n.SetFault(n.PortID(2, 1), &faults.Impairment{Hold: d})
				params := simlab.Params()
				params.Timeout = 0
				err := n.Run(Job{Name: "held", Hosts: []int{0, 1}, Params: params, Program: func(r *rank.Rank) error { return simlab.Cross(r, 64<<20) }})
				if err != nil {
					b.Fatal(err)
				}
				hops += n.Stats().Hops
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(hops), "ns/hop")
		})
	}
}
