// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Reports of work requests, to a tracer that takes them (machine.RequestTracer).

// opName returns the name of a work request's operation.
func opName(o WROpcode) string {
	switch o {
	case WRRDMAWrite:
		return "WRITE"
	case WRRDMAWriteWithImm:
		return "WRITE with immediate"
	case WRSend:
		return "SEND"
	case WRSendWithImm:
		return "SEND with immediate"
	case WRSendWithInv:
		return "SEND with invalidate"
	case WRRDMARead:
		return "READ"
	}
	return "ATOMIC"
}

// tell reports a request of the send queue.
func (q *QP) tell(now vtime.Time, k machine.RequestKind, w *sendWQE, status WCStatus) {
	r := machine.Request{
		Kind: k, Op: opName(w.opcode), QP: q.num, Peer: q.attr.AV.DGID, PeerQP: q.attr.DestQPN,
		PSN: q.sq.psn(w.first), Packets: w.packets, Bytes: w.length,
	}
	if w.traits&isDatagram != 0 {
		r.Peer, r.PeerQP = w.extras.ud.AH.dst, w.extras.ud.QPN
	}
	if status != WCSuccess {
		r.Text = status.String()
	}
	q.nic.requests.TraceRequest(now, r)
}

// tellReceived reports that the message that ends with f has been received.
func (q *QP) tellReceived(now vtime.Time, f *wire.Frame, bytes uint64) {
	q.nic.requests.TraceRequest(now, machine.Request{
		Kind: machine.RequestReceived, QP: q.num, Peer: f.SrcIP(), To: f.DstIP(), PeerQP: f.DestQP(), PSN: f.PSN(), Bytes: uint32(bytes),
	})
}
