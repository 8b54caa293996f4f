// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

func TestEvents(t *testing.T) {
	var b bytes.Buffer
	e := NewEvents(&b)
	e.Note(0, "run-start", map[string]int{"seed": 1})
	e.Node("leaf0").Trace(1_234_567, machine.Event{Kind: machine.EventPauseSent, Port: 0, Priority: 8, Value: 0})
	e.Node("h1").Trace(2_000_000, machine.Event{Kind: machine.EventNakSent, QP: 17, PSN: 0, Text: "NAK(sequence)"})
	e.Node("leaf1").Trace(3_000_000, machine.Event{Kind: machine.EventGroupActive, Group: wire.GroupNet | 1, PSN: 5, Value: 3})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"mcastlab/events/v1"}
{"t_us":0,"event":"run-start","data":{"seed":1}}
{"t_us":1.234567,"node":"leaf0","event":"pause-sent","port":0,"priorities":8,"value":0}
{"t_us":2,"node":"h1","event":"nak-sent","qp":17,"psn":0,"text":"NAK(sequence)"}
{"t_us":3,"node":"leaf1","event":"group-active","psn":5,"group":"10.254.0.1","value":3}
{"event":"end","value":5,"crc32c":"395be9f1"}
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestEventsCut: beyond the size limit events are counted, and the file says so.
func TestEventsCut(t *testing.T) {
	var b bytes.Buffer
	e := NewEvents(&b)
	e.written = eventsBytesMax - 200
	for range 10 {
		e.Note(0, "something-with-a-long-name", nil)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	var cut, end struct {
		Event string
		Value uint64
	}
	n := len(lines)
	if err := errors.Join(json.Unmarshal([]byte(lines[n-2]), &cut), json.Unmarshal([]byte(lines[n-1]), &end)); err != nil {
		t.Fatal(err)
	}
	if cut.Event != "cut" || cut.Value != e.Cut() || int(e.Cut())+n-3 != 10 || end.Event != "end" || int(end.Value) != n-1 {
		t.Errorf("%d lines, cut %d, the last two are %+v and %+v", n, e.Cut(), cut, end)
	}
}

// TestCapture: frames that come out of order within the slack are written in order,
// byte-exact, under the port's name and lab time.
func TestCapture(t *testing.T) {
	var p wire.Pool
	env := wire.NewEnvelope(wire.Flow{Src: 1, Dst: 2, TTL: 9, DstPort: wire.PortRoCEv2})
	make1 := func(psn wire.PSN) *wire.Frame {
		f := p.Get()
		f.Start(&env, wire.BTH{OpCode: wire.OpSendOnly, PSN: psn})
		f.SetPhantom(10)
		f.Seal(0, true)
		return f
	}
	var b bytes.Buffer
	budget := Budget{Left: 10000}
	c, err := NewCapture(&b, "h0:0", 5*vtime.Microsecond, &budget)
	if err != nil {
		t.Fatal(err)
	}
	us := func(n int) vtime.Time { return vtime.Time(n) * vtime.Time(vtime.Microsecond) }
	for i, x := range []struct{ now, at int }{{5, 3}, {5, 1}, {6, 2}, {10, 9}, {11, 7}} {
		c.Frame(us(x.now), us(x.at), make1(wire.PSN(i)))
	}
	budget.Left = 10
	c.Frame(us(11), us(10), make1(9))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(&b, pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var psns []byte
	last := int64(-1)
	for {
		data, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		f, err := p.Parse(data)
		if err != nil || !f.CheckICRC() || f.PayloadLen() != 10 {
			t.Fatalf("frame %x: %v", data, err)
		}
		psns = append(psns, '0'+byte(f.PSN()))
		if at := ci.Timestamp.UnixNano(); at < last {
			t.Errorf("time goes from %d to %d", last, at)
		} else {
			last = at
		}
	}
	if string(psns) != "12043" || last != 9000 || budget.Cut != 1 {
		t.Errorf("order %s, last at %d ns, %d cut; want 12043, 9000, 1", psns, last, budget.Cut)
	}
	if i, err := r.Interface(0); err != nil || i.Name != "h0:0" {
		t.Errorf("interface %+v, %v", i, err)
	}
}

// TestQueueLines: a line is written when a queue holds a quarter or 8 KiB more or less than the last line said, and when it
// is empty again; one or two packets that come and go are none.
func TestQueueLines(t *testing.T) {
	var got []int64
	r := NewRecorder("leaf0", nil, func(l *Line) {
		if l.Kind != LineQueue || l.Node != "leaf0" || l.Port != 2 {
			t.Errorf("a line %+v", l)
		}
		got = append(got, l.Bytes)
	})
	for i, bytes := range []int{4178, 0, 4178, 8191, 4178, 8192, 12_000, 0, 4178, 20_000, 12_000, 100_000, 120_000, 125_000, 76_000, 75_000, 100, 0, 0} {
		r.TraceQueue(vtime.Time(i), 2, bytes)
	}
	if want := []int64{8192, 0, 20_000, 100_000, 125_000, 76_000, 100, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
