// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// EventKind is the kind of an event. The names of kinds appear in events.jsonl and must not change.
type EventKind uint8

// Kinds of events. The comments name the fields of Event that a kind sets. No kind occurs for every
// packet, because captures show packets.
const (
	EventDrop           EventKind = iota // A frame was dropped. Text: the reason.
	EventPauseSent                       // A pause frame was sent. Port, Priority; Value: quanta, 0 to resume.
	EventPauseReceived                   // A pause frame was received. Port, Priority; Value: quanta, 0 to resume.
	EventNakSent                         // A NAK was sent. QP, PSN; Text: the syndrome.
	EventNakReceived                     // A NAK was received. QP; PSN: from which on packets are sent again.
	EventTimeout                         // A retransmission timer fired. QP, PSN.
	EventRetransmit                      // Packets are sent again after a timeout or an RNR NAK. QP; PSN: from which on.
	EventQPState                         // A queue pair changed its state. QP; Text: the new state.
	EventQPError                         // A work request ended the connection. QP; Text: the completion status.
	EventGroupAdded                      // A switch installed members. Group; Value: number of paths.
	EventGroupActive                     // A switch activated a group. Group; PSN: the first one.
	EventGroupDeleted                    // A switch removed a group. Group; Text: why, unless the leader asked for it.
	EventGroupFailed                     // A switch could not install a group. Group; Text: the reason.
	EventSourceSwitch                    // The source of a group changed. Group; Port: by which data now arrives.
	EventNakAggregated                   // A switch sent an aggregated NAK to the source. Group, PSN.
	EventAckRepeated                     // A switch sent an ACK again for a packet that all paths already had. Group, PSN.
	EventPauseStorm                      // The watchdog detected a pause storm. Port, Priority.
	EventPauseStormOver                  // The watchdog saw the pause storm end. Port, Priority.
	EventGroupRegions                    // A leaf switch learnt registered regions. Group; Value: number of new ones.
	EventFallback                        // Transfers of a group changed to unicast. Group; Value: the epoch that ended; Text: the cause.
	EventReturn                          // Transfers changed back to multicast. Group; Value: the new epoch; Text: members left out.
	EventProbe                           // A group was tried and is not used. Group; Value: its epoch; Text: the reason.
	EventMemberLost                      // A rank was given up. Value: the rank; Text: its host and the reason.
	EventFaultAdded                      // A fault was added to the running lab. Text: the fault and its id.
	EventFaultRemoved                    // A fault was removed. Text: its id.
)

var eventNames = [...]string{
	"drop", "pause-sent", "pause-received", "nak-sent", "nak-received", "timeout", "retransmit",
	"qp-state", "qp-error", "group-added", "group-active", "group-deleted", "group-failed",
	"source-switch", "nak-aggregated", "ack-repeated", "pause-storm", "pause-storm-over", "group-regions",
	"fallback", "return", "probe-failed", "member-lost", "fault-added", "fault-removed",
}

// EventKinds is the number of kinds.
const EventKinds = uint32(len(eventNames))

// String returns the event's name.
func (k EventKind) String() string { return eventNames[k] }

// Event is one event of a machine. The kind determines which fields are set.
type Event struct {
	Kind     EventKind
	Priority uint8
	QP       wire.QPN
	PSN      wire.PSN
	Group    uint32
	Port     int
	Value    int64
	Text     string
}

// EventFields is a set of fields of Event.
type EventFields uint8

// The fields that a kind sets beside QP, Group and Text, which are set if they are not zero.
const (
	FieldPort EventFields = 1 << iota
	FieldPriority
	FieldPSN
	FieldValue
)

// Fields returns those of the four fields that the event has by its kind.
func (e *Event) Fields() EventFields {
	switch e.Kind {
	case EventDrop:
		if e.QP != 0 {
			return FieldPort | FieldPSN
		}
		return FieldPort
	case EventPauseSent, EventPauseReceived:
		return FieldPort | FieldPriority | FieldValue
	case EventPauseStorm, EventPauseStormOver:
		return FieldPort | FieldPriority
	case EventGroupAdded, EventGroupRegions:
		return FieldPort | FieldValue
	case EventFallback, EventReturn, EventProbe, EventMemberLost:
		return FieldValue
	case EventGroupActive:
		return FieldPSN | FieldValue
	case EventSourceSwitch, EventAckRepeated:
		return FieldPort | FieldPSN
	case EventNakSent, EventNakReceived, EventTimeout, EventRetransmit, EventNakAggregated:
		return FieldPSN
	}
	return 0
}

// String returns the event as transcripts of tests have it: the name of its kind, and the fields that it has.
func (e *Event) String() string {
	fields, b := e.Fields(), []byte(e.Kind.String())
	if fields&FieldPort != 0 {
		b = fmt.Appendf(b, " port=%d", e.Port)
	}
	if fields&FieldPriority != 0 {
		b = fmt.Appendf(b, " priorities=%#x", e.Priority)
	}
	if e.QP != 0 {
		b = fmt.Appendf(b, " qp=%d", e.QP)
	}
	if fields&FieldPSN != 0 {
		b = fmt.Appendf(b, " psn=%d", e.PSN)
	}
	if e.Group != 0 {
		b = fmt.Appendf(b, " group=%v", wire.AddrOf(e.Group))
	}
	if fields&FieldValue != 0 {
		b = fmt.Appendf(b, " value=%d", e.Value)
	}
	if e.Text != "" {
		b = append(append(b, ' '), e.Text...)
	}
	return string(b)
}

// Tracer receives the events of one machine. It must not call methods of that machine.
type Tracer interface {
	Trace(now vtime.Time, e Event)
}
