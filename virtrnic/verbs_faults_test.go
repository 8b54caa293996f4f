// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// faulty makes the wire lose, double, delay and damage frames.
func (p *pair) faulty(r *rand.Rand, bad float64) {
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) (fate faults.Verdict) {
		fate.Drop = r.Float64() < bad
		fate.Twice = !fate.Drop && r.Float64() < bad
		if r.Float64() < bad {
			fate.Delay = vtime.Duration(r.IntN(5000)) * vtime.Nanosecond
			fate.Delay2 = fate.Delay
		}
		if !fate.Drop && r.Float64() < bad {
			p.net.Pool.Damage(f, r.Uint64())
		}
		return fate
	}
}

// startPSN draws a PSN near one of the places where arithmetic could go wrong (promise D4).
func startPSN(r *rand.Rand) wire.PSN {
	return []wire.PSN{0, 1 << 23, 0}[r.IntN(3)].Add(r.IntN(80) - 60)
}

// sweep runs a test for every seed.
func sweep(t *testing.T, test func(t *testing.T, r *rand.Rand) error) {
	for seed := *fromSeed; seed < *fromSeed+*seedCount; seed++ {
		err := test(t, rand.New(rand.NewPCG(seed, 11)))
		if err == nil && t.Failed() {
			err = fmt.Errorf("see above")
		}
		if err != nil {
			t.Fatalf("seed %d: %v\nreplay: go test ./virtrnic -run '^%s$' -from %d -seeds 1", seed, err, t.Name(), seed)
		}
	}
}

// TestRandomReads mixes READs, atomics, SENDs and WRITEs of both sides under faults. Every
// request ends, in order; every byte is right; every atomic was applied once, or, if the
// queue pair gave up on it, at most once; depth and counters hold after every event. Each
// side counts in a word of its own, so the k-th atomic must return k.
func TestRandomReads(t *testing.T) { sweep(t, randomReads) }

type readJob struct {
	wr       SendWR
	src, dst Bytes
	result   Bytes
	order    uint64 // of an atomic among those of its side
}

func randomReads(t *testing.T, r *rand.Rand) error {
	depth := 1 + r.IntN(5)
	p := newPair(t, pairOptions{
		mtu: 256 << r.IntN(5), ackEvery: 1 + r.IntN(6), psn: startPSN(r), timeout: 5, retry: 7, rnr: 7, rdAtomic: uint8(depth),
		delay: vtime.Duration(r.IntN(3000)) * vtime.Nanosecond,
	})
	if r.IntN(4) == 0 {
		p.nic[0].window = uint64(1 + r.IntN(8))
	}
	p.faulty(r, 0.04*r.Float64())
	var jobs [2][]readJob
	var counter [2]Bytes
	var word [2]*MR
	for i := range 2 {
		counter[i], word[i] = p.region(1-i, 8, 0)
		var atomics uint64
		for k := range 1 + r.IntN(12) {
			j := p.readJob(r, i, word[i], &atomics)
			j.wr.WRID = uint64(k)
			if r.IntN(3) == 0 {
				j.wr.Flags |= SendFence
			}
			if j.wr.Opcode == WRSend {
				p.recv(1-i, RecvWR{WRID: 1000})
			}
			jobs[i] = append(jobs[i], j)
		}
		todo := jobs[i]
		at := 0
		for len(todo) > 0 {
			n := 1 + r.IntN(len(todo))
			now := todo[:n]
			todo = todo[n:]
			at += r.IntN(20000)
			p.net.At(vtime.Time(at)*1000, func(vtime.Time) {
				for _, j := range now {
					p.post(i, j.wr)
				}
			})
		}
	}
	broken := p.watch(depth)
	if err := p.net.Run(1 << 20); err != nil {
		return err
	}
	if *broken != nil {
		return *broken
	}
	if p.net.Pool.Live != 0 || p.net.Pool.LiveBlocks != 0 {
		return fmt.Errorf("%d frames and %d payloads left", p.net.Pool.Live, p.net.Pool.LiveBlocks)
	}
	for i := range 2 {
		if err := p.judge(i, jobs[i], counter[i]); err != nil {
			return fmt.Errorf("side %d: %w", i, err)
		}
	}
	return nil
}

// readJob draws a request of side i.
func (p *pair) readJob(r *rand.Rand, i int, word *MR, atomics *uint64) (j readJob) {
	n := r.IntN(9000)
	var sm, dm *MR
	switch r.IntN(4) {
	case 0:
		j.src, sm = p.region(1-i, n, r.Uint64()|1)
		j.dst, dm = p.region(i, n, 0)
		j.wr = SendWR{Opcode: WRRDMARead, RemoteAddr: sm.Addr(), RKey: sm.RKey(), SGE: whole(dm, n)}
		if n > 2 {
			cut := uint32(1 + r.IntN(n-2))
			j.wr.SGL = []SGE{{dm.Addr(), cut, dm.LKey()}, {dm.Addr() + uint64(cut), uint32(n) - cut, dm.LKey()}}
		}
	case 1:
		var rm *MR
		j.result, rm = p.region(i, 8, 0)
		j.order = *atomics
		j.wr = SendWR{Opcode: WRAtomicFetchAdd, RemoteAddr: word.Addr(), RKey: word.RKey(), SGE: whole(rm, 8), SwapAdd: 1}
		if r.IntN(2) == 0 { // from k to k+1 in the other way
			j.wr.Opcode, j.wr.Compare, j.wr.SwapAdd = WRAtomicCmpAndSwp, *atomics, *atomics+1
		}
		*atomics++
	case 2:
		j.src, sm = p.region(i, n, r.Uint64()|1)
		j.dst, dm = p.region(1-i, n, 0)
		j.wr = SendWR{Opcode: WRRDMAWrite, RemoteAddr: dm.Addr(), RKey: dm.RKey(), SGE: whole(sm, n)}
	default:
		j.wr = SendWR{Opcode: WRSend}
	}
	return j
}

// watch checks the invariants after every event.
func (p *pair) watch(depth int) *error {
	broken := new(error)
	p.net.After = func() {
		for i := range 2 {
			if err := p.invariant(i); err != nil && *broken == nil {
				*broken = fmt.Errorf("at %v: %w", p.net.Now, err)
			}
			s, reads, asked := &p.qp[i].sq, 0, 0
			for k := range s.wqes.Len() {
				if s.wqes.At(k).traits&isRead != 0 {
					if reads++; k < int(s.cursor) {
						asked++
					}
				}
			}
			if (reads != int(s.reads) || asked != int(s.asked) || asked > depth || p.qp[i].rq.underway() > depth+2*depth+8) && *broken == nil {
				*broken = fmt.Errorf("at %v: side %d counts %d READs and %d asked, it has %d and %d; depth %d", p.net.Now, i, s.reads, s.asked, reads, asked, depth)
			}
		}
	}
	return broken
}

// judge compares side i's requests with their results.
func (p *pair) judge(i int, jobs []readJob, counter Bytes) error {
	var done []WC
	for _, w := range p.completions(i) {
		if w.WRID < 1000 {
			done = append(done, w)
		}
	}
	if len(done) != len(jobs) || p.qp[i].Outstanding() != 0 {
		return fmt.Errorf("%d of %d requests ended in %v, %d outstanding", len(done), len(jobs), p.qp[i].State(), p.qp[i].Outstanding())
	}
	var sure, most uint64
	for k, j := range jobs {
		w := done[k]
		if w.WRID != uint64(k) {
			return fmt.Errorf("request %d ended in place %d", w.WRID, k)
		}
		atomic := j.result != nil
		if atomic {
			most++
		}
		if w.Status != WCSuccess {
			continue
		}
		if !bytes.Equal(j.src, j.dst) {
			return fmt.Errorf("request %d: other bytes arrived", k)
		}
		if atomic {
			sure++
			if got := binary.LittleEndian.Uint64(j.result); got != j.order {
				return fmt.Errorf("atomic %d returned %d", j.order, got)
			}
		}
	}
	if v := binary.LittleEndian.Uint64(counter); v < sure || v > most {
		return fmt.Errorf("the word counts %d atomics, %d succeeded of %d", v, sure, most)
	}
	return nil
}

// TestRandomUnreliable sends numbered messages by UC and UD under faults. Every send is complete; each
// arrived message is whole, is one of the messages, and without doubling frames arrives at most once
// and in order; the receives complete in the order of posting.
func TestRandomUnreliable(t *testing.T) {
	for _, typ := range []QPType{TypeUC, TypeUD} {
		t.Run([]string{"UC", "UD"}[typ-TypeUC], func(t *testing.T) {
			sweep(t, func(t *testing.T, r *rand.Rand) error { return randomUnreliable(t, r, typ) })
		})
	}
}

func randomUnreliable(t *testing.T, r *rand.Rand, typ QPType) error {
	const messages = 20
	plain := r.IntN(2) == 0 // only loss and damage: order and once can be checked
	p := newPair(t, pairOptions{typ: typ, mtu: 256 << r.IntN(5), psn: startPSN(r)})
	p.faulty(r, 0.1*r.Float64())
	if prev := p.net.Fate; plain {
		p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
			return faults.Verdict{Drop: prev(now, port, f).Drop}
		}
	}
	head := 0
	most := 5000
	var to UDDest
	if typ == TypeUD {
		head, most, to = GRHLen, 4096, p.dest(0)
	}
	lengths := make([]int, messages)
	bufs := make([]Bytes, 3*messages)
	for i := range bufs {
		var m *MR
		bufs[i], m = p.region(1, most+head, 0)
		p.recv(1, RecvWR{WRID: uint64(i), SGE: whole(m, most+head)})
	}
	for i := range messages {
		lengths[i] = r.IntN(most)
		_, m := p.region(0, lengths[i], uint64(i)+1)
		p.post(0, SendWR{WRID: uint64(i), Opcode: WRSendWithImm, Imm: uint32(i), SGE: whole(m, lengths[i]), UD: to})
	}
	p.run()
	if got := p.completions(0); len(got) != messages || got[messages-1].Status != WCSuccess {
		return fmt.Errorf("%d of %d sends completed", len(got), messages)
	}
	last := -1
	for k, w := range p.completions(1) {
		i := int(w.Imm)
		if w.Status != WCSuccess || w.WRID != uint64(k) || i >= messages || int(w.ByteLen) != lengths[i]+head {
			return fmt.Errorf("receive %d: %+v", k, w)
		}
		want := make([]byte, lengths[i])
		prng.Fill(want, uint64(i)+1, 0)
		if !bytes.Equal(bufs[k][head:][:lengths[i]], want) {
			return fmt.Errorf("receive %d holds other bytes than message %d", k, i)
		}
		if plain && i <= last {
			return fmt.Errorf("message %d after %d", i, last)
		}
		last = i
	}
	return nil
}
