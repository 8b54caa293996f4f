// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// restarted has hosts send to one host beyond its port's rate, and restarts the switch while it holds
// queued frames.
func restarted(t *testing.T, r *rand.Rand) *lone {
	l := newLone(t, nil)
	for range 50 + r.IntN(50) {
		i := r.IntN(loneHosts - 1)
		l.stub[i].send(l.data(hostIP(i), hostIP(loneHosts-1), uint16(r.Uint32()), 1, 26<<2))
	}
	var held, lost int
	l.net.At(vtime.Time(3*vtime.Microsecond), func(now vtime.Time) {
		held = l.sw.Queued()
		last := loneHosts - 1
		holds, peak := 0, l.sw.QueuePeak(last)
		for prio := range uint8(8) {
			if e := &l.sw.eg[last]; e.ready>>prio&1 != 0 {
				holds = max(holds, e.queue(prio).bytes)
			}
		}
		if holds == 0 || peak < holds || l.sw.QueuePeak(0) != 0 {
			t.Errorf("the queue to the last host holds %d bytes, and its peak is %d; that of a port without a queue is %d", holds, peak, l.sw.QueuePeak(0))
		}
		lost = l.sw.Restart(now)
		if l.sw.QueuePeak(last) != peak {
			t.Errorf("after the restart the peak is %d, and was %d", l.sw.QueuePeak(last), peak)
		}
		if l.sw.Queued() != 0 {
			t.Errorf("%d frames are held after the restart", l.sw.Queued())
		}
		for p := range l.sw.ports {
			for prio := range uint8(8) {
				if n := l.sw.Occupancy(p, prio); n != 0 {
					t.Errorf("port %d, priority %d: %d bytes are charged after the restart", p, prio, n)
				}
			}
		}
	})
	l.run()
	if held == 0 || lost < held/2 {
		t.Errorf("%d frames were held when the switch restarted, and %d lost", held, lost)
	}
	return l
}

// TestCarrier: a port without carrier is in no route, at once; new routes do not bring it
// back, and its carrier does.
func TestCarrier(t *testing.T) {
	l := newLone(t, nil)
	sw := l.sw
	was := sw.fib
	at, _ := sw.fib.lookup(hostIP(2))
	if at < 0 {
		t.Fatal("no route to a host at the switch")
	}
	drops := func() uint64 { return sw.stats.Drops[DropNoRoute] }
	send := func() {
		l.stub[0].send(l.data(hostIP(0), hostIP(2), 7, 1, 26<<2))
		l.run()
	}
	sw.SetCarrier(l.net.Now, at, false)
	if send(); drops() != 1 {
		t.Errorf("%d frames to a host without carrier were dropped for lack of a route, want 1", drops())
	}
	sw.SetRoutes(0, was)
	if send(); drops() != 2 {
		t.Errorf("%d drops after new routes, want 2", drops())
	}
	sw.SetCarrier(l.net.Now, at, true)
	if send(); drops() != 2 {
		t.Errorf("%d drops with the carrier back, want 2", drops())
	}
	set := FIB{Sets: [][]uint16{{1, 2, 3}}, Block: []uint16{1}}
	dark := newBitset(6)
	dark.set(2)
	if got := set.without(dark).Sets[0]; !slices.Equal(got, []uint16{1, 3}) {
		t.Errorf("without port 2 the set 1, 2, 3 is %v", got)
	}
	if !slices.Equal(set.Sets[0], []uint16{1, 2, 3}) {
		t.Errorf("the installed set has become %v", set.Sets[0])
	}
}

// TestLimitGroups: no group is installed beyond the limit, each refusal is counted, and
// without a limit there is room again.
func TestLimitGroups(t *testing.T) {
	l := groupLab(t, nil)
	sw := l.sw
	one := wire.MRPPacket{}
	sw.LimitGroups(1)
	if sw.room(nil, one) {
		t.Error("there is room for a second group of one")
	}
	sw.LimitGroups(-1)
	if !sw.room(nil, one) {
		t.Error("there is no room without a limit")
	}
	if n := sw.WipeGroups(); n != 1 || len(sw.Groups()) != 0 || sw.mftUsed != 0 {
		t.Errorf("%d groups were forgotten, want 1; %d are left, %d bytes are in use", n, len(sw.Groups()), sw.mftUsed)
	}
}
