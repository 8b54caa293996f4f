package sim

import (
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestPartLog: what is added to the log of a part comes out once, in its order, up to the instant that is asked for.
func TestPartLog(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		var l partLog
		var added, passed, now vtime.Time
		for range 200 {
			for range r.IntN(2 * chunkLen) {
				added++
				now += vtime.Time(r.IntN(2))
				*l.add() = report{at: now, now: added}
			}
			before := now - vtime.Time(r.IntN(5))
			for {
				f := l.front(before)
				if f == nil {
					break
				}
				if passed++; f.now != passed || f.at >= before {
					t.Fatalf("seed %d: report %d of %d comes %dth, asked for those before %d", seed, f.now, f.at, passed, before)
				}
				l.drop()
			}
			if f := l.front(now + 1); (f == nil) != (passed == added) {
				t.Fatalf("seed %d: %d of %d reports passed on, the next is %v", seed, passed, added, f)
			}
		}
	}
}
