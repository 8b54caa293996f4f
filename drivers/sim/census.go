// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/window"
)

// tasksCensus adds the waits of the tasks.
func (n *Net) tasksCensus() window.Census {
	c := window.Census{Moves: n.moves, Hops: n.stats.Hops, Awake: n.channel != nil && n.channel.coming > 0}
	for _, t := range n.tasks {
		if !t.done {
			c.Waiting++
			c.Awake = c.Awake || t.queued || !t.asleep || t.until != vtime.Never
		}
	}
	return c
}

// nodesCensus adds the contents of the nodes. All frames that may have started by now are started
// first, so that the result does not depend on the loop's delay of starts.
func (n *Net) nodesCensus(c *window.Census) {
	c.Open, c.Live, c.PauseMax, c.PauseLate = n.open() != nil, n.pool.Live, n.pauseMax, n.pauseLate
	c.Flying, c.Pauses = n.lates, n.latePauses
	for i := range n.nodes {
		n.nodeCensus(c, &n.nodes[i])
	}
	n.attend()
	c.Pauses += n.links.Pauses()
	c.FlyingPauses += n.latePauses + n.links.Pauses()
	for id := range n.inbound {
		q := &n.inbound[id]
		c.Flying += q.Len()
		for i := range q.Len() {
			if q.At(i).Frame.Kind() == wire.KindPFC {
				c.Pauses++
				c.FlyingPauses++
			}
		}
	}
}

func (n *Net) nodeCensus(c *window.Census, nd *node) {
	for port := range n.graph.Nodes[nd.id].Links {
		l := n.links.At(int(nd.first) + port)
		if l.Next() <= n.now {
			n.settle(nd, port)
		}
		c.Flying += l.InFlight()
		c.Timed = c.Timed || l.Next() != vtime.Never
	}
	_, armed := nd.m.NextTimeout()
	c.Timed = c.Timed || armed
	if nd.sw != nil {
		c.Pauses += nd.sw.Pauses()
		c.Movable = c.Movable || !nd.sw.Stands()
		return
	}
	c.Pauses += nd.nic.Pauses()
	switch {
	case nd.nic.Stands():
	case nd.nic.Stalled():
		c.Stalled = max(c.Stalled, nd.stalled)
	default:
		c.Movable = true
	}
	_, armed = nd.host.agent.NextTimeout()
	c.Registering = c.Registering || armed
}

// quiet reports whether no work request and no registration is in progress.
func (n *Net) quiet() bool {
	var c window.Census
	n.nodesCensus(&c)
	return !c.Registering && !c.Open
}
