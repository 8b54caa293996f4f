// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Request is a NIC's report of a work request to a RequestTracer. There are a few per message
// and none per packet.
type Request struct {
	Kind    RequestKind
	Op      string // posted: the operation, for example SEND or WRITE
	QP      wire.QPN
	Peer    uint32   // address of the peer, a host or a group
	To      uint32   // received: destination address of the packets
	PeerQP  wire.QPN // destination queue pair of the packets
	PSN     wire.PSN // posted, done: PSN of the first packet; received: PSN of the last
	Packets uint32   // posted, done: number of packets; for a READ those of its response
	Bytes   uint32   // length of the message
	Text    string   // done: the status, if it failed
}

// RequestKind is the kind of a report.
type RequestKind uint8

// Kinds of reports.
const (
	RequestPosted   RequestKind = iota // a request was posted to a send queue
	RequestDone                        // a request has left the send queue, successfully or not
	RequestReceived                    // the last packet of a message was received
)

// RequestTracer is a Tracer that receives reports of work requests too.
type RequestTracer interface {
	Tracer
	TraceRequest(now vtime.Time, r Request)
}

// QueueTracer is a Tracer that also gets the queue lengths of a switch's ports.
type QueueTracer interface {
	Tracer
	// TraceQueue is called when a frame has entered a port's queues or left them, with the bytes on the wire that wait there
	// then. A frame that finds its port idle does not wait. Of one port the instants do not decrease; of several they may, since
	// the switch reports a departure with its next step.
	TraceQueue(now vtime.Time, port, bytes int)
}

// PassingTracer is a Tracer that passes events on to another one as they are made. The two may want different orders:
// a trace wants causes before effects, and a log of events the events of one instant by node.
type PassingTracer interface {
	Tracer
	// PassThrough sends events to the tracer that through returns for the other one. It is called before the first
	// event.
	PassThrough(through func(Tracer) Tracer)
}

// Watcher sees the frames of one node's ports. The driver calls it. It must not keep a frame.
type Watcher interface {
	// Sent is called for a frame whose transmission by a port began at start and lasted d. The
	// neighbour's machine takes the frame at landed.
	Sent(port int, start vtime.Time, d vtime.Duration, landed vtime.Time, f *wire.Frame)
	// Lost is called for a frame that a fault dropped at the end of the link into a port.
	Lost(now vtime.Time, port int, f *wire.Frame)
}
