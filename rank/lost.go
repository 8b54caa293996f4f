// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"errors"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Flushed reports whether a request failed only because its connection had failed before.
func Flushed(err error) bool {
	var s statusError
	return errors.As(err, &s) && virtrnic.WCStatus(s) == virtrnic.WCWRFlushErr
}

// WriteImm is Write that also completes a receive of the peer, which must have one posted.
func (c *Conn) WriteImm(b *Buffer, off, n int, remoteAddr uint64, rkey, imm uint32) (*Request, error) {
	c.r.spend(c.r.c.Params.Cost.Post)
	c.r.spend(c.r.c.Params.Cost.Stack)
	c.r.spend(c.r.c.Params.Cost.Connection)
	return c.r.postSend(&Request{to: c, send: true}, c.qp, &virtrnic.SendWR{
		Opcode: virtrnic.WRRDMAWriteWithImm, SGE: b.sge(off, n), RemoteAddr: remoteAddr, RKey: rkey, Imm: imm,
	})
}

// Abandon takes the rank out of the group at once without notice to its peers, as when a process dies:
// its queue pair is destroyed, and outstanding requests never complete.
func (g *Group) Abandon() {
	g.r.c.Host.Do(func(_ vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { g.r.left(a, g.id) })
	if g.qp != nil {
		_ = g.r.destroy(g.qp) // it is ours, or destroyed already
	}
}

// Drop is Delete for a group whose members may be gone: it does not wait for them. The leader keeps
// asking the fabric to delete the group.
func (g *Group) Drop() (err error) {
	if g.leads() {
		g.r.c.Host.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { err = a.Delete(now, g.id) })
	}
	g.Abandon()
	if err == nil && g.write != nil {
		err = g.write.free()
	}
	return err
}
