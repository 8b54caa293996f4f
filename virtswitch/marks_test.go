package virtswitch

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// burst has hosts send to one host more than its port takes, with any life left, to a
// switch with little buffer. The hosts ignore pauses, so that headroom is overrun too.
func burst(t *testing.T, r *rand.Rand) *Switch {
	l := newLone(t, func(c *Config) {
		c.Buffer = 60000
		c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 2000, Headroom: []int{3000, 3000, 3000, 3000, 3000, 3000}}
	})
	for range 200 + r.IntN(200) {
		i := r.IntN(loneHosts - 1)
		f := l.data(hostIP(i), hostIP(loneHosts-1), uint16(r.Uint32()), 1, uint8(r.IntN(2)*26<<2))
		for ttl := uint8(1 + r.IntN(9)); f.TTL() > ttl; {
			f.DecTTL()
		}
		l.stub[i].send(f)
	}
	l.run()
	return l.sw
}

// flooded has members acknowledge more than a slow feedback processor holds.
func flooded(t *testing.T, r *rand.Rand) *Switch {
	l := groupLab(t, func(c *Config) { c.FeedbackDelay = 10 * vtime.Millisecond })
	for k := range lateMax + 1 + r.IntN(lateMax) {
		i := 1 + r.IntN(3)
		l.sw.HandleFrame(l.net.Now, i, l.ack(i, wire.PSN(5+k), wire.SyndromeACK))
	}
	l.run()
	return l.sw
}

// damaged has members send acknowledgements of which a random bit is wrong.
func damaged(t *testing.T, r *rand.Rand) *Switch {
	l := groupLab(t, nil)
	for k := range 20 {
		i := 1 + r.IntN(3)
		f := l.ack(i, wire.PSN(5+k), wire.SyndromeACK)
		l.net.Pool.Damage(f, r.Uint64())
		l.stub[i].send(f)
	}
	l.run()
	return l.sw
}

// TestGuardsFire: every reason to drop a frame fires in random inputs by seed. A guard
// that never fires is untested.
func TestGuardsFire(t *testing.T) {
	const seeds = 2000
	var fired [dropReasons]uint64
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 11))
		data := make([]byte, 4+r.IntN(400))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		ran := []*Switch{fuzzRun(t, data)}
		if seed%100 == 0 {
			ran = append(ran, burst(t, r), flooded(t, r), damaged(t, r))
		}
		for _, s := range ran {
			for why, n := range s.stats.Drops {
				fired[why] += n
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, why := range DropReasons() {
		// Regions are announced by real NICs: region_test.go and sim/flt_write_test.go fire these.
		if why == DropRegionsFull || why == DropNoRegion {
			continue
		}
		if fired[why] == 0 {
			t.Errorf("%v never fired in %d inputs", why, seeds)
		}
	}
	t.Logf("drops by reason: %v", fired)
}
