// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"

	"github.com/mcastlab/mcastlab/core/machine/queue"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/outofband"
)

// channel is the out-of-band channel of a lab in which its messages take time. It connects every
// host, and every switch whose tables programs set, with the server of the running job. Messages of
// a node arrive in the order in which they were sent, because all take the same time.
type channel struct {
	net   *Net
	delay vtime.Duration // of each message, above 0

	// up holds the requests that have not reached the server, by the place of the node that sent them;
	// down holds the server's messages to each node.
	up   []queue.FIFO[request]
	down []queue.FIFO[message]

	// coming is the number of messages in up and down.
	coming int

	// server answers the requests of job. It is nil in a part of a lab, whose requests leave by
	// Config.Edge.
	server *outofband.Server
	job    *job
}

type request struct {
	rank int
	q    outofband.Request
}

// message is a reply to a rank of a host, or an entry for the table of a switch.
type message struct {
	reply outofband.Reply
	entry wire.MulticastEntry
}

func newChannel(n *Net, delay vtime.Duration) *channel {
	c := &channel{net: n, delay: delay, down: make([]queue.FIFO[message], len(n.nodes))}
	if n.cfg.Edge == nil {
		c.up = make([]queue.FIFO[request], len(n.nodes))
	}
	return c
}

// open makes the channel that of a job.
func (c *channel) open(j *job, size int, spare []bool) {
	c.job = j
	if c.net.cfg.Edge == nil {
		c.server = outofband.NewServer(size, spare, c.net.cfg.Server(c.net.leaseGroup))
	}
}

// send sends a request of a rank to the server.
func (c *channel) send(node, rank int, q *outofband.Request) {
	n := c.net
	at := n.now.Add(c.delay)
	if n.cfg.Edge != nil {
		n.cfg.Edge.Request(at, node, rank, q)
		return
	}
	c.coming++
	c.take(node, request{rank, *q})
	n.schedule(at, classRequest, node)
}

// take keeps a request until it reaches the server.
func (c *channel) take(node int, r request) { c.up[c.net.placeOf(node)].Push(r) }

// arrived hands a node's oldest request to the server, and sends its answers.
func (c *channel) arrived(node int) {
	c.coming--
	r := c.up[c.net.placeOf(node)].Pop()
	replies, entries := c.server.Handle(r.rank, r.q)
	at := c.net.now.Add(c.delay)
	for _, e := range entries {
		c.post(at, e.Switch, message{entry: e})
	}
	for _, r := range replies {
		c.post(at, c.job.hosts[r.Rank], message{reply: r})
	}
}

// post makes a message of the server arrive at a node.
func (c *channel) post(at vtime.Time, node int, m message) {
	c.coming++
	c.down[c.net.placeOf(node)].Push(m)
	c.net.schedule(at, classReply, node)
}

// delivered gives a node the oldest message that the server has sent it.
func (c *channel) delivered(node int) {
	c.coming--
	at := c.net.placeOf(node)
	m, nd := c.down[at].Pop(), &c.net.nodes[at]
	if nd.sw != nil {
		nd.sw.SetMulticast(m.entry)
		c.net.arm(nd)
		return
	}
	if k := nd.host.calls[m.reply.Call]; k != nil {
		delete(nd.host.calls, m.reply.Call)
		k.answered, k.reply = true, m.reply
		if k.task.asleep {
			c.net.makeReady(k.task)
		}
	}
}

// pending is a rank's request that has not been answered. It is not on the stack of the rank, since all ranks of a large job may
// wait at once.
type pending struct {
	task     *task
	asked    outofband.Request
	answered bool
	reply    outofband.Reply
}

// delayed is one rank's end of the channel. It implements rankhost.Board and rankhost.Subnet.
type delayed struct {
	board
	c *channel
}

// ask sends the request k and waits for the reply. It returns false once over, which may be nil,
// reports that the wait is over.
func (d delayed) ask(why string, k *pending, over func() bool) bool {
	h := d.h
	h.lastCall++
	k.task, k.asked.Call = d.c.net.running, h.lastCall
	h.calls[k.asked.Call] = k
	d.c.send(h.node, d.rank, &k.asked)
	for !k.answered {
		if over != nil && over() {
			d.withdraw(&k.asked)
			return false
		}
		h.Park(vtime.Never, why)
	}
	return true
}

// withdraw gives up a request.
func (d delayed) withdraw(q *outofband.Request) {
	delete(d.h.calls, q.Call)
	if q.Kind == outofband.Get || q.Kind == outofband.Take {
		d.c.send(d.h.node, d.rank, &outofband.Request{Kind: outofband.Withdraw, Of: q.Call, Key: q.Key})
	}
}

// Put implements rankhost.Board.
func (d delayed) Put(key string, value []byte) {
	d.c.send(d.h.node, d.rank, &outofband.Request{Kind: outofband.Put, Key: key, Value: value})
}

// Get implements rankhost.Board.
func (d delayed) Get(key, why string, over func() bool) ([]byte, bool) {
	k := &pending{asked: outofband.Request{Kind: outofband.Get, Key: key}}
	ok := d.ask(why, k, over)
	return k.reply.Value, ok
}

// Take implements rankhost.Board.
func (d delayed) Take(key, why string, over func() bool) ([]byte, bool) {
	k := &pending{asked: outofband.Request{Kind: outofband.Take, Key: key}}
	ok := d.ask(why, k, over)
	return k.reply.Value, ok
}

// Barrier implements rankhost.Board.
func (d delayed) Barrier(over func() bool) bool {
	if over() {
		return false
	}
	return d.ask("the other ranks to synchronise", &pending{asked: outofband.Request{Kind: outofband.Arrive}}, over)
}

// LeaseGroup implements rankhost.Board.
func (d delayed) LeaseGroup() (uint32, error) {
	return d.group("a group address", &pending{asked: outofband.Request{Kind: outofband.Lease}})
}

// Multicast implements rankhost.Board.
func (d delayed) Multicast(hosts []uint32) (uint32, error) {
	return d.group("the switches to know a group", &pending{asked: outofband.Request{Kind: outofband.Multicast, Hosts: hosts}})
}

// EndMulticast implements rankhost.Board.
func (d delayed) EndMulticast(group uint32) error {
	_, err := d.group("the switches to forget a group", &pending{asked: outofband.Request{Kind: outofband.EndMulticast, Group: group}})
	return err
}

// SetBranches implements rankhost.Subnet.
func (d delayed) SetBranches(entries []wire.MulticastEntry) {
	d.ask("the switches to take their tables", &pending{asked: outofband.Request{Kind: outofband.SetBranches, Branches: entries}}, nil)
}

func (d delayed) group(why string, k *pending) (uint32, error) {
	d.ask(why, k, nil)
	if k.reply.Error != "" {
		return 0, errors.New(k.reply.Error)
	}
	return k.reply.Group, nil
}

// Server returns a server's access to the lab for the out-of-band channel. lease returns the lower 16
// bits of a group address that the run has not used.
func (c *Config) Server(lease func() (uint32, error)) outofband.Lab {
	return outofband.Lab{
		Lease: lease, GroupNet: c.Graph.Groups.Net(), MulticastNet: wire.MulticastNet,
		Tree: func(group uint32, hosts []uint32) (entries []wire.MulticastEntry, err error) {
			nodes, err := c.Graph.HostsAt(hosts)
			if err != nil {
				return nil, err
			}
			return c.Multicast(group, nodes, nil)
		},
	}
}
