// SPDX-License-Identifier: Apache-2.0

package outofband

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGet: a reader waits for its key and no other, resumes with the value, and a later reader does not
// wait.
func TestGet(t *testing.T) {
	b := New[string](2, nil)
	if _, ok := b.Get(0, "a", "k"); ok {
		t.Error("there is a value before one was put")
	}
	if _, ok := b.Get(0, "a", "k"); ok {
		t.Error("asking again makes a value")
	}
	b.Get(1, "b", "k")
	b.Get(1, "c", "other")
	if got := b.Put("k", []byte("v")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("a value resumes %v", got)
	}
	for _, key := range []string{"k", "empty"} {
		b.Put("empty", nil)
		if v, ok := b.Get(1, "d", key); !ok || len(v) != map[string]int{"k": 1}[key] {
			t.Errorf("%s: %q, %v", key, v, ok)
		}
	}
	b.Withdraw(1, "c", "other")
	if got := b.Put("other", nil); got != nil {
		t.Errorf("a call that was withdrawn is resumed: %v", got)
	}
	if got := b.Put("k", []byte("new")); got != nil {
		t.Errorf("readers that have gone on are resumed again: %v", got)
	}
}

// TestBarrier: the last arrival releases all ranks, itself last, and the next barrier begins empty.
func TestBarrier(t *testing.T) {
	b := New[int](3, nil)
	for round := range 3 {
		for i := range 2 {
			if got := b.Arrive(i, 10+i); got != nil {
				t.Fatalf("%d of 3 let go: %v", i+1, got)
			}
		}
		if got := b.Missing(); got != "the other ranks to synchronise (2 of 3 are there)" {
			t.Error(got)
		}
		if b.Round() != round {
			t.Errorf("round %d before the barrier was passed", b.Round())
		}
		if got := b.Arrive(2, 12); !slices.Equal(got, []int{10, 11, 12}) || b.Round() != round+1 {
			t.Errorf("the last lets go %v in round %d", got, b.Round())
		}
	}
}

// TestLose: barriers do without a rank that is spare, also the one that others wait in, and
// never without one that is not.
func TestLose(t *testing.T) {
	b := New[int](3, []bool{false, true})
	b.Get(1, 91, "k")
	b.Get(0, 90, "k")
	b.Arrive(0, 10)
	b.Arrive(1, 11)
	for _, rank := range []int{0, 2} {
		if got := b.Lose(rank); got != nil || b.Missing() != "the other ranks to synchronise (2 of 3 are there)" {
			t.Errorf("without rank %d, which is not spare: %v, %s", rank, got, b.Missing())
		}
	}
	if got := b.Lose(1); got != nil {
		t.Errorf("rank 0 goes on without rank 2: %v", got)
	}
	if got := b.Arrive(2, 12); !slices.Equal(got, []int{10, 12}) {
		t.Errorf("two of two let go %v", got)
	}
	if got := b.Put("k", nil); !slices.Equal(got, []int{90}) {
		t.Errorf("a value resumes %v", got)
	}
	b = New[int](2, []bool{false, true})
	b.Arrive(0, 10)
	if got := b.Lose(1); !slices.Equal(got, []int{10}) {
		t.Errorf("the loss of the last lets go %v", got)
	}
	if got := b.Lose(1); got != nil || b.size != 1 {
		t.Errorf("lost twice: %v, a barrier of %d", got, b.size)
	}
}

// blocked is a call of the model: of the key, or in the barrier if it has none.
type blocked struct {
	rank, call int
	key        string
}

// model is the board without any structure: the published values, and all calls in the order of their
// arrival. After each operation it looks at all of them.
type model struct {
	put  map[string]bool
	all  []blocked
	size int
	lost map[int]bool
}

// goOn returns and removes the calls that nothing blocks any more.
func (m *model) goOn() (calls []int) {
	there := 0
	for _, c := range m.all {
		if c.key == "" {
			there++
		}
	}
	m.all = slices.DeleteFunc(m.all, func(c blocked) bool {
		on := c.key != "" && m.put[c.key] || c.key == "" && there >= m.size
		if on {
			calls = append(calls, c.call)
		}
		return on
	})
	return calls
}

// TestRandom: the board resumes after each operation the calls of the model, in its order.
func TestRandom(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		ranks := 1 + r.IntN(6)
		spare := make([]bool, ranks)
		for i := range spare {
			spare[i] = i > 0 && r.IntN(2) == 0
		}
		b, m := New[int](ranks, spare), &model{put: map[string]bool{}, size: ranks, lost: map[int]bool{}}
		inside := func(rank int) bool {
			return slices.ContainsFunc(m.all, func(c blocked) bool { return c.rank == rank && c.key == "" })
		}
		resumed := 0
		for call := range 200 {
			rank, key := r.IntN(ranks), fmt.Sprint(r.IntN(40))
			if m.lost[rank] {
				continue
			}
			var got []int
			what := ""
			switch k := r.IntN(100); {
			case k < 40:
				what = "get"
				if v, ok := b.Get(rank, call, key); ok != m.put[key] || ok && string(v) != key {
					t.Fatalf("seed %d call %d: key %s has %q, %v", seed, call, key, v, ok)
				} else if !ok {
					m.all = append(m.all, blocked{rank, call, key})
				}
			case k < 60:
				what, got = "put", b.Put(key, []byte(key))
				m.put[key] = true
			case k < 90 && !inside(rank):
				what, got = "arrive", b.Arrive(rank, call)
				m.all = append(m.all, blocked{rank, call, ""})
			case k < 95 && len(m.all) > 0:
				what = "withdraw"
				if c := m.all[r.IntN(len(m.all))]; c.key != "" {
					b.Withdraw(c.rank, c.call, c.key)
					m.all = slices.DeleteFunc(m.all, func(o blocked) bool { return o == c })
				}
			case spare[rank]:
				what, got = "lose", b.Lose(rank)
				m.lost[rank] = true
				m.size--
				m.all = slices.DeleteFunc(m.all, func(o blocked) bool { return o.rank == rank })
			}
			if want := m.goOn(); !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s by rank %d as call %d resumes %v, want %v", seed, what, rank, call, got, want)
			}
			resumed += len(got)
		}
		if resumed == 0 {
			t.Errorf("seed %d resumed nothing", seed)
		}
	}
}

// TestTake: a taken value is gone, whether it was there before or not.
func TestTake(t *testing.T) {
	b := New[string](2, nil)
	b.Put("there", []byte("v"))
	if v, ok := b.Take(0, "a", "there"); !ok || string(v) != "v" {
		t.Errorf("%q, %v", v, ok)
	}
	if v, ok := b.Get(0, "a", "there"); ok {
		t.Errorf("%q has been kept", v)
	}
	if _, ok := b.Take(1, "b", "later"); ok {
		t.Error("there is a value before one was put")
	}
	if got := b.Put("later", []byte("w")); !slices.Equal(got, []string{"b"}) {
		t.Errorf("a value resumes %v", got)
	}
	if v, ok := b.Take(1, "b", "later"); !ok || string(v) != "w" || len(b.values) != 0 {
		t.Errorf("%q, %v, and %d values are kept", v, ok, len(b.values))
	}
}
