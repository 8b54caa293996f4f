// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// end is an endpoint of a connection and the program that it belongs to.
type end struct {
	client  *client
	channel *channel
}

// manage makes the NIC's communication manager. The time as a seed keeps the IDs of a node that has started again apart from
// those before, which its peers may still have. In virtual time each run begins at all nodes, and is the same run.
func (s *Server) manage() {
	seed := uint64(time.Now().UnixNano())
	if s.turns != nil {
		seed = uint64(s.nic.IP())
	}
	s.cm = cm.New(cm.Config{
		IP: s.nic.IP(), IPv6: !s.nic.Addr(s.nic.IP()).Is4(), MTU: s.mtu, Seed: seed,
		Send: s.nic.SendMAD, Tell: s.tellEnd,
	})
	s.nic.SetGSI(func(now vtime.Time, src uint32, mad []byte) { s.cm.Handle(now, src, mad) })
}

// tellEnd hands an event to the program of its endpoint. A request belongs to that of the listener.
func (s *Server) tellEnd(e cm.Event) {
	x := s.ends[e.ID]
	if e.Type == cm.EventConnectRequest {
		l := s.ends[e.Listener]
		x = &end{client: l.client, channel: l.channel}
		x.channel.users++
		s.ends[e.ID] = x
	}
	m := cmEvent{
		Type: uint32(e.Type), ID: e.ID, Listener: e.Listener, Status: int32(e.Status), Local: s.cmAddr(s.nic.IP(), e.Port), Remote: s.cmAddr(e.Peer, e.PeerTo),
		Params: cmParams{
			QPN: uint32(e.Params.QPN), QKey: e.Params.QKey, Responder: e.Params.ResponderResources, Initiator: e.Params.InitiatorDepth,
			Flow: flag(e.Params.FlowControl), Retry: e.Params.RetryCount, RNR: e.Params.RNRRetryCount, SRQ: flag(e.Params.SRQ), Length: uint16(len(e.Params.Private)),
		},
	}
	copy(m.Params.Data[:], e.Params.Private)
	x.channel.pipe.send(encode(m), nil)
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func (s *Server) cmAddr(ip uint32, port uint16) cmAddr {
	return cmAddr{GID: s.nic.Addr(ip).As16(), Port: port}
}

// removeEnds reports to programs that the device of their endpoints has failed, and deletes these. It is called
// with the loop's lock.
func (s *Server) removeEnds() {
	for _, id := range slices.Sorted(maps.Keys(s.ends)) {
		x := s.ends[id]
		x.channel.users--
		x.channel.pipe.send(encode(cmEvent{Type: cmDeviceRemoval, ID: id}), nil)
	}
	clear(s.ends)
	s.cm.Reset()
}

// forgetEnds destroys endpoints of the program. It is called with the loop's lock.
func (c *client) forgetEnds(now vtime.Time, which func(*end) bool) {
	var ids []uint32
	for id, x := range c.s.ends {
		if x.client == c && which(x) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids) // messages to peers leave in this order
	for _, id := range ids {
		c.forgetEnd(now, id, c.s.ends[id])
	}
}

func (c *client) forgetEnd(now vtime.Time, id uint32, x *end) {
	x.channel.users--
	delete(c.s.ends, id)
	if err := c.s.cm.Destroy(now, id); err != nil {
		panic(err) // it exists
	}
}

// doCM carries out a request of librdmacm.
func (c *client) doCM(o op, m any) []byte {
	var answer any = reply{Status: uint32(unix.EIO)}
	after := func() {}
	c.s.call(func(now vtime.Time) {
		var err error
		switch m := m.(type) {
		case *cmCreate:
			answer, err = c.cmCreate(m)
		case *byID:
			answer, after, err = c.cmSimple(now, o, m.ID)
		default:
			answer, err = c.cmChange(now, o, m)
		}
		if err != nil {
			answer = reply{Status: errno(err)}
		}
	})
	after()
	return encode(answer)
}

func (c *client) cmCreate(m *cmCreate) (r reply, err error) {
	h := c.channels[m.Channel]
	if s := cm.Space(m.Space); h == nil || s != cm.SpaceTCP && s != cm.SpaceUDP {
		return r, fmt.Errorf("create endpoint at channel %d in port space %#x: %w", m.Channel, m.Space, unix.EINVAL)
	}
	if r.ID, err = c.s.cm.Create(cm.Space(m.Space)); err == nil {
		c.s.ends[r.ID] = &end{client: c, channel: h}
		h.users++
	}
	return r, err
}

// own returns an endpoint of the program.
func (c *client) own(id uint32) (*end, error) {
	x := c.s.ends[id]
	if x == nil || x.client != c {
		return nil, fmt.Errorf("look for endpoint %#x: %w", id, cm.ErrNoEndpoint)
	}
	return x, nil
}

func (c *client) cmSimple(now vtime.Time, o op, id uint32) (answer any, after func(), err error) {
	after = func() {}
	if o == opCMCloseChannel {
		h := c.channels[id]
		if h == nil {
			return nil, after, fmt.Errorf("close channel %d: it does not exist: %w", id, unix.EINVAL)
		}
		c.forgetEnds(now, func(x *end) bool { return x.channel == h })
		after, err = c.destroy(now, opDestroyChannel, id)
		if err != nil {
			after = func() {}
		}
		return reply{}, after, err
	}
	x, err := c.own(id)
	if err != nil {
		return nil, after, err
	}
	switch o {
	case opCMDestroy:
		c.forgetEnd(now, id, x)
	case opCMDisconnect:
		err = c.s.cm.Disconnect(now, id)
	case opCMEstablish:
		err = c.s.cm.Establish(id)
	case opCMQuery:
		answer, err = c.cmQuery(id)
		return answer, after, err
	case opCMRoute:
		if err := c.mayAsk(); err != nil {
			return nil, after, err
		}
		c.tellOwn(x, cmRouteResolved, id, 0, cmAddr{}, cmParams{})
	}
	return reply{}, after, err
}

// tellOwn sends the program the event of its own request, which is complete immediately.
func (c *client) tellOwn(x *end, kind, id uint32, context uint64, remote cmAddr, p cmParams) {
	m := cmEvent{Type: kind, ID: id, Local: c.s.cmAddr(c.s.nic.IP(), 0), Remote: remote, Context: context, Params: p}
	x.channel.pipe.send(encode(m), nil)
}

func (c *client) cmQuery(id uint32) (q cmQuery, err error) {
	a, err := c.s.cm.Query(id)
	q = cmQuery{
		Local: c.s.cmAddr(c.s.nic.IP(), a.Port), QPN: uint32(a.RemoteQPN), QKey: a.QKey, SQPSN: uint32(a.SQPSN), RQPSN: uint32(a.RQPSN),
		MTU: uint32(a.MTU), Space: uint32(a.Space), Timeout: a.Timeout, Retry: a.Retry, RNR: a.RNR, Responder: a.Responder, Initiator: a.Initiator,
		Traffic: a.Traffic, Known: flag(a.Known),
	}
	if a.Peer != 0 {
		q.Remote = c.s.cmAddr(a.Peer, a.PeerPort)
	}
	return q, err
}

// cmChange does the requests that carry more than a number.
func (c *client) cmChange(now vtime.Time, o op, m any) (r reply, err error) {
	switch m := m.(type) {
	case *cmAddress:
		return c.cmAddress(o, m)
	case *cmJoin:
		x, err := c.own(m.ID)
		if err != nil {
			return r, err
		}
		ip, err := addressOf(m.GID)
		if err != nil || !wire.IsMulticast(ip) {
			return r, fmt.Errorf("join %v: it is no group: %w", netip.AddrFrom16(m.GID), unix.EINVAL)
		}
		if err := c.mayAsk(); err != nil {
			return r, err
		}
		p := cmParams{QPN: uint32(wire.QPNMulticast), QKey: udQKey}
		c.tellOwn(x, cmMulticastJoin, m.ID, m.Context, c.s.cmAddr(ip, 0), p)
	case *cmValue:
		return r, c.cmValue(now, o, m)
	case *cmConn:
		if _, err := c.own(m.ID); err != nil {
			return r, err
		}
		p := &m.Params
		if p.Length > cmPrivate {
			return r, fmt.Errorf("take %d bytes of private data: %w", p.Length, unix.EINVAL)
		}
		params := cm.Params{
			QPN: wire.QPN(p.QPN) & wire.QPNMask, QKey: p.QKey, ResponderResources: p.Responder, InitiatorDepth: p.Initiator, RetryCount: p.Retry,
			RNRRetryCount: p.RNR, FlowControl: p.Flow != 0, SRQ: p.SRQ != 0, Private: p.Data[:p.Length],
		}
		switch o {
		case opCMConnect:
			err = c.s.cm.Connect(now, m.ID, params)
		case opCMAccept:
			err = c.s.cm.Accept(now, m.ID, params)
		default:
			err = c.s.cm.Reject(now, m.ID, params.Private)
		}
	}
	return r, err
}

// udQKey is the Q_Key of datagrams to queue pairs and groups of rdma_cm (RDMA_UDP_QKEY).
const udQKey = 0x01234567

func (c *client) cmValue(now vtime.Time, o op, m *cmValue) error {
	x, err := c.own(m.ID)
	if err != nil {
		return err
	}
	switch o {
	case opCMListen:
		return c.s.cm.Listen(now, m.ID, int(m.Value))
	case opCMTraffic:
		return c.s.cm.SetTraffic(m.ID, uint8(m.Value))
	case opCMTimeout:
		return c.s.cm.SetTimeout(m.ID, uint8(m.Value))
	}
	h := c.channels[m.Value]
	if h == nil {
		return fmt.Errorf("migrate to channel %d: it does not exist: %w", m.Value, unix.EINVAL)
	}
	x.channel.users--
	x.channel = h
	h.users++
	return nil
}

// cmAddress binds an endpoint to an address of the NIC, or resolves that of a peer.
func (c *client) cmAddress(o op, m *cmAddress) (r reply, err error) {
	x, err := c.own(m.ID)
	if err != nil {
		return r, err
	}
	a := netip.AddrFrom16(m.Addr.GID).Unmap()
	own := c.s.nic.Addr(c.s.nic.IP()).Unmap()
	if c.s.alias != nil {
		if ip, ok := c.s.alias(a); ok {
			m.Addr.GID = c.s.nic.Addr(ip).As16()
			a = netip.AddrFrom16(m.Addr.GID).Unmap()
		}
	}
	if o == opCMBind {
		if !a.IsUnspecified() && !a.IsLoopback() && a != own { // Linux, too, binds the loopback address to a device that it has
			return r, fmt.Errorf("bind to %v: the device has %v: %w", a, own, unix.ENODEV)
		}
		var port uint16
		port, err = c.s.cm.Bind(m.ID, m.Addr.Port, m.Flags&1 != 0)
		r.Send = uint32(port)
		return r, err
	}
	if a.IsLoopback() {
		a, m.Addr.GID = own, own.As16()
	}
	ip, err := addressOf(m.Addr.GID)
	other := !wire.IsMulticast(ip) && c.s.nic.Addr(ip).Unmap() != a // a group may stand for another one (wire.GroupOf)
	if err != nil || a.IsUnspecified() || other {
		return r, fmt.Errorf("resolve %v: no host of the fabric has it: %w", a, unix.EHOSTUNREACH)
	}
	if err := c.mayAsk(); err != nil {
		return r, err
	}
	if err := c.s.cm.Resolve(m.ID, ip, m.Addr.Port); err != nil {
		return r, err
	}
	c.tellOwn(x, cmAddrResolved, m.ID, 0, c.s.cmAddr(ip, m.Addr.Port), cmParams{})
	q, err := c.s.cm.Query(m.ID)
	r.Send = uint32(q.Port)
	return r, err
}
