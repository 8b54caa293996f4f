// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// traffic is a seeded list of requests of at least that many packets in all, SEND and WRITE with and
// without immediate data; each WRITE has a range of memory of its own.
func traffic(rng *rand.Rand, packets, mtu int, va uint64, rkey uint32, memory []byte) (all []Request) {
	at := 0
	for packets > 0 {
		r := Request{Data: make([]byte, [...]int{0, 1, mtu - 1, mtu, mtu + 1, 2 * mtu, rng.IntN(40 * mtu)}[rng.IntN(7)]), HasImm: rng.IntN(2) == 0}
		for i := range r.Data {
			r.Data[i] = byte(rng.Uint32())
		}
		if r.HasImm {
			r.Imm = rng.Uint32()
		}
		if rng.IntN(2) == 0 && at+len(r.Data) <= len(memory) {
			r.Write, r.VA, r.RKey = true, va+uint64(at), rkey
			copy(memory[at:], r.Data)
			at += len(r.Data) + rng.IntN(3)
		}
		all = append(all, r)
		packets -= max(1, (len(r.Data)+mtu-1)/mtu)
	}
	return all
}

// converse sends n packets or more each way at the same time and compares all bytes.
func converse(t *testing.T, seed uint64, a, b *Peer, n int) {
	t.Helper()
	var group sync.WaitGroup
	oneWay := func(seed uint64, from, to *Peer) {
		memory := make([]byte, len(to.cfg.Memory))
		all := traffic(rand.New(rand.NewPCG(seed, 1)), n, from.cfg.MTU, to.cfg.VA, to.cfg.RKey, memory)
		to.PostRecv(len(all))
		group.Go(func() {
			const depth = 8 // requests under way
			var under []*Pending
			for i, r := range all {
				under = append(under, from.Post(r))
				for len(under) == depth || i == len(all)-1 && len(under) > 0 {
					if err := under[0].Wait(t.Context()); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					under = under[1:]
				}
			}
		})
		group.Go(func() {
			for i, r := range all {
				if r.Write && !r.HasImm {
					continue
				}
				m, err := to.Recv(t.Context())
				if err != nil {
					t.Errorf("seed %d: message %d: %v", seed, i, err)
					return
				}
				if m.Write != r.Write || !r.Write && !bytes.Equal(m.Data, r.Data) || m.HasImm != r.HasImm || m.Imm != r.Imm || int(m.Length) != len(r.Data) {
					t.Errorf("seed %d: message %d is not what was sent", seed, i)
				}
			}
			if err := to.WaitMessages(t.Context(), uint64(len(all))); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			got := make([]byte, len(memory))
			if to.ReadMemory(got, to.cfg.VA) != len(got) || !bytes.Equal(got, memory) {
				t.Errorf("seed %d: memory is not what was written", seed)
			}
		})
	}
	oneWay(seed, a, b)
	oneWay(seed+1000, b, a)
	group.Wait()
}

func (p *Peer) queued() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.req.end
}

// TestLossFree: 4,096 packets each way over a clean wire, across the wrap of the PSN: nothing
// is sent twice or rejected, and every packet that asks for it is acknowledged.
func TestLossFree(t *testing.T) {
	for _, mtu := range []int{256, 1024, 4096, -1024} { // below 0: over IPv6
		synctest.Test(t, func(t *testing.T) {
			ca, cb := configs()
			if mtu < 0 {
				mtu = -mtu
				ca.IP, ca.PeerIP, cb.IP, cb.PeerIP = addrA6, addrB6, addrB6, addrA6
			}
			ca.MTU, cb.MTU = mtu, mtu
			ea, eb := newLink()
			a, b := start(t, ca, ea), start(t, cb, eb)
			converse(t, 1, a, b, 4096)
			synctest.Wait()
			sa, sb := a.Stats(), b.Stats()
			for _, s := range []Stats{sa, sb} {
				if s.Retransmitted+s.Timeouts+s.NaksSent+s.RNRsSent+s.Duplicates+s.OutOfSequence+s.ICRCErrors+s.StaleReceived+s.Ignored != 0 || len(s.Rejects) != 0 {
					t.Errorf("MTU %d: %+v", mtu, s)
				}
			}
			if sa.DataSent < 4096 || sa.DataSent != sb.DataReceived || sb.DataSent != sa.DataReceived || sa.AcksSent != sb.AcksReceived || sb.AcksSent != sa.AcksReceived {
				t.Errorf("MTU %d: a %+v\nb %+v", mtu, sa, sb)
			}
		})
	}
}

// TestFaults: the same over wires that lose, duplicate, reorder and corrupt frames.
func TestFaults(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 99))
			ca, cb := configs()
			ca.Window, cb.Window = 1+rng.IntN(200), 1+rng.IntN(200)
			ea, eb := newLink()
			for i, e := range []*end{ea, eb} {
				p := func() float64 { return float64(rng.IntN(3)) / 100 }
				e.faults = faults{rand.New(rand.NewPCG(seed, uint64(i))), 0.01, p(), p(), p()}
			}
			a, b := start(t, ca, ea), start(t, cb, eb)
			converse(t, seed, a, b, 4096)
			sa, sb := a.Stats(), b.Stats()
			for _, s := range []Stats{sa, sb} {
				if s.Retransmitted == 0 {
					t.Errorf("seed %d: one packet of 100 is lost and none sent again: %+v", seed, s)
				}
			}
			if sa.DataReceived != b.queued() || sb.DataReceived != a.queued() {
				t.Errorf("seed %d: executed %d and %d packets of %d and %d", seed, sa.DataReceived, sb.DataReceived, b.queued(), a.queued())
			}
			for reason := range sa.Rejects {
				if ea.faults.corrupted+eb.faults.corrupted == 0 {
					t.Errorf("seed %d: rejects for %q and nothing is corrupted", seed, reason)
				}
			}
		})
	}
}

// TestClose: calls that wait return, and so do later ones. No goroutine is left, which synctest
// checks.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, _ := configs()
		ea, _ := newLink()
		a := start(t, ca, ea)
		got := make(chan error, 3)
		go func() { got <- a.Send(t.Context(), make([]byte, 10)) }()
		go func() { _, err := a.Recv(t.Context()); got <- err }()
		go func() { got <- a.WaitMessages(t.Context(), 1) }()
		synctest.Wait()
		for range 2 {
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		for range 3 {
			if err := <-got; !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		if err := a.Send(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestPortFails: an endpoint whose port ends reports it and stops.
func TestPortFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, _ := configs()
		ea, _ := newLink()
		a := start(t, ca, ea)
		ea.Close()
		if err := a.Send(t.Context(), nil); err == nil || errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
}

// TestGivesUp: no ARP answer, no acknowledgment, no receive buffer, a context that ends.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := configs()
		ea, _ := newLink()
		a := start(t, ca, ea)
		if err := a.Send(t.Context(), nil); !errors.Is(err, errNoARP) || a.Stats().ARPRequests != arpTries {
			t.Error(err, a.Stats())
		}

		ea, eb := newLink()
		a = start(t, ca, ea)
		b := start(t, cb, eb)
		a.handleARPOf(b)
		b.Close()
		if err := a.Send(t.Context(), make([]byte, 1000)); !errors.Is(err, ErrRetryExceeded) {
			t.Error(err)
		}
		if s := a.Stats(); s.Timeouts != 8 || s.DataSent != 4*8 || s.Retransmitted != 4*7 {
			t.Errorf("%+v", s)
		}

		ea, eb = newLink()
		ca.RNRRetry = 3
		a, b = start(t, ca, ea), start(t, cb, eb)
		if err := a.Send(t.Context(), nil); !errors.Is(err, ErrRNRExceeded) || b.Stats().RNRsSent != 4 {
			t.Error(err, b.Stats())
		}

		ea, _ = newLink()
		a = start(t, ca, ea)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Send(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// handleARPOf gives an endpoint the MAC address of another one.
func (p *Peer) handleARPOf(q *Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.arp.mac, p.arp.known = q.mac, true
}

// TestRNR: a sender waits for receive buffers as long as it takes, and nothing is lost or
// sent twice to the application.
func TestRNR(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, cb := configs()
		ea, eb := newLink()
		a, b := start(t, ca, ea), start(t, cb, eb)
		go func() {
			for i := range 20 {
				if err := a.Send(t.Context(), bytes.Repeat([]byte{byte(i)}, 600)); err != nil {
					t.Error(err)
				}
			}
		}()
		for i := range 20 {
			<-time.After(5 * time.Millisecond)
			m, err := b.Recv(t.Context())
			if err != nil || !bytes.Equal(m.Data, bytes.Repeat([]byte{byte(i)}, 600)) {
				t.Fatalf("message %d: %v", i, err)
			}
		}
		synctest.Wait()
		if s := a.Stats(); s.RNRsReceived == 0 || s.Timeouts != 0 || s.NaksReceived != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestConfig: a configuration that cannot work is refused with its reason.
func TestConfig(t *testing.T) {
	for i, spoil := range []func(*Config){
		func(c *Config) { c.MAC = nil },
		func(c *Config) { c.MAC = slices.Concat([]byte{1}, c.MAC[1:]) },
		func(c *Config) { c.PeerIP = Config{}.PeerIP },
		func(c *Config) { c.PeerIP = addrB6 },
		func(c *Config) { c.QPN = 1 },
		func(c *Config) { c.PeerQPN = 0xffffff },
		func(c *Config) { c.StartPSN = 1 << 24 },
		func(c *Config) { c.MTU = 1500 },
		func(c *Config) { c.Window = 1 << 23 },
		func(c *Config) { c.RetryCnt = -1 },
	} {
		c, _ := configs()
		spoil(&c)
		if p, err := New(c, nil); err == nil {
			p.Close()
			t.Errorf("configuration %d is accepted", i)
		}
	}
}
