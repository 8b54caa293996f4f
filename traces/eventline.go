package traces

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// Fields of a line of events.jsonl that depend on the event's kind.
const (
	fieldPort = 1 << iota
	fieldPriorities
	fieldPSN
	fieldValue
)

// fieldsOf returns which fields an event has.
func fieldsOf(ev *machine.Event) (fields uint) {
	switch ev.Kind {
	case machine.EventDrop:
		if ev.QP != 0 {
			return fieldPort | fieldPSN
		}
		return fieldPort
	case machine.EventPauseSent, machine.EventPauseReceived:
		return fieldPort | fieldPriorities | fieldValue
	case machine.EventPauseStorm, machine.EventPauseStormOver:
		return fieldPort | fieldPriorities
	case machine.EventGroupAdded, machine.EventGroupRegions:
		return fieldPort | fieldValue
	case machine.EventFallback, machine.EventReturn, machine.EventProbe, machine.EventMemberLost:
		return fieldValue
	case machine.EventGroupActive:
		return fieldPSN | fieldValue
	case machine.EventSourceSwitch, machine.EventAckRepeated:
		return fieldPort | fieldPSN
	case machine.EventNakSent, machine.EventNakReceived, machine.EventTimeout, machine.EventRetransmit, machine.EventNakAggregated:
		return fieldPSN
	}
	return 0
}

// appendEvent appends a node's event as an object of JSON, in the form that encoding/json has. Large labs have millions of them.
func appendEvent(b []byte, now vtime.Time, node string, ev *machine.Event) []byte {
	fields := fieldsOf(ev)
	b = appendFloat(append(b, `{"t_us":`...), now.Microseconds())
	if node != "" {
		b = appendString(append(b, `,"node":`...), node)
	}
	b = appendString(append(b, `,"event":`...), ev.Kind.String())
	if fields&fieldPort != 0 {
		b = strconv.AppendInt(append(b, `,"port":`...), int64(ev.Port), 10)
	}
	if fields&fieldPriorities != 0 { // a bit mask
		b = strconv.AppendUint(append(b, `,"priorities":`...), uint64(ev.Priority), 10)
	}
	if ev.QP != 0 {
		b = strconv.AppendUint(append(b, `,"qp":`...), uint64(ev.QP), 10)
	}
	if fields&fieldPSN != 0 {
		b = strconv.AppendUint(append(b, `,"psn":`...), uint64(ev.PSN), 10)
	}
	if ev.Group != 0 {
		b = append(wire.AddrOf(ev.Group).AppendTo(append(b, `,"group":"`...)), '"')
	}
	if fields&fieldValue != 0 {
		b = strconv.AppendInt(append(b, `,"value":`...), ev.Value, 10)
	}
	if ev.Text != "" {
		b = appendString(append(b, `,"text":`...), ev.Text)
	}
	return append(b, '}')
}

// appendFloat appends a finite number.
func appendFloat(b []byte, f float64) []byte {
	if abs := math.Abs(f); abs == 0 || abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	text, _ := json.Marshal(f) // of a finite number: it cannot fail
	return append(b, text...)
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, _ := json.Marshal(s) // of a string: it cannot fail
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
