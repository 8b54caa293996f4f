// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// The general services interface: queue pair 1, to which management datagrams go. It is no object of verbs; the
// host's communication manager gets the datagrams.

// gsiQKey is the Q_Key that all queue pairs 1 have.
const gsiQKey = 0x80010000

// madLen is the length of a management datagram.
const madLen = 256

// SetGSI sets the receiver of management datagrams from other hosts. take must not keep mad; it may
// send datagrams.
func (n *NIC) SetGSI(take func(now vtime.Time, src uint32, mad []byte)) { n.gsi = take }

// SendMAD sends a management datagram from queue pair 1 to that of a host.
func (n *NIC) SendMAD(now vtime.Time, dst uint32, mad []byte) {
	var q QP // of which only the path is used
	q.num, q.attr.AV.DGID, q.attr.DestQPN = wire.QPNGSI, dst, wire.QPNGSI
	e := n.envelope(&q)
	f := n.pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpUDSendOnly, Migrated: true, PKey: wire.PKeyDefault, DestQP: wire.QPNGSI, PSN: n.gsiPSN})
	f.AddDETH(wire.DETH{QKey: gsiQKey, SrcQP: wire.QPNGSI})
	copy(attach(n.pool, f, len(mad)), mad)
	f.Seal(uint16(n.gsiPSN), n.trust)
	n.gsiPSN = n.gsiPSN.Add(1)
	n.settleBefore(now)
	n.meets(dst)
	n.stats.Made++
	n.queue(now, f, n.priority(0))
	n.start(now)
}

// general checks a packet to queue pair 1 as demux does, and hands it on.
func (n *NIC) general(now vtime.Time, f *wire.Frame) {
	op, _, pkey, _ := f.Transport()
	switch {
	case op != wire.OpUDSendOnly:
		n.drop(now, f, DropService)
	case pkey&0x7fff != 0x7fff:
		n.drop(now, f, DropPKey)
	case !f.CheckICRC():
		n.drop(now, f, DropICRC)
	case f.DETH().QKey != gsiQKey || f.DETH().SrcQP != wire.QPNGSI:
		n.drop(now, f, DropQKey)
	case f.PayloadLen() != madLen:
		n.drop(now, f, DropInvalid)
	default:
		var mad [madLen]byte
		copy(mad[:], f.PayloadBytes())
		src := f.SrcIP()
		n.consume(f)
		n.gsi(now, src, mad[:])
	}
}
