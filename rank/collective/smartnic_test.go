// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
)

// TestThreadSets: communicators come and go by draw; each has the threads it asked for, no core gives more than
// it has, a set has as few cores as there are free threads in turn, and one that does not fit is refused whole
// (AG-26, AG-28).
func TestThreadSets(t *testing.T) {
	random := prng.New(1)
	type set struct{ cores []int }
	refused := 0
	for range 200 {
		s, open := &smartNIC{}, []set{}
		for range 60 {
			if len(open) > 0 && random.IntN(3) == 0 {
				i := random.IntN(len(open))
				s.release(open[i].cores, 0)
				open = append(open[:i], open[i+1:]...)
				continue
			}
			in := 0
			for _, o := range open {
				in += len(o.cores)
			}
			n, begin := 1+random.IntN(64), s.next
			before := *s
			cores, err := s.take(n)
			if fits := in+n <= 256; fits != (err == nil) {
				t.Fatalf("%d threads beside %d: %v", n, in, err)
			}
			if err != nil {
				refused++
				if *s != before || !strings.Contains(err.Error(), "beside the") {
					t.Fatalf("refused, but changed, or without saying why: %v", err)
				}
				continue
			}
			open = append(open, set{cores})
			wantCores(t, &before, s, cores, begin)
		}
		for _, o := range open {
			s.release(o.cores, 0)
		}
		if *s != (smartNIC{}) {
			t.Fatalf("after all have ended: %+v", s)
		}
	}
	if refused == 0 {
		t.Error("none was refused: the draw does not reach the bound")
	}
}

// wantCores holds a set of threads: cores in turn from the one that is next, each filled before the next.
func wantCores(t *testing.T, before, after *smartNIC, cores []int, begin int) {
	t.Helper()
	count := map[int]int{}
	for _, c := range cores {
		count[c]++
	}
	left := len(cores)
	for i := range dpaCores {
		c := (begin + i) % dpaCores
		want := min(left, dpaThreads-before.used[c])
		left -= want
		if count[c] != want || after.used[c] != before.used[c]+want {
			t.Fatalf("%d threads from core %d on: core %d gives %d, want %d", len(cores), begin, c, count[c], want)
		}
	}
	if last := cores[len(cores)-1]; after.next != (last+1)%dpaCores {
		t.Fatalf("the next set begins at core %d after one that ends at %d", after.next, last)
	}
}

// TestCache: bitmaps of 2 GiB in chunks of 4 KiB, 64 KiB each, and contexts of 16 KiB. The paper says that more
// than 16 communicators fit (R-A11): 19 do. A bitmap that has the whole cache covers 50 GB, less the size of its
// context (R-A10). The paper's bitmap of 64 KiB for 16 GB would be one of 32 KiB chunks: in chunks of 4 KiB 16
// GiB take 512 KiB, of which two communicators fit (CON-21).
func TestCache(t *testing.T) {
	const chunks = 2 << 30 / 4096
	s, fit := &smartNIC{}, 0
	var err error
	var all []engine
	for {
		e := engine{nic: s}
		if e.cores, err = s.take(1); err == nil {
			err = e.begin(chunks)
		}
		if err != nil {
			break
		}
		all = append(all, e)
		fit++
	}
	if fit != 19 || !strings.Contains(err.Error(), "65536 bytes of bitmap or context beside 1572864 of 20 ") {
		t.Errorf("%d communicators fit, then: %v", fit, err)
	}
	all[0].close()
	if e := (&engine{nic: s, cores: []int{0}}); e.begin(chunks) != nil {
		t.Error("the cache that one has given back cannot be used")
	}
	two := &smartNIC{}
	for i := range 3 {
		e := engine{nic: two}
		if e.cores, err = two.take(1); err != nil {
			t.Fatal(err)
		}
		if err := e.begin(16 << 30 / 4096); (err == nil) != (i < 2) {
			t.Errorf("communicator %d with a bitmap for 16 GiB: %v", i, err)
		}
	}
	alone := engine{nic: &smartNIC{}}
	if alone.cores, err = alone.nic.take(1); err != nil {
		t.Fatal(err)
	}
	most := (dpaCache - dpaContext) * 8
	if err := alone.begin(most); err != nil || int64(most)*4096 < 50e9 || int64(most)*4096 > 52e9 {
		t.Errorf("%d chunks: %v", most, err)
	}
	if err := alone.begin(most + 1); err == nil {
		t.Errorf("%d chunks fit", most+1)
	}
	if err := alone.begin(most); err != nil { // a refused call leaves nothing held
		t.Error(err)
	}
}
