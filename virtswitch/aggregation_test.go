// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// newAggregation returns the aggregation of a group with a source, path 0, and members.
func newAggregation(rules Rules, members int, start wire.PSN) *aggregation {
	a := &aggregation{rules: rules}
	for range members + 1 {
		a.addPath()
	}
	a.open(start)
	return a
}

func (d feedback) String() string {
	var s []string
	if d.ack {
		s = append(s, fmt.Sprintf("ACK %d", d.ackPSN))
	}
	if d.nak {
		s = append(s, fmt.Sprintf("%v %d", d.syndrome, d.nakPSN))
	}
	return strings.Join(s, ", ")
}

// apply runs a step such as "1 ack 7", "2 nak 9", "2 rnr 9", "0 data 7" or "3 source 8".
func (a *aggregation) apply(t *testing.T, step string) string {
	t.Helper()
	var path int
	var what string
	var psn wire.PSN
	if _, err := fmt.Sscan(step, &path, &what, &psn); err != nil {
		t.Fatalf("step %q: %v", step, err)
	}
	switch what {
	case "ack":
		return a.onAck(path, psn, uint32(path)).String()
	case "nak":
		return a.onNak(path, psn, wire.SyndromePSNSequence, uint32(path)).String()
	case "rnr":
		return a.onNak(path, psn, wire.SyndromeRNR, uint32(path)).String()
	case "data":
		a.onData(psn)
	case "selective":
		a.onSelective(path, psn != 0)
	case "source":
		if !a.onSource(path, psn) {
			return "refused"
		}
	default:
		t.Fatalf("step %q", step)
	}
	return ""
}

// TestAggregationSteps: the feedback of a group with three members to its source, packet by packet.
// Members have everything before PSN 5 at first (CON-3).
func TestAggregationSteps(t *testing.T) {
	fixed := RulesFixed()
	for _, c := range []struct {
		name  string
		rules Rules
		steps string // "step: feedback"
	}{
		{"the minimum", fixed, "1 ack 9: | 3 ack 6: | 2 ack 7: ACK 6 | 3 ack 6: | 3 ack 12: ACK 7 | 2 ack 9: ACK 9"},
		{"an old acknowledgement", fixed, "1 ack 9: | 2 ack 9: | 3 ack 9: ACK 9 | 1 ack 6: | 1 ack 9:"},
		{"a NAK waits for what is before it", fixed, "1 nak 7: | 2 ack 9: | 3 ack 5: ACK 5 | 3 ack 9: ACK 6, NAK(sequence) 7"},
		{"the smallest NAK wins", fixed, "1 nak 9: | 2 nak 7: | 3 nak 8: ACK 6, NAK(sequence) 7 | 2 ack 9: ACK 7"},
		{"an RNR NAK wins", fixed, "1 nak 7: | 2 rnr 7: | 3 nak 7: ACK 6, RNR 7"},
		{"one NAK a gap", fixed, "1 nak 5: NAK(sequence) 5 | 2 nak 5: | 0 data 6: | 3 nak 5: | 0 data 5: | 3 nak 5: NAK(sequence) 5"},
		{"a NAK that all have passed", fixed, "1 nak 7: | 1 ack 9: | 2 ack 9: | 3 ack 9: ACK 9 | 1 nak 12: | 2 ack 12: | 3 ack 12: ACK 11, NAK(sequence) 12"},
		{"another source", fixed, "1 ack 6: | 2 ack 6: | 3 ack 6: ACK 6 | 1 source 6: refused | 1 source 7: | 2 ack 8: | 3 ack 8: | 0 ack 8: ACK 8"},
		{"NAKs of the old source's time", fixed, "1 nak 7: | 2 source 6: | 0 ack 9: | 1 ack 6: | 3 ack 6: ACK 6"},
		{"every NAK again", Rules{NakGenerates: true, ForgetNak: true}, "1 nak 5: NAK(sequence) 5 | 2 nak 5: NAK(sequence) 5"},
		{"a NAK alone says nothing", Rules{ForgetNak: true}, "1 nak 5: | 1 ack 6: NAK(sequence) 5"},
		{"equal ones trigger", Rules{TriggerOnEqual: true, EmitTies: true}, "1 ack 6: ACK 4 | 2 ack 6: ACK 4 | 3 ack 6: ACK 6 | 1 ack 6: ACK 6"},
		{"ties are sent", Rules{EmitTies: true}, "1 ack 6: ACK 4 | 2 ack 6: ACK 4 | 3 ack 6: ACK 6 | 1 ack 6:"},
		{"selective once", fixed, "1 selective 1: | 2 selective 1: | 3 selective 1: | 1 nak 5: NAK(sequence) 5 | 2 nak 9: | 3 ack 12: | 1 nak 5: | 1 ack 12: ACK 8, NAK(sequence) 9"},
		{"not selective", fixed, "1 selective 1: | 2 selective 1: | 1 nak 5: NAK(sequence) 5 | 2 nak 9: | 3 ack 12: | 1 nak 5: | 1 ack 12: ACK 8, NAK(sequence) 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAggregation(c.rules, 3, 5)
			for _, s := range strings.Split(c.steps, " | ") {
				step, want, _ := strings.Cut(s, ":")
				if got := a.apply(t, step); got != strings.TrimSpace(want) {
					t.Errorf("%s: the source is told %q, want %q", step, got, strings.TrimSpace(want))
				}
			}
		})
	}
}

// memberModel is one path as modelAggregation knows it.
type memberModel struct {
	acked     int64 // everything up to it
	lastNak   int64 // 0: none, or it has been repaired
	selective bool
}

// modelAggregation is an aggregation with RulesFixed that is written plainly: PSNs do not
// wrap, the minimum is looked for each time, and nothing is remembered of it.
type modelAggregation struct {
	path        []memberModel
	source      int
	told        int64 // the last ACK to the source
	pending     int64 // 0: none
	syndrome    wire.Syndrome
	outstanding int64 // 0: none
}

// smallest returns the first member that has acknowledged least.
func (m *modelAggregation) smallest() int {
	at := -1
	for i, p := range m.path {
		if i != m.source && (at < 0 || p.acked < m.path[at].acked) {
			at = i
		}
	}
	return at
}

// selective reports whether all members keep packets out of order.
func (m *modelAggregation) selective() bool {
	for i, p := range m.path {
		if i != m.source && !p.selective {
			return false
		}
	}
	return true
}

// ack notes that a path has everything up to psn, and reports whether that is news of the
// path that held the minimum.
func (m *modelAggregation) ack(path int, psn int64) bool {
	p := &m.path[path]
	if psn <= p.acked {
		return false
	}
	least := m.smallest() == path
	p.acked = psn
	if p.lastNak <= psn {
		p.lastNak = 0
	}
	return least
}

// nak is ack for a NAK: news is also the smallest one.
func (m *modelAggregation) nak(path int, psn int64, syndrome wire.Syndrome) bool {
	if syndrome == wire.SyndromePSNSequence {
		m.path[path].lastNak = psn
	}
	news := m.ack(path, psn-1)
	if m.pending != 0 && psn > m.pending || psn == m.outstanding {
		return news
	}
	if psn != m.pending || syndrome.IsRNR() {
		m.syndrome = syndrome
	}
	m.pending = psn
	return true
}

// say returns the feedback to the source after an input.
func (m *modelAggregation) say() (ack, nak int64) {
	least := m.smallest()
	min := m.path[least].acked
	if min > m.told {
		m.told, ack = min, min
	}
	if m.selective() && m.path[least].lastNak == min+1 && m.outstanding != min+1 {
		m.pending, m.syndrome = min+1, wire.SyndromePSNSequence
	}
	switch {
	case m.pending == min+1:
		nak, m.outstanding, m.pending = m.pending, m.pending, 0
	case m.pending <= min:
		m.pending = 0
	}
	return ack, nak
}

// turn makes a path the source.
func (m *modelAggregation) turn(path int, psn int64) bool {
	if psn <= m.told {
		return false
	}
	m.path[m.source].acked = m.told
	m.source, m.pending, m.outstanding = path, 0, 0
	return true
}

// TestAggregationModel: with RulesFixed any packets have the effect they have on the
// plain model, also where PSNs wrap, and the invariants of the fields hold after each.
func TestAggregationModel(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0xa66))
		members := 1 + r.IntN(5)
		base := int64(1<<24)*10 - int64(r.IntN(60)) // wraps soon
		psn := func(x int64) wire.PSN { return wire.PSN(x) & wire.PSNMask }
		a := newAggregation(RulesFixed(), members, psn(base))
		m := &modelAggregation{path: make([]memberModel, members+1), told: base - 1}
		for i := range m.path {
			m.path[i].acked = base - 1
		}
		acks, naks := 0, 0
		for step := range 400 {
			path, x := r.IntN(members+1), m.told+int64(r.IntN(8))-2
			var got feedback
			var news bool
			what := "data"
			switch k := r.IntN(20); {
			case k == 0:
				what = "source"
				if path == m.source {
					continue
				}
				if ok, want := a.onSource(path, psn(x)), m.turn(path, x); ok != want {
					t.Fatalf("seed %d, step %d: path %d becomes the source at %d: %v, want %v", seed, step, path, x, ok, want)
				}
			case k < 4 || path == m.source:
				a.onData(psn(x))
				if x <= m.outstanding {
					m.outstanding = 0
				}
			case k < 6:
				what = "selective"
				m.path[path].selective = r.IntN(4) > 0
				a.onSelective(path, m.path[path].selective)
			case k < 12:
				what = "nak"
				syndrome := oneOf(r, wire.SyndromePSNSequence, wire.SyndromePSNSequence, wire.SyndromeRNR)
				got, news = a.onNak(path, psn(x), syndrome, uint32(x)), m.nak(path, x, syndrome)
			default:
				what = "ack"
				got, news = a.onAck(path, psn(x), uint32(x)), m.ack(path, x)
			}
			var want feedback
			if news {
				ack, nak := m.say()
				want = feedback{ack: ack > 0, nak: nak > 0, ackPSN: psn(ack), nakPSN: psn(nak), syndrome: m.syndrome}
			}
			if got.String() != want.String() {
				t.Fatalf("seed %d, step %d: path %d, %s %d: the source is told %q, want %q", seed, step, path, what, x, got, want)
			}
			if got.ack {
				acks++
			}
			if got.nak {
				naks++
			}
			checkAggregation(t, a, m, psn)
		}
		if acks < 5 || naks < 2 {
			t.Errorf("seed %d: only %d ACKs and %d NAKs", seed, acks, naks)
		}
	}
}

// checkAggregation compares an aggregation with the model, and checks the invariants stated at its
// fields.
func checkAggregation(t *testing.T, a *aggregation, m *modelAggregation, psn func(int64) wire.PSN) {
	t.Helper()
	min := m.smallest()
	switch {
	case a.aggAckPSN != psn(m.told) || m.told != m.path[min].acked:
		t.Fatalf("aggAckPSN is %d; the minimum is %d and the source was told %d", a.aggAckPSN, psn(m.path[min].acked), psn(m.told))
	case a.minPath != min:
		t.Fatalf("minPath is %d, but %d has acknowledged least", a.minPath, min)
	case a.nakPending != (m.pending != 0) || a.nakPending && a.pendingNakPSN != psn(m.pending):
		t.Fatalf("pendingNakPSN is %d (%v), want %d", a.pendingNakPSN, a.nakPending, psn(m.pending))
	case a.nakPending && !a.pendingNakPSN.After(a.aggAckPSN.Add(1)):
		t.Fatalf("NAK %d is pending although everything up to %d is acknowledged", a.pendingNakPSN, a.aggAckPSN)
	case a.nakOutstanding != (m.outstanding != 0) || a.nakOutstanding && a.sentNakPSN != psn(m.outstanding):
		t.Fatalf("sentNakPSN is %d (%v), want %d", a.sentNakPSN, a.nakOutstanding, psn(m.outstanding))
	}
	for i, p := range m.path {
		if a.ackPSN[i] != psn(p.acked) || a.report[i].repairPending != (p.lastNak != 0) {
			t.Fatalf("path %d has acknowledged %d and waits for a repair: %v, want %d and %v", i, a.ackPSN[i], a.report[i].repairPending, psn(p.acked), p.lastNak != 0)
		}
	}
}

// TestAggregationPromise: whatever the rules, ACK(x) means that every member has all up to
// x, NAK(e) that every member has all before e, and a fatal NAK likewise (CON-17).
func TestAggregationPromise(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 0xa67))
		bit := func() bool { return r.IntN(2) == 0 }
		rules := Rules{
			FilterRetransmits: bit(), NakGenerates: bit(), TriggerOnEqual: bit(), EmitTies: bit(), ForgetNak: bit(),
			ForgetStaleNak: bit(), HoldRepeatedNak: bit(), ResyncOnSwitch: bit(),
		}
		a := newAggregation(rules, 3, 100)
		has := []wire.PSN{99, 99, 99, 99} // PSNs that each path has, its own included once it was the source
		for step := range 300 {
			path, x := r.IntN(4), has[r.IntN(4)].Add(r.IntN(6)-2)
			var d feedback
			switch k := r.IntN(16); {
			case k == 0 && path != a.ackOut:
				for i := range has { // a source begins when all have the earlier packets
					has[i] = max(has[0], has[1], has[2], has[3])
					if i != a.ackOut {
						a.onAck(i, has[i], 0)
					}
				}
				a.onSource(path, has[0].Add(1))
				continue
			case path == a.ackOut:
				a.onData(x)
				continue
			case k < 7:
				has[path] = max(has[path], x.Add(-1))
				d = a.onNak(path, x, wire.SyndromePSNSequence, 0)
			default:
				has[path] = max(has[path], x)
				d = a.onAck(path, x, 0)
			}
			for i, last := range has {
				if i == a.ackOut {
					continue
				}
				if d.ack && d.ackPSN > last || d.nak && d.nakPSN.Add(-1) > last || a.onFatal(x).Add(-1) > last {
					t.Fatalf("seed %d, step %d, %+v: the source is told %v, or fatally %d, but path %d has %d only", seed, step, rules, d, a.onFatal(x), i, last)
				}
				if rules.FilterRetransmits && a.filters(i, last.Add(1)) {
					t.Fatalf("seed %d, step %d: packet %d is kept from path %d, which has %d only", seed, step, last.Add(1), i, last)
				}
			}
		}
	}
}
