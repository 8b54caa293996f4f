package machine

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Request is a NIC's report of a work request to a RequestTracer. There are a few per message
// and none per packet.
type Request struct {
	Kind    RequestKind
	Op      string // SEND, WRITE, READ and so on, posted only
	QP      wire.QPN
	Peer    uint32   // the address it goes to or comes from: of a host or a group
	To      uint32   // received: the address it came for
	PeerQP  wire.QPN // the queue pair its packets name
	PSN     wire.PSN // posted, done: its first packet; received: its last
	Packets uint32   // posted, done; of a READ those of its answer
	Bytes   uint32
	Text    string // done: the status, if it failed
}

// RequestKind says what became of a work request.
type RequestKind uint8

// What is reported of work requests.
const (
	RequestPosted   RequestKind = iota // to a send queue
	RequestDone                        // it has left the send queue, with success or not
	RequestReceived                    // the last packet of a message has been taken
)

// RequestTracer is a Tracer that is told of work requests, too.
type RequestTracer interface {
	Tracer
	TraceRequest(now vtime.Time, r Request)
}

// Watcher sees the frames of one node's ports, as drivers move them. It must not keep a
// frame.
type Watcher interface {
	// Sent tells of a frame whose transmission by a port began at start and takes the port
	// for d. The neighbour's machine gets it at landed.
	Sent(port int, start vtime.Time, d vtime.Duration, landed vtime.Time, f *wire.Frame)
	// Lost tells of a frame that a fault took away at the end of the link into a port.
	Lost(now vtime.Time, port int, f *wire.Frame)
}
