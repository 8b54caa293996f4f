// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// appendEvent appends a node's event as an object of JSON, in the form that encoding/json has. Large labs have millions of them.
func appendEvent(b []byte, now vtime.Time, node string, ev *machine.Event) []byte {
	fields := ev.Fields()
	b = appendFloat(append(b, `{"t_us":`...), now.Microseconds())
	if node != "" {
		b = appendString(append(b, `,"node":`...), node)
	}
	b = appendString(append(b, `,"event":`...), ev.Kind.String())
	if fields&machine.FieldPort != 0 {
		b = strconv.AppendInt(append(b, `,"port":`...), int64(ev.Port), 10)
	}
	if fields&machine.FieldPriority != 0 { // a bit mask
		b = strconv.AppendUint(append(b, `,"priorities":`...), uint64(ev.Priority), 10)
	}
	if ev.QP != 0 {
		b = strconv.AppendUint(append(b, `,"qp":`...), uint64(ev.QP), 10)
	}
	if fields&machine.FieldPSN != 0 {
		b = strconv.AppendUint(append(b, `,"psn":`...), uint64(ev.PSN), 10)
	}
	if ev.Group != 0 {
		b = append(wire.AddrOf(ev.Group).AppendTo(append(b, `,"group":"`...)), '"')
	}
	if fields&machine.FieldValue != 0 {
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
