// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/traces"
)

// written writes lines as a trace.
func written(t *testing.T, lines []traces.Line) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := traces.NewLines(&b)
	for i := range lines {
		w.Write(&lines[i])
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// Of the trace that underWay makes: picoseconds.
const (
	each  = 1000 // of a packet on the link
	reach = 1500 // from the start of a packet until the other host has it
)

// underWay is a trace of two hosts back to back, of which one posts n requests of a packet each at once.
func underWay(n int) (all []traces.Line) {
	const a, b = "10.0.0.1", "10.0.0.2"
	all = append(all,
		traces.Line{Kind: traces.LineHost, Node: "h0", Src: a}, traces.Line{Kind: traces.LineHost, Node: "h1", Src: b},
		traces.Line{Kind: traces.LineLink, Node: "h0", To: "h1", Lands: reach - each, Gap: 1},
		traces.Line{Kind: traces.LineLink, Node: "h1", To: "h0", Lands: reach - each, Gap: 1})
	for i := range n {
		psn, at := uint32(i), int64(i)*each
		all = append(all,
			traces.Line{Kind: traces.LinePosted, Node: "h0", Op: "SEND", QP: 5, DestQP: 6, Dst: b, PSN: psn, Count: 1, Bytes: 100},
			traces.Line{Kind: traces.LineSent, Node: "h0", Packet: traces.PacketData, Src: a, Dst: b, DestQP: 6, PSN: psn, Count: 1, At: at, Takes: each, Lands: reach},
			traces.Line{Kind: traces.LineReceived, Node: "h1", Src: a, Dst: b, DestQP: 6, PSN: psn, At: at + reach},
			traces.Line{Kind: traces.LineDone, Node: "h0", QP: 5, PSN: psn, At: at + 2*reach})
	}
	return all
}

// TestUnderWay: the cost of explaining all messages grows as their number, also where each waits for all before
// it.
func TestUnderWay(t *testing.T) {
	const most = 60 // steps of a message
	for _, n := range []int{1, 2, 64, 512, 4096} {
		tr, err := Read(written(t, underWay(n)))
		if err != nil || len(tr.Messages) != n {
			t.Fatal(err, len(tr.Messages))
		}
		table := tr.Table()
		if len(table.Gaps) > 0 || table.Rows[0].Messages != n {
			t.Errorf("%d: %d explained, %q", n, table.Rows[0].Messages, table.Gaps)
		}
		if tr.steps > uint64(n*most) {
			t.Errorf("%d messages took %d steps, which is %d each", n, tr.steps, tr.steps/uint64(n))
		}
		for _, i := range []int{0, n / 2, n - 1} {
			e, ok := tr.Explain(tr.Messages[i])
			want := Parts{Queueing: int64(i) * each, Serialisation: each, Propagation: reach - each}
			if !ok || e.Parts != want {
				t.Errorf("message %d of %d: %v, want %v", i, n, e.Parts, want)
			}
		}
	}
}

// TestUnderWayPaused: what is left out behind others are only packets between which nothing else counts.
func TestUnderWayPaused(t *testing.T) {
	const n, paused, quanta = 50, 20, 7
	all := underWay(n)
	all = append(all, traces.Line{Kind: traces.LineEvent, Node: "h0", Op: "pause-received", Priority: 1, At: paused * each, Value: quanta * each})
	for i := range all {
		if l := &all[i]; l.At > 0 && l.Kind != traces.LineEvent && l.PSN >= paused {
			l.At += quanta * each
		} else if l.Kind == traces.LineLink {
			l.Gap = 1
		}
	}
	tr, err := Read(written(t, all))
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{paused - 1, paused, n - 1} {
		want := Parts{Queueing: int64(i) * each, Serialisation: each, Propagation: reach - each}
		if i >= paused {
			want[Pause] = quanta * each
		}
		if e, ok := tr.Explain(tr.Messages[i]); !ok || e.Parts != want {
			t.Errorf("message %d: %v, want %v", i, e.Parts, want)
		}
	}
}

// TestTooMany: a table that would take too long names the part that it lacks.
func TestTooMany(t *testing.T) {
	tr, err := Read(written(t, underWay(100)))
	if err != nil {
		t.Fatal(err)
	}
	tr.stepsMax = 200
	table := tr.Table()
	if n := table.Rows[0].Messages; n == 0 || n == 100 || len(table.Gaps) != 1 ||
		!strings.HasPrefix(table.Gaps[0], fmt.Sprintf("%d of 100 messages, the last ones, are not explained", 100-n)) {
		t.Errorf("%d explained, %q", n, table.Gaps)
	}
}

// TestRequests holds the search for a packet's request against looking at all of them, in traces that no run writes, too.
func TestRequests(t *testing.T) {
	r := prng.New(7)
	for range 300 {
		var q requests
		psn, at := map[int]uint32{}, int64(0)
		for range 1 + r.IntN(60) {
			node := r.IntN(3)
			if r.IntN(8) == 0 {
				psn[node] = uint32(r.IntN(1 << 24))
			} else if r.IntN(8) == 0 {
				psn[node] = psnMask - uint32(r.IntN(4))
			}
			x := &transfer{node: node, psn: psn[node], packets: r.IntN(5), posted: at}
			if r.IntN(20) == 0 {
				x.packets = 1<<24 - r.IntN(3)
			}
			psn[node] = (psn[node] + uint32(x.packets)) & psnMask
			q.add(x)
			at += int64(r.IntN(2))
		}
		var steps uint64
		for range 200 {
			node, when := r.IntN(4)-1, int64(r.IntN(int(at)+2))-1
			x := q.all[r.IntN(len(q.all))]
			ask := (x.psn + uint32(r.IntN(6)) - 1) & psnMask
			var want *transfer
			for i := after(q.all, when) - 1; i >= 0 && want == nil; i-- {
				if q.all[i].has(ask) && (node < 0 || q.all[i].node == node) {
					want = q.all[i]
				}
			}
			if got := q.by(&steps, node, ask, when); got != want {
				t.Fatalf("node %d, PSN %d at %d: %+v, want %+v", node, ask, when, got, want)
			}
		}
	}
}

// TestMessageLists: a line whose lists do not belong together is refused, with its number.
func TestMessageLists(t *testing.T) {
	for _, l := range []traces.Line{
		{Kind: traces.LineMessage, Workload: "w", Received: []int64{-1, 5}},
		{Kind: traces.LineMessage, Workload: "w", Hosts: []string{"h0"}, Received: []int64{-1, 5}},
		{Kind: traces.LineMessage, Workload: "w", Hosts: []string{"h0", "h1"}},
	} {
		if _, err := Read(written(t, []traces.Line{l})); err == nil || !strings.HasPrefix(err.Error(), "line 2: a message of ") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
