// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// managed returns two endpoints that know of each other's address alone, over wires that lose frames.
func managed(t *testing.T, seed uint64, lose float64) (a, b *Peer) {
	ca, cb := configs()
	for _, c := range []*Config{&ca, &cb} {
		c.Managed, c.PeerQPN, c.StartPSN = true, 0, 0
	}
	ca.PeerPSN, cb.PeerPSN = 0xfffff0, 0xfffffe
	ea, eb := newLink()
	for i, e := range []*end{ea, eb} {
		e.faults = faults{rng: rand.New(rand.NewPCG(seed, uint64(i))), lose: lose, duplicate: lose / 2}
	}
	return start(t, ca, ea), start(t, cb, eb)
}

// TestManaged: two endpoints connect by communication management, whatever is lost of it, exchange messages across the wrap of both
// PSNs, and end the connection.
func TestManaged(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			a, b := managed(t, seed, float64(seed%4)/20)
			accepted := make(chan error, 1)
			go func() {
				asked, err := b.Listen(t.Context(), 7174)
				if err == nil && (asked.PSN != 0xfffff0 || asked.QPN != 0x11 || asked.Port != 0x9abc || asked.Source != addrA || asked.Target != addrB || asked.MTU != 256 ||
					string(asked.Private[:6]) != "please" || asked.LocalGID != addrA.As16() || asked.RemoteGID != addrB.As16()) {
					t.Errorf("asked is %+v", asked)
				}
				<-time.After(time.Duration(seed%3) * time.Second) // in which an MRA keeps the other side waiting
				if err == nil {
					err = b.Accept(t.Context(), []byte("granted"))
				}
				accepted <- err
			}()
			answer, err := a.Connect(t.Context(), 7174, []byte("please"))
			if err2 := <-accepted; err != nil || err2 != nil || answer.PSN != 0xfffffe || answer.QPN != 0x12 || string(answer.Private[:7]) != "granted" {
				t.Fatalf("seed %d: %v, %v, %+v", seed, err, err2, answer)
			}
			converse(t, seed, a, b, 64)
			if err := errors.Join(a.Disconnect(t.Context()), b.Disconnected(t.Context())); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// TestManagedRefused: a request is rejected by the program, or since no program listens, or not answered at
// all.
func TestManagedRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := managed(t, 1, 0)
		go func() {
			if _, err := b.Listen(t.Context(), 7174); err == nil {
				b.Reject(nil)
			}
		}()
		if _, err := a.Connect(t.Context(), 7174, nil); !errors.Is(err, ErrRejected) || err.Error() != "the peer rejected the connection: reason 28" {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := managed(t, 1, 0)
		go func() { _, _ = b.Listen(t.Context(), 7175) }()
		if _, err := a.Connect(t.Context(), 7174, nil); !errors.Is(err, ErrRejected) || err.Error() != "the peer rejected the connection: reason 8" {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := managed(t, 1, 0)
		b.mu.Lock()
		b.cfg.PeerIP = linuxIP // and hears nothing of another
		b.mu.Unlock()
		if _, err := a.Connect(t.Context(), 7174, nil); !errors.Is(err, ErrNoAnswer) {
			t.Error(err)
		}
	})
}
