// SPDX-License-Identifier: Apache-2.0

package collective

import "github.com/mcastlab/mcastlab/rank"

// cepheus is in-network multicast: the root sends the message once to the group, the
// switches replicate it and merge the acknowledgements (Cepheus §III).
//
//	T = S(M, Lmax)
//
// for any N. At the root it is done when the last acknowledgement has come back.
type cepheus struct {
	r    *rank.Rank
	g    *rank.Group
	b    *rank.Buffer
	n    int
	recv *rank.Request
}

func newCepheus(r *rank.Rank, o *Options) (Algorithm, error) {
	if o.Fallback != "" && o.Fallback != FallbackOff {
		return newSafeguard(r, o)
	}
	if o.Write {
		return &writing{r: r, name: "bcast/" + o.Label}, nil
	}
	g, err := r.NewGroup("bcast/"+o.Label, r.First())
	if err != nil {
		return nil, err
	}
	return &cepheus{r: r, g: g}, nil
}

// Begin implements Algorithm. If the root has changed, the new root first takes the group
// over: the old and the new root synchronise their PSN counters (CEP-40).
func (c *cepheus) Begin(b *rank.Buffer, n, root int) (err error) {
	c.b, c.n = b, n
	if err := c.g.SetSource(root); err != nil {
		return err
	}
	if c.r.ID() != root {
		c.recv, err = c.g.Recv(b, 0, n)
	}
	if err == nil && c.r.ID() == c.r.First() {
		awaitExternals(c.r, root, c.g.McstID())
	}
	return err
}

// Run implements Algorithm.
func (c *cepheus) Run() (t Times, err error) {
	if c.g.Source() != c.r.ID() {
		err = c.r.Wait(c.recv)
		t.Received = c.r.Now()
		t.Done = t.Received
		return t, err
	}
	t.Received = c.r.Now()
	q, err := c.g.Send(c.b, 0, c.n)
	if err != nil {
		return t, err
	}
	err = c.r.Wait(q)
	t.Done = c.r.Now()
	return t, err
}

// Close implements Algorithm.
func (c *cepheus) Close() error { return c.g.Delete() }
