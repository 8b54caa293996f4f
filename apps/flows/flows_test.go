// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestCount: the intervals hold every byte of the messages, each where it came, whatever the messages' times.
func TestCount(t *testing.T) {
	const seed = 3
	s := prng.New(seed)
	for round := range 200 {
		x := side{p: &Params{Interval: 100 * vtime.Microsecond}, start: vtime.Time(s.IntN(1e9))}
		at, sum := x.start, int64(0)
		var last int64
		for range 50 {
			to, n := at.Add(vtime.Duration(s.IntN(400_000_000))), int64(1+s.IntN(1<<31-1))
			x.count(at, to, n)
			at, sum, last = to, sum+n, n
		}
		got := int64(0)
		for k, b := range x.rec.Bytes {
			if b < 0 {
				t.Fatalf("seed %d, round %d: interval %d has %d bytes", seed, round, k, b)
			}
			got += b
		}
		if want := int(at.Sub(x.start)-1) / int(x.p.Interval); got != sum || len(x.rec.Bytes) < want || len(x.rec.Bytes) > want+2 || last == 0 {
			t.Fatalf("seed %d, round %d: %d bytes in %d intervals, want %d in about %d", seed, round, got, len(x.rec.Bytes), sum, want+1)
		}
	}
	x := side{p: &Params{Interval: 10 * vtime.Microsecond}}
	x.count(vtime.Time(5*vtime.Microsecond), vtime.Time(25*vtime.Microsecond), 400)
	if fmt.Sprint(x.rec.Bytes) != "[100 200 100]" {
		t.Errorf("400 bytes from 5 to 25 us: %v", x.rec.Bytes)
	}
	x.count(vtime.Time(intervalsMax*20*vtime.Microsecond), vtime.Time(intervalsMax*30*vtime.Microsecond), 7)
	if len(x.rec.Bytes) != intervalsMax || x.rec.Bytes[intervalsMax-1] != 7 {
		t.Errorf("what comes after the last interval: %d intervals, %d bytes in the last", len(x.rec.Bytes), x.rec.Bytes[len(x.rec.Bytes)-1])
	}
}

// TestManyFlows: of many flows the row has each beside the others, but not its file, which would grow with their square.
func TestManyFlows(t *testing.T) {
	for _, n := range []int{1, keptMax, keptMax + 1} {
		p := Params{Workload: "w", Message: 1000, Interval: vtime.Millisecond, Memory: "phantom"}
		records := make([][][]byte, n+1)
		for i := range n {
			p.Flows = append(p.Flows, Flow{Name: fmt.Sprint("f", i), From: 0, To: []int{1 + i}, End: 4 * vtime.Millisecond})
			line := fmt.Sprintf(`{"flow":%d,"start":0,"messages":4,"last":4000000000`, i)
			records[0] = append(records[0], []byte(line+"}"))
			records[1+i] = [][]byte{[]byte(line + `,"bytes":[1000,1000,1000,1000]}`)}
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := App{}.Reduce(raw, records)
		if err != nil || len(rows) != n {
			t.Fatalf("%d flows: %d rows, %v", n, len(rows), err)
		}
		last := fmt.Sprint("f", n-1)
		if v, known, err := rows[0].Details.Quantity("x", quantityFairness, last); v != 1 || !known || err != nil {
			t.Errorf("%d flows: the fairness of the first and the last is %g, %t, %v", n, v, known, err)
		}
		if _, _, err := rows[0].Details.Quantity("x", quantityBeside, "g"); err == nil || !strings.Contains(err.Error(), "no flow") {
			t.Errorf("%d flows: beside one that is none: %v", n, err)
		}
		text, err := json.Marshal(rows[0].Details)
		if err != nil || len(text) > 200*(keptMax+3) {
			t.Errorf("%d flows: a row has %d bytes, %v", n, len(text), err)
		}
		var again Course
		if err := json.Unmarshal(text, &again); err != nil || (again.Beside == nil) != (n > keptMax) {
			t.Fatalf("%d flows: read back %d pairs, %v", n, len(again.Beside), err)
		}
		if _, _, err := again.Quantity("x", quantityFairness, last); (err != nil) != (n > keptMax) || err != nil && !strings.Contains(err.Error(), "more than 100 flows") {
			t.Errorf("%d flows: read back: %v", n, err)
		}
	}
}

// TestPair: fairness is of the later half of the time together, and regaining counts from the other's last byte to
// the end of the first interval with the rate.
func TestPair(t *testing.T) {
	a := &Course{Flow: "a", BeginUS: 0, EndUS: 1000, LastUS: 1001, IntervalUS: 100, Rates: []float64{10, 10, 9, 2, 5, 5, 5, 8, 9.6, 10}}
	b := &Course{Flow: "b", BeginUS: 200, EndUS: 600, LastUS: 620, IntervalUS: 100, Rates: []float64{0, 0, 1, 8, 5, 5, 1}}
	a.Goodput.Max, b.Goodput.Max = 10, 8
	p := a.pair(b)
	if p.Goodput == nil || *p.Goodput != 5 || *p.Fairness != 1 || p.RegainUS != 900-620 {
		t.Errorf("%+v", p)
	}
	b.Rates[4], b.Rates[5] = 0, 0
	if p := b.pair(a); *p.Goodput != 0 || math.Abs(*p.Fairness-0.5) > 1e-12 || p.RegainUS != 0 {
		t.Errorf("one that has nothing: %+v", p)
	}
	a.Rates = a.Rates[:8]
	if p := a.pair(b); p.RegainUS != 1000-620 {
		t.Errorf("one that never has its rate again regains it after %g us", p.RegainUS)
	}
	b.BeginUS, b.EndUS = 1000, 2000
	if p := a.pair(b); p.Goodput != nil || p.Fairness != nil {
		t.Errorf("one after the other: %+v", p)
	}
	for _, of := range []string{quantityBeside, quantityFairness} {
		a.Beside = []Pair{a.pair(b)}
		if _, known, err := a.Quantity("x", of, "b"); !known || err == nil {
			t.Errorf("%s has a value", of)
		}
	}
	if v, _, err := a.Quantity("x", quantityRate, "20"); v != 0 || err != nil {
		t.Errorf("rate after the end: %g, %v", v, err)
	}
}
