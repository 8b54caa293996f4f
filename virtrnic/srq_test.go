// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestRandomSRQ: two queue pairs take their messages from one queue under faults, while buffers and limits are
// given at random times. A buffer holds one message at most; none is lost; each queue pair's messages arrive
// whole and in order; a limit raises one event, and not before fewer buffers are left.
func TestRandomSRQ(t *testing.T) { sweep(t, randomSRQ) }

// srqWatch compares a shared queue with the operations on it, after each event.
type srqWatch struct {
	s      *SRQ
	pairs  [2]*pair
	posted int // buffers
	limit  int // armed; 0: none
	taken  int // buffers, when the limit was armed
	told   int
	err    error
}

// used returns the number of buffers that have left the queue: those that completed, and those of messages under
// way.
func (w *srqWatch) used() int {
	n := w.pairs[0].cq[1].ring.Len()
	for _, p := range w.pairs {
		if p.qp[1].rq.hasWR {
			n++
		}
	}
	return n
}

func (w *srqWatch) check() error {
	for _, p := range w.pairs {
		for i := range 2 {
			if err := p.invariant(i); err != nil {
				return err
			}
		}
	}
	n, used := w.s.queue.wqes.Len(), w.used()
	if n+used != w.posted {
		return fmt.Errorf("of %d buffers %d wait and %d are used", w.posted, n, used)
	}
	for {
		e, ok := w.s.nic.GetAsyncEvent()
		if !ok {
			break
		}
		if e.Type != EventSRQLimit {
			continue
		}
		if w.limit == 0 || n >= w.limit || used == w.taken {
			return fmt.Errorf("the limit of %d is told of: %d wait, %d have been taken since", w.limit, n, used-w.taken)
		}
		w.limit = 0
		w.told++
	}
	if w.limit > 0 && used > w.taken && n < w.limit {
		return fmt.Errorf("the limit of %d is not told of: %d wait", w.limit, n)
	}
	if _, limit := w.s.nic.QuerySRQ(w.s); limit != w.limit {
		return fmt.Errorf("the limit is %d, not %d", limit, w.limit)
	}
	return nil
}

func randomSRQ(t *testing.T, r *rand.Rand) error {
	const messages, most = 10, 5000
	depth := 1 + r.IntN(40)
	a, b, s := sharedOf(t, pairOptions{
		mtu: 256 << r.IntN(5), ackEvery: 1 + r.IntN(6), psn: startPSN(r), timeout: 5, retry: 7, rnr: 7, delay: vtime.Duration(1+r.IntN(3000)) * vtime.Nanosecond,
	}, depth)
	a.faulty(r, 0.04*r.Float64())
	w := &srqWatch{s: s, pairs: [2]*pair{a, b}}
	var lengths [2][messages]int
	seed := func(x, k int) uint64 { return uint64(x*messages + k + 1) }
	for x, p := range w.pairs {
		at := 0
		for k := range messages {
			at += r.IntN(8_000_000)
			lengths[x][k] = r.IntN(most)
			_, m := p.region(0, lengths[x][k], seed(x, k))
			wr := SendWR{WRID: uint64(k), Opcode: WRSendWithImm, Imm: uint32(k), SGE: whole(m, lengths[x][k])}
			a.net.At(vtime.Time(at), func(vtime.Time) {
				_ = p.nic[0].PostSend(a.net.Now, p.qp[0], wr) // in ERR it is flushed
			})
		}
	}
	var bufs []Bytes
	for at := 0; len(bufs) < 2*messages+4; at += 1 + r.IntN(10_000_000) {
		bufs = append(bufs, nil)
		i := len(bufs) - 1
		var m *MR
		bufs[i], m = a.region(1, most, 0)
		var give func(now vtime.Time)
		give = func(now vtime.Time) {
			cut := 1 + r.Uint32N(most-1)
			if a.nic[1].PostSRQRecv(s, RecvWR{WRID: uint64(i), SGL: []SGE{{m.Addr(), cut, m.LKey()}, {m.Addr() + uint64(cut), most - cut, m.LKey()}}}) == nil {
				w.posted++
			} else if w.pairs[0].qp[0].Outstanding()+w.pairs[1].qp[0].Outstanding() > 0 { // the queue is full, and messages are under way
				a.net.At(now.Add(10*vtime.Microsecond), give)
			}
			if limit := r.IntN(depth + 1); r.IntN(4) == 0 && a.nic[1].ModifySRQ(s, limit) == nil {
				w.limit, w.taken = limit, w.used()
			}
		}
		a.net.At(vtime.Time(at), give)
	}
	a.net.After = func() {
		if err := w.check(); err != nil && w.err == nil {
			w.err = fmt.Errorf("at %v: %w", a.net.Now, err)
		}
	}
	if err := a.net.Run(1 << 20); err != nil {
		return err
	}
	if w.err != nil {
		return w.err
	}
	return w.judge(bufs, func(x, k int) []byte {
		want := make([]byte, lengths[x][k])
		prng.Fill(want, seed(x, k), 0)
		return want
	})
}

// judge checks the arrived messages: message k of pair x is message(x, k).
func (w *srqWatch) judge(bufs []Bytes, message func(x, k int) []byte) error {
	a := w.pairs[0]
	if a.net.Pool.Live != 0 || a.net.Pool.LiveBlocks != 0 {
		return fmt.Errorf("%d frames and %d payloads left", a.net.Pool.Live, a.net.Pool.LiveBlocks)
	}
	var next, sure [2]int
	for _, c := range a.completions(0) {
		x := 0
		if c.QPN == w.pairs[1].qp[0].Num() {
			x = 1
		}
		if c.Status == WCSuccess {
			sure[x]++
		}
	}
	once := map[uint64]bool{}
	for _, c := range a.completions(1) {
		if c.Status != WCSuccess {
			return fmt.Errorf("a receive ends with %v", c.Status)
		}
		x := 0
		if c.QPN == w.pairs[1].qp[1].Num() {
			x = 1
		}
		k := next[x]
		next[x]++
		if once[c.WRID] || int(c.Imm) != k {
			return fmt.Errorf("message %d of pair %d comes in place %d, in buffer %d (used before: %v)", c.Imm, x, k, c.WRID, once[c.WRID])
		}
		once[c.WRID] = true
		if want := message(x, k); int(c.ByteLen) != len(want) || !bytes.Equal(bufs[c.WRID][:len(want)], want) {
			return fmt.Errorf("message %d of pair %d: other bytes arrived", k, x)
		}
	}
	for x := range 2 {
		if next[x] < sure[x] {
			return fmt.Errorf("pair %d: %d messages succeeded, %d came", x, sure[x], next[x])
		}
	}
	return nil
}
