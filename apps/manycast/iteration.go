// SPDX-License-Identifier: Apache-2.0

package manycast

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// iteration is one rank's part of one draw of sources and members at one size. The buffer holds
// the rank's own message and, unless it is phantom, one message of each source after it.
type iteration struct {
	*side
	number  int
	scheme  string
	size    int
	buf     *rank.Buffer
	seed    uint64
	sources []int
	groups  [][]int // by index of the source that sends to the group

	out     []rankrun.Outlet // outlets by which the rank sends, one after the other
	reqs    []*rank.Request  // index 0: the message being sent; then the expected messages, by source
	from    []int            // by request: index of its source
	entries int
	updates int
	wrong   bool
}

// run transfers the messages. All sources start at the same instant, and only the network
// determines when a message arrives.
func (x *iteration) run() (one sample, err error) {
	r := x.r
	if r.ID() == 0 {
		if x.entries, x.updates, err = x.tables.fill(x.number, x.scheme, x.sources, x.groups); err != nil {
			return one, err
		}
	}
	if err := x.receive(); err != nil {
		return one, err
	}
	if i := slices.Index(x.sources, r.ID()); i >= 0 {
		x.buf.Fill(messageSeed(x.seed, r.ID()), x.size)
		if err := x.outlets(x.groups[i]); err != nil {
			return one, err
		}
	}
	r.Sync()
	one.Start, one.Last, one.Sent = r.Now(), r.Now(), r.Now()
	if err := x.move(&one); err != nil {
		return one, err
	}
	if x.app.Delivered != nil && len(x.from) > 0 {
		x.app.Delivered(r, x.buf)
	}
	if mem := x.buf.Bytes(); mem != nil {
		for _, i := range x.from {
			x.wrong = x.wrong || !holds(mem[(i+1)*x.size:(i+2)*x.size], messageSeed(x.seed, x.sources[i]))
		}
	}
	r.Sync() // until then packets are in flight, and tables and buffers must not change
	return one, nil
}

// receive posts a receive for each expected message.
func (x *iteration) receive() error {
	x.reqs = append(x.reqs, nil)
	mem := x.buf.Bytes()
	if mem != nil {
		clear(mem)
	}
	for i, src := range x.sources {
		if src == x.r.ID() || !slices.Contains(x.groups[i], x.r.ID()) {
			continue
		}
		in, err := x.inlet(src)
		if err != nil {
			return err
		}
		off := 0
		if mem != nil {
			off = (i + 1) * x.size
		}
		q, err := in.Recv(x.buf, off, x.size)
		if err != nil {
			return err
		}
		x.reqs, x.from = append(x.reqs, q), append(x.from, i)
	}
	return nil
}

// outlets prepares the outlets of the source: one to its group, or one to each member.
func (x *iteration) outlets(members []int) error {
	me := x.r.ID()
	add := func(lid int, ip uint32, qpn func() wire.QPN) error {
		o, err := x.outlet(lid, ip, qpn)
		x.out = append(x.out, o)
		return err
	}
	if x.scheme != Unicast {
		if len(members) == 1 && members[0] == me {
			return nil // there is no other member
		}
		lid := x.mlid(x.scheme, me)
		return add(lid, topo.MLIDAddress(lid), func() wire.QPN { return wire.QPNMulticast })
	}
	for _, m := range members {
		if m == me {
			continue
		}
		lid := x.tree.LID(me, m)
		err := add(lid, topo.LIDAddress(lid), func() wire.QPN {
			return wire.QPN(binary.BigEndian.Uint32(x.r.Get(inletKey(m, me))))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// move sends the rank's messages one after the other and receives the expected ones.
func (x *iteration) move(one *sample) (err error) {
	next := 0
	send := func() error {
		if next == len(x.out) {
			return nil
		}
		x.reqs[0], err = x.out[next].Send(x.buf, 0, x.size)
		next++
		return err
	}
	if err := send(); err != nil {
		return err
	}
	for open := len(x.out) + len(x.from); open > 0; open-- {
		i, err := x.r.WaitAny(x.reqs...)
		if err != nil {
			return err
		}
		if i < 0 || x.reqs[i] == nil {
			return fmt.Errorf("rank %d waits for %d messages that no rank sends", x.r.ID(), open)
		}
		x.reqs[i] = nil
		now := x.r.Now()
		if i == 0 {
			one.Sent = now
			if err := send(); err != nil {
				return err
			}
			continue
		}
		one.Last = now
		one.Sum += now.Sub(one.Start)
		one.Count++
	}
	return nil
}
