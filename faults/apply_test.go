// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// diary is a sink that records its calls.
type diary struct {
	lines []string
	kept  []*wire.Frame
}

func (d *diary) Decided(port int, f *wire.Frame, v Verdict) {
	d.lines = append(d.lines, fmt.Sprintf("%d decided, damaged %v", port, !f.CheckICRC()))
}

func (d *diary) Deliver(port int, f *wire.Frame) {
	d.lines, d.kept = append(d.lines, fmt.Sprintf("%d delivered", port)), append(d.kept, f)
}

func (d *diary) Hold(port int, f *wire.Frame, by vtime.Duration) {
	d.lines, d.kept = append(d.lines, fmt.Sprintf("%d held for %d", port, int64(by))), append(d.kept, f)
}

// TestApply: the result for a frame under each verdict, the order of the driver's calls, the counters,
// and that no frame is lost or freed twice.
func TestApply(t *testing.T) {
	for _, c := range []struct {
		v     Verdict
		want  string
		goes  bool
		count Counts
	}{
		{Verdict{}, "decided, delivered", true, Counts{}},
		{Verdict{Drop: true}, "decided", false, Counts{Lost: 1}},
		{Verdict{Delay: 5}, "decided, held for 5", true, Counts{Held: 1}},
		{Verdict{Twice: true}, "decided, held for 0, delivered", true, Counts{Copied: 1}},
		{Verdict{Twice: true, Delay2: 7, Delay: 3}, "decided, held for 7, held for 3", true, Counts{Copied: 1, Held: 1}},
		{Verdict{Twice: true, Delay2: 7, Drop: true}, "decided, held for 7", false, Counts{Copied: 1, Lost: 1}},
		{Verdict{Cut: true, Bit: 10, Twice: true}, "decided", false, Counts{Malformed: 1}},
		{Verdict{Cut: true, Bit: 10, Drop: true}, "decided", false, Counts{Lost: 1}},
		{Verdict{Damage: true, Bit: 500}, "damaged: decided, delivered", true, Counts{}},
	} {
		for _, counted := range []bool{true, false} {
			var pool wire.Pool
			e := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 9, DstPort: wire.PortRoCEv2})
			f := pool.Get()
			f.Start(&e, wire.BTH{OpCode: wire.OpSendOnly, DestQP: 7})
			f.Seal(0, false)
			d, count := &diary{}, Counts{}
			a := Arrival{Port: 4, Frame: f, Pool: &pool}
			if counted {
				a.Count = &count
			} else {
				c.count = Counts{}
			}
			goes := Apply(c.v, a, d)
			want, damaged := strings.CutPrefix(c.want, "damaged: ")
			want = "4 " + strings.ReplaceAll(want, ", ", ", 4 ")
			want = strings.Replace(want, "decided", fmt.Sprintf("decided, damaged %v", damaged), 1)
			if got := strings.Join(d.lines, ", "); got != want || goes != c.goes || count != c.count {
				t.Errorf("%+v: %s, goes on %v, counts %+v\nwant %s, %v, %+v", c.v, got, goes, count, want, c.goes, c.count)
			}
			if pool.Live != len(d.kept) {
				t.Errorf("%+v: %d frames are out, the driver has %d", c.v, pool.Live, len(d.kept))
			}
		}
	}
}
