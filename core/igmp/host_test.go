// SPDX-License-Identifier: Apache-2.0

package igmp

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// wireTap records the packets that a host sends, and those that it delivers.
type wireTap struct {
	pool wire.Pool
	sent []string
	next int
}

func (w *wireTap) SendFrame(_ vtime.Time, f *wire.Frame) {
	m, _, err := f.Membership(nil)
	s := fmt.Sprint(err)
	if err == nil {
		s = ""
		for r, ok := m.Next(); ok; r, ok = m.Next() {
			s += fmt.Sprintf("%d:%v ", r.Type, wire.AddrOf(r.Group))
		}
	}
	w.sent = append(w.sent, s)
	w.pool.Put(f)
}

func (w *wireTap) HandleFrame(_ vtime.Time, f *wire.Frame) { w.next++; w.pool.Put(f) }
func (w *wireTap) HandleTimeout(vtime.Time)                { w.next++ }
func (w *wireTap) NextTimeout() (vtime.Time, bool)         { return 77, true }

// TestHost: the first queue pair of a group has it reported, the last has it left, twice each; queries are answered with the
// joined groups, also with more groups than one report holds; a restart sends nothing.
func TestHost(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		w := &wireTap{pool: wire.Pool{Poison: true}}
		who := wire.Reporter{IP: 0x0a000001, IPv6: ipv6}
		h := New(Config{Reporter: who, Pool: &w.pool, Sender: w, Next: w})
		expect := func(what string, want ...string) {
			t.Helper()
			if !slices.Equal(w.sent, want) {
				t.Errorf("IPv6 %v, %s: sent %q, want %q", ipv6, what, w.sent, want)
			}
			w.sent = nil
		}
		const a, b = 0xe1000001, 0xe1000002
		h.Join(0, b)
		expect("join", "4:225.0.0.2 ", "4:225.0.0.2 ")
		h.Join(0, b)
		h.Leave(0, b)
		h.Leave(0, a)
		expect("another queue pair, and a group that is not joined")
		h.Join(0, a)
		expect("another group", "4:225.0.0.1 ", "4:225.0.0.1 ")
		h.HandleFrame(0, who.Query(&w.pool))
		expect("query", "2:225.0.0.1 2:225.0.0.2 ")
		h.HandleFrame(0, who.Report(&w.pool, []wire.GroupRecord{{Type: wire.ModeIsExclude, Group: a}}))
		other := wire.Reporter{IP: 0x0a000001, IPv6: !ipv6}
		h.HandleFrame(0, other.Query(&w.pool))
		expect("report of another host, and query of the other family")
		h.LinkUp(0)
		expect("link", "2:225.0.0.1 2:225.0.0.2 ")
		h.Leave(0, b)
		expect("leave", "3:225.0.0.2 ", "3:225.0.0.2 ")
		for i := range uint32(2 * wire.GroupRecordsMax) {
			h.Join(0, 0xe2000000+i)
		}
		w.sent = nil
		h.HandleFrame(0, who.Query(&w.pool))
		if len(w.sent) != 3 {
			t.Errorf("%d reports of %d groups", len(w.sent), len(h.Groups()))
		}
		w.sent = nil
		h.Restart()
		h.HandleFrame(0, who.Query(&w.pool))
		expect("restart")
		f, err := w.pool.Parse(make([]byte, 60))
		if err != nil {
			t.Fatal(err)
		}
		h.HandleFrame(0, f)
		h.HandleTimeout(0)
		if at, armed := h.NextTimeout(); w.next != 2 || at != 77 || !armed {
			t.Errorf("the next stack got %d of 2 calls", w.next)
		}
		if s := h.Stats(); s.Queries != 3 || s.Ignored != 2 || w.pool.Live != 0 {
			t.Errorf("%+v, %d frames live", s, w.pool.Live)
		}
	}
}
