package machine

import (
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// EventKind says what happened. Names appear in events.jsonl and are not changed.
type EventKind uint8

// Events that machines report. None comes with every packet: captures show frames, and events
// show what is rare and worth a line.
const (
	EventDrop           EventKind = iota // a frame was dropped; Text: the reason
	EventPauseSent                       // Port, Priority: told the neighbour to stop; Value: quanta, 0 to go on
	EventPauseReceived                   // Port, Priority: was told so; Value: quanta, 0 to go on
	EventNakSent                         // QP, PSN: asked for a packet again, or ended the connection; Text: the syndrome
	EventNakReceived                     // QP: a NAK made it go back; PSN: where sending starts again
	EventTimeout                         // QP, PSN: a retransmission timer fired
	EventRetransmit                      // QP: went back after a timeout or an RNR NAK; PSN: where sending starts again
	EventQPState                         // QP; Text: the new state
	EventQPError                         // QP: a work request ended the connection; Text: the completion status
	EventGroupAdded                      // Group: a switch has installed members; Value: paths
	EventGroupActive                     // Group: data may pass; PSN: the first
	EventGroupDeleted                    // Group: a switch has taken it out; Text: why, if not because it was told to
	EventGroupFailed                     // Group: a switch could not install it; Text: the reason
	EventSourceSwitch                    // Group; Port: where data comes from now
	EventNakAggregated                   // Group, PSN: a switch sent a NAK to the source
	EventAckRepeated                     // Group, PSN: all paths had a packet, the ACK was sent again
	EventPauseStorm                      // Port, Priority: the watchdog took over
	EventPauseStormOver                  // Port, Priority: and gave it back
	EventGroupRegions                    // Group: a leaf has learnt members' registered regions; Value: how many new ones
	EventFallback                        // Group: its transfers go by unicast now; Value: the epoch that ended; Text: the cause
	EventReturn                          // Group: transfers go by multicast again; Value: the new epoch; Text: who is not in it
	EventProbe                           // Group: it was tried and is not taken into use; Value: its epoch; Text: why not
	EventMemberLost                      // Value: the rank that is given up; Text: its host, and why
	EventFaultAdded                      // Text: a fault that was added by hand, and its id
	EventFaultRemoved                    // Text: the id of one that was taken away
)

var eventNames = [...]string{
	"drop", "pause-sent", "pause-received", "nak-sent", "nak-received", "timeout", "retransmit",
	"qp-state", "qp-error", "group-added", "group-active", "group-deleted", "group-failed",
	"source-switch", "nak-aggregated", "ack-repeated", "pause-storm", "pause-storm-over", "group-regions",
	"fallback", "return", "probe-failed", "member-lost", "fault-added", "fault-removed",
}

// EventKinds is how many kinds there are.
const EventKinds = uint32(len(eventNames))

// String returns the event's name.
func (k EventKind) String() string { return eventNames[k] }

// Event is one report. Which fields count depends on the kind.
type Event struct {
	Kind     EventKind
	Port     int
	Priority uint8
	QP       wire.QPN
	PSN      wire.PSN
	Group    uint32
	Value    int64
	Text     string
}

// Tracer receives the events of one machine. It must not call back into it.
type Tracer interface {
	Trace(now vtime.Time, e Event)
}
