// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"encoding/json"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// lineOf is a line of events.jsonl as encoding/json makes it.
type lineOf struct {
	TimeUS   float64 `json:"t_us"`
	Node     string  `json:"node,omitempty"`
	Event    string  `json:"event"`
	Port     *int    `json:"port,omitempty"`
	Priority *uint8  `json:"priorities,omitempty"`
	QP       uint32  `json:"qp,omitempty"`
	PSN      *uint32 `json:"psn,omitempty"`
	Group    string  `json:"group,omitempty"`
	Value    *int64  `json:"value,omitempty"`
	Text     string  `json:"text,omitempty"`
}

// TestAppendEvent: random events of all kinds give the output of encoding/json.
func TestAppendEvent(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	texts := []string{"", "RTR", "a \"b\" \\ <c> & d", "\n\x00\x7f", "\u00e4\u2028", "\xff"}
	times := []vtime.Time{0, 1, vtime.Time(vtime.Microsecond), vtime.End, vtime.Never}
	kinds := map[string]bool{}
	for range 20000 {
		ev := machine.Event{
			Kind: machine.EventKind(random.IntN(int(machine.EventKinds))), Port: random.IntN(100) - 1, Priority: uint8(random.Uint32()), QP: wire.QPN(random.Uint32() >> random.IntN(33)),
			PSN: wire.PSN(random.Uint32()) & wire.PSNMask, Group: random.Uint32() >> random.IntN(33), Value: random.Int64() - random.Int64(),
			Text: texts[random.IntN(len(texts))],
		}
		now := vtime.Time(random.Int64() >> random.IntN(63))
		if random.IntN(8) == 0 {
			now = times[random.IntN(len(times))]
		}
		node := texts[random.IntN(len(texts))]
		psn := uint32(ev.PSN)
		want := lineOf{TimeUS: now.Microseconds(), Node: node, Event: ev.Kind.String(), QP: uint32(ev.QP), Text: ev.Text}
		if ev.Group != 0 {
			want.Group = wire.AddrOf(ev.Group).String()
		}
		fields := ev.Fields()
		for field, set := range map[machine.EventFields]func(){
			machine.FieldPort: func() { want.Port = &ev.Port }, machine.FieldPriority: func() { want.Priority = &ev.Priority },
			machine.FieldPSN: func() { want.PSN = &psn }, machine.FieldValue: func() { want.Value = &ev.Value },
		} {
			if fields&field != 0 {
				set()
			}
		}
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendEvent(nil, now, node, &ev); string(got) != string(b) {
			t.Fatalf("seed %d: %s, want %s", seed, got, b)
		}
		kinds[ev.Kind.String()] = true
	}
	if len(kinds) < 20 {
		t.Errorf("only %d kinds of events", len(kinds))
	}
}

// TestEventsAllocate: an event of a node allocates nothing.
func TestEventsAllocate(t *testing.T) {
	to := NewEvents(io.Discard).Node("h1")
	ev := machine.Event{Kind: machine.EventDrop, Port: 3, QP: 17, PSN: 5, Group: 0x0afe0001, Text: "no-route"}
	if n := testing.AllocsPerRun(1000, func() { to.Trace(vtime.Time(vtime.Second), ev) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
