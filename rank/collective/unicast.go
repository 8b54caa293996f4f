// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// unicast sends the message to every receiver over a connection of its own, to all at the same
// time; they share the root's link fairly (BAS-4).
//
//	T = r wire(M)/B + S(l, Lmax) - wire(l)/B
//
// where l is the message's last packet, with which all connections end (unless it is
// so short, and r so small, that it waits for the full one before it). Done at the root: one round trip of control later.
type unicast struct {
	r    *rank.Rank
	b    *rank.Buffer
	n    int
	root int
	recv *rank.Request
	told *rank.Buffer // memory of this rank that was announced to the external root
}

func newUnicast(r *rank.Rank, o *Options) (Algorithm, error) {
	if o.Transport == TransportRCChunks || o.Transport == TransportUD {
		return newOneThread(r, o)
	}
	return &unicast{r: r}, nil
}

// Begin implements Algorithm.
func (u *unicast) Begin(b *rank.Buffer, n, root int) error {
	u.b, u.n, u.root = b, n, root
	if u.r.ID() == root {
		for i := 1; i < u.r.Size(); i++ {
			if _, err := u.r.Connect(absolute(u.r, root, i)); err != nil {
				return err
			}
		}
		awaitExternals(u.r, root, rankrun.Of(u.r).Address(root))
		return nil
	}
	c, err := u.r.Connect(root)
	if err != nil {
		return err
	}
	if u.r.External(root) && u.told != b {
		u.told = b
		rankrun.Of(u.r).TellMemory(root, b)
	}
	u.recv, err = c.Recv(b, 0, n)
	return err
}

// awaitExternals blocks until the external ranks are ready to receive.
func awaitExternals(r *rank.Rank, root int, address uint32) {
	for i := range r.Size() {
		if i != root && r.External(i) {
			rankrun.Of(r).AwaitExternal(i, address)
		}
	}
}

// Run implements Algorithm.
func (u *unicast) Run() (t Times, err error) {
	if u.r.ID() != u.root {
		err = u.r.Wait(u.recv)
		t.Received = u.r.Now()
		t.Done = t.Received
		return t, err
	}
	t.Received = u.r.Now()
	reqs := make([]*rank.Request, 0, u.r.Size()-1)
	for i := 1; i < u.r.Size(); i++ {
		q, err := sendTo(u.r, absolute(u.r, u.root, i), u.b, 0, u.n)
		if err != nil {
			return t, err
		}
		reqs = append(reqs, q)
	}
	err = u.r.Wait(reqs...)
	t.Done = u.r.Now()
	return t, err
}

// Close implements Algorithm.
func (u *unicast) Close() error { return nil }

// sendTo starts to send to a rank that the caller is connected to.
func sendTo(r *rank.Rank, to int, b *rank.Buffer, off, n int) (*rank.Request, error) {
	c, err := r.Connect(to)
	if err != nil {
		return nil, err
	}
	return c.Send(b, off, n)
}

// recvFrom posts a receive from a rank that the caller is connected to.
func recvFrom(r *rank.Rank, from int, b *rank.Buffer, off, n int) (*rank.Request, error) {
	c, err := r.Connect(from)
	if err != nil {
		return nil, err
	}
	return c.Recv(b, off, n)
}

// lastPSN implements finisher.
func (u *unicast) lastPSN(to int) (psn uint32, err error) {
	if u.r.ID() == u.root {
		c, err := u.r.Connect(to)
		if err != nil {
			return 0, err
		}
		return rankrun.OfConn(c).Sent(), nil
	}
	c, err := u.r.Connect(u.root)
	if err != nil {
		return 0, err
	}
	return rankrun.OfConn(c).Received(), nil
}
