// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// slowed has two NICs send each other a message while they are stalled, slowed and paused at random.
// Both arrive whole, nothing is dropped or sent twice, pause frames are obeyed on arrival behind any
// queue, and a repeated command changes nothing.
func slowed(t *testing.T, seed uint64) *pair {
	t.Helper()
	once, again := slowRun(t, seed, false), slowRun(t, seed, true)
	a, b := strings.Split(once.net.Log.String(), "\n"), strings.Split(again.net.Log.String(), "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Errorf("told twice, a NIC does something else:\n%s\n%s", a[i], b[i])
			break
		}
	}
	return again
}

func slowRun(t *testing.T, seed uint64, again bool) *pair {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 21))
	n := 1 + r.IntN(500<<10)
	p := newPair(t, pairOptions{timeout: 16, retry: 7, rnr: 7, log: true, mtu: 1024 << r.IntN(3), ackEvery: 1 + r.IntN(8)})
	instant := func() vtime.Time { return vtime.Time(r.Int64N(int64(400 * us))) }
	var src, dst [2]Bytes
	for i := range 2 {
		var sm, dm *MR
		src[i], sm = p.region(i, n, uint64(i+1))
		dst[i], dm = p.region(i, n, 0)
		p.recv(i, RecvWR{SGE: whole(dm, n)})
		p.post(i, SendWR{Opcode: WRSend, SGE: whole(sm, n)})
		nic := p.nic[i]
		for range r.IntN(4) {
			from := instant()
			p.net.At(from, func(now vtime.Time) { nic.Stall(now, true) })
			p.net.At(from.Add(vtime.Duration(r.IntN(int(50*us)))), func(now vtime.Time) { nic.Stall(now, false) })
		}
		for range r.IntN(4) {
			rate := oneOf(r, 0, 1e9, 5e9, 20e9)
			p.net.At(instant(), func(now vtime.Time) { nic.SetIntake(now, int64(rate)) })
		}
		for range r.IntN(10) {
			p.net.At(instant(), func(now vtime.Time) { nic.SendPause(now, 1<<5, 9) })
		}
		for range 20 {
			if at := instant(); again {
				p.net.At(at, func(now vtime.Time) { nic.Stall(now, nic.intake != nil && nic.intake.stalled) })
			}
		}
	}
	p.watchPauses()
	p.run()
	for i, nic := range p.nic {
		st := nic.Stats()
		if !bytes.Equal(src[i], dst[1-i]) || st.Retransmitted != 0 || slices.ContainsFunc(st.Drops[:], func(k uint64) bool { return k > 0 }) {
			t.Errorf("side %d: wrong bytes, or %d packets sent again, or drops %v", i, st.Retransmitted, st.Drops)
		}
		if got := p.completions(i); len(got) != 2 || got[0].Status != WCSuccess || got[1].Status != WCSuccess {
			t.Errorf("side %d: %+v", i, got)
		}
	}
	return p
}

// watchPauses checks that a pause frame is taken the moment it arrives, and that a slow NIC
// repeats its pause no sooner than it has to.
func (p *pair) watchPauses() {
	const half = vtime.Duration(intakeQuanta * wire.PauseQuantumBits / 2 * 10) // at 100 Gb/s
	var came [2]uint64
	var first [2]vtime.Time // of this pause
	var said [2]int
	p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		if f.Kind() != wire.KindPFC {
			return faults.Verdict{}
		}
		came[1-port]++
		switch h := f.PFC(); {
		case h.Enable == 0:
			p.t.Errorf("side %d sends a pause frame for no class", port)
		case h.Enable>>3&1 == 0:
		case h.Quanta[3] == 0:
			said[port] = 0
		default:
			if said[port]++; said[port] == 1 {
				first[port] = now
			}
			// The first may have waited behind a stall of its NIC, which is shorter than half a pause.
			if k := said[port]; k > 2 && now.Sub(first[port]) < vtime.Duration(k-2)*half {
				p.t.Errorf("side %d says its pause %d times within %v", port, k, now.Sub(first[port]))
			}
		}
		return faults.Verdict{}
	}
	p.net.After = func() {
		for i, nic := range p.nic {
			if got := nic.Stats().PausesReceived; got != came[i] {
				p.t.Errorf("at %v side %d has taken %d pause frames of %d that came", p.net.Now, i, got, came[i])
				came[i] = got
			}
			if in := nic.intake; in != nil {
				bytes := 0
				for k := range in.fifo.Len() {
					bytes += in.fifo.At(k).size
				}
				if bytes != in.bytes || (in.xoff != 0) != (in.refresh != vtime.Never) {
					p.t.Errorf("at %v side %d counts %d of %d bytes that wait, pauses %#x and says so again at %v", p.net.Now, i, in.bytes, bytes, in.xoff, in.refresh)
				}
			}
		}
	}
}

// copied copies within and between memories of all kinds at random, sometimes nothing, and compares the
// results with plain copies.
func copied(t *testing.T, r *rand.Rand) {
	t.Helper()
	const size = 64
	real, plain := make(Bytes, size), make([]byte, size)
	origin := NewHashed(size)
	origin.Reset(7, true)
	for range 12 {
		from := make(Bytes, size)
		for i := range from {
			from[i] = byte(r.Uint32())
		}
		src := oneOf[Memory](r, from, Phantom(size), origin, real)
		n := oneOf(r, 0, size, r.IntN(size+1))
		off, to := uint64(r.IntN(size-n+1)), uint64(r.IntN(size-n+1))
		part := make([]byte, n)
		src.read(part, off)
		Copy(real, to, src, off, n)
		Copy(Phantom(size), to, src, off, n)
		if copy(plain[to:], part); !bytes.Equal(real, plain) {
			t.Errorf("%d bytes of %T from %d to %d: % x, want % x", n, src, off, to, real, plain)
		}
	}
	// A message put together of pieces in any order, among them empty ones.
	cuts := []int{0, size, r.IntN(size), r.IntN(size), r.IntN(size)}
	slices.Sort(cuts)
	h := NewHashed(size)
	h.Reset(1, false)
	for _, k := range r.Perm(len(cuts) - 1) {
		Copy(h, uint64(cuts[k]), real, uint64(cuts[k]), cuts[k+1]-cuts[k])
		Copy(h, uint64(r.IntN(size+1)), real, size, 0)
	}
	if sum, ok := h.Sum(size); !ok || sum != wire.HashBytes(plain) {
		t.Errorf("pieces %v: sum %x, complete %v", cuts, sum, ok)
	}
}

// gathered sends messages over UC to a group whose members are queue pairs of both unreliable services,
// connected to the sender, to the group or to a third host, ready or not. Each member gets its
// messages, and no other packets.
func gathered(t *testing.T, r *rand.Rand, log bool) *pair {
	t.Helper()
	const group, stranger = 0xefff_c005, 10<<24 | 77
	p := newPair(t, pairOptions{typ: TypeUC, log: log, headers: log})
	p.redirect(group, wire.QPNMulticast)
	messages := 1 + r.IntN(3)
	type member struct {
		q     *QP
		takes bool
		dst   []Bytes
	}
	var members []member
	takers := 0
	for range 1 + r.IntN(6) {
		q, err := p.nic[1].CreateQP(QPInit{Type: oneOf(r, TypeUC, TypeUC, TypeUC, TypeUD), PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1], MaxRecvWR: 8})
		if err != nil {
			t.Fatal(err)
		}
		m := member{q: q}
		if q.service == wire.UD {
			x := &pair{t: t, net: p.net, nic: p.nic, qp: [2]*QP{nil, q}}
			x.ready(1, pairOptions{})
			err = p.nic[1].AttachMcast(q, group)
		} else {
			peer, last := oneOf(r, p.nic[0].ip, group, stranger), oneOf(r, StateRTS, StateRTS, StateRTR, StateInit)
			p.connectUC(1, q, peer, wire.QPN(9), last)
			m.takes = peer != stranger && last != StateInit
			err = p.nic[1].AttachUC(q, group)
		}
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			dst, dm := p.region(1, 3000+GRHLen, 0)
			m.dst = append(m.dst, dst)
			if err := p.nic[1].PostRecv(0, q, RecvWR{SGE: whole(dm, len(dst))}); err != nil {
				t.Fatal(err)
			}
		}
		if m.takes {
			takers++
		}
		members = append(members, m)
	}
	packets := 0
	var sent []Bytes
	for i := range messages {
		n := r.IntN(3000)
		src, sm := p.region(0, max(1, n), uint64(i+1))
		p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, n)})
		packets += max(1, (n+1023)/1024)
		sent = append(sent, src[:n])
	}
	p.run()
	for i, m := range members {
		for k, dst := range m.dst {
			want := make(Bytes, len(dst))
			if m.takes {
				copy(want, sent[k])
			}
			if !bytes.Equal(dst, want) {
				t.Errorf("member %d, %v in %v, takes %v: its buffer %d holds something else", i, m.q.service, m.q.state, m.takes, k)
			}
		}
	}
	if got := len(p.completions(1)); got != takers*messages {
		t.Errorf("%d messages came to %d members, want %d to each", got, takers, messages)
	}
	var dropped uint64
	for _, k := range p.nic[1].Stats().Drops {
		dropped += k
	}
	if want := uint64(packets); takers > 0 && dropped != 0 || takers == 0 && dropped != want {
		t.Errorf("%d packets dropped of %d, with %d members who take them", dropped, packets, takers)
	}
	return p
}

// repeated reads and adds at the other side while each request comes again, as it was, at
// any time and any number of times: before it is answered, while its answer waits behind
// others, and long after. What was read is right, and each atomic was done once, in order.
func repeated(t *testing.T, r *rand.Rand, log bool) *pair {
	t.Helper()
	p := newPair(t, pairOptions{rdAtomic: uint8(1 + r.IntN(16)), timeout: 16, retry: 7, mtu: 256 << r.IntN(5), psn: wire.PSN(0).Add(-r.IntN(20)), log: log, headers: log})
	again := 30 + r.IntN(60)
	p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
		for ; port == 0 && again > 0 && r.IntN(3) > 0; again-- {
			f := p.net.Pool.Clone(f)
			p.net.At(now.Add(vtime.Duration(1+r.IntN(int(10*us)))), func(vtime.Time) { p.inject(f) })
		}
		return faults.Verdict{}
	}
	word, wm := p.region(1, 8, 0)
	results, rm := p.region(0, 8*64, 0)
	type job struct{ src, dst Bytes }
	var reads []job
	adds := uint64(0)
	for k := range 6 + r.IntN(20) {
		if r.IntN(2) == 0 {
			p.post(0, add(uint64(k), SGE{Addr: rm.Addr() + 8*adds, Length: 8, LKey: rm.LKey()}, wm, 1))
			adds++
			continue
		}
		n := r.IntN(20000)
		src, sm := p.region(1, max(1, n), uint64(k+1))
		dst, dm := p.region(0, max(1, n), 0)
		p.post(0, read(uint64(k), dm, sm, n))
		reads = append(reads, job{src[:n], dst[:n]})
	}
	p.run()
	for k, w := range p.completions(0) {
		if w.Status != WCSuccess || w.WRID != uint64(k) {
			t.Errorf("request %d: %+v", k, w)
		}
	}
	for k, j := range reads {
		if !bytes.Equal(j.src, j.dst) {
			t.Errorf("READ %d brought other bytes", k)
		}
	}
	for k := range adds {
		if got := binary.LittleEndian.Uint64(results[8*k:]); got != k {
			t.Errorf("atomic %d found %d", k, got)
		}
	}
	if got := binary.LittleEndian.Uint64(word); got != adds || p.nic[1].Stats().AtomicsExecuted != adds {
		t.Errorf("the word counts %d of %d atomics, %d were done", got, adds, p.nic[1].Stats().AtomicsExecuted)
	}
	return p
}

// piled has a NIC send pause frames of any classes faster than its link takes them: they wait in a
// bounded number, and the last state of each class is the last that the peer receives.
func piled(t *testing.T, r *rand.Rand) {
	p := newPair(t, pairOptions{})
	var said, heard [8]uint16
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
		if f.Kind() == wire.KindPFC {
			h := f.PFC()
			for i, q := range h.Quanta {
				if h.Enable>>i&1 != 0 {
					heard[i] = q
				}
			}
		}
		return fate
	}
	one := uint8(1 << r.IntN(8))
	for range r.IntN(2 * pausesMax) {
		classes, quanta := one|oneOf(r, 0, one, uint8(r.Uint32())), uint16(r.IntN(10))
		for i := range said {
			if classes>>i&1 != 0 {
				said[i] = quanta
			}
		}
		p.nic[0].SendPause(p.net.Now, classes, quanta)
	}
	if k := p.nic[0].tx.pauses.Len(); k > pausesMax {
		t.Errorf("%d pause frames wait", k)
	}
	p.run()
	if said != heard {
		t.Errorf("the peer has last heard %v, and what was said is %v", heard, said)
	}
}
