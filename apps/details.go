// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Details holds the results that the rows of one kind of workload report beyond those of all rows. It
// is a member of the row's JSON.
type Details interface {
	// Key returns the member's name.
	Key() string
	// Quantity returns the value that a line of expect names WORKLOAD.SCHEME.SIZE.of.which. name
	// is that whole name, for errors. known is false if there is no quantity of that name.
	Quantity(name, of, which string) (v float64, known bool, err error)
}

// Judge is Details that find failures other than wrong bytes.
type Judge interface {
	// Failures returns a line for each failure.
	Failures(row *Row) []string
}

// Untabled marks Details of rows that their workload prints itself (Printer).
type Untabled interface{ OwnText() }

// Uncompared marks Details of rows that were measured beside each other, so that none is faster than the others.
type Uncompared interface{ BesideOthers() }

// Timed is Details of rows whose run took another time than the sum of their iterations. TookUS
// returns it in microseconds.
type Timed interface{ TookUS() float64 }

// Columned is Details that add columns to tables and CSV files.
type Columned interface {
	Details
	Columns() (table, csv []Column)
}

// Column is a column's heading and the cell of one row.
type Column struct{ Head, Cell string }

// Fixed formats a number with the given number of digits after the decimal point.
func Fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// Trailing marks Details that are the last member of the row's JSON. All others come before the
// member recovery.
type Trailing interface{ AfterTraffic() }

// DetailsOf returns a row's details if they are of type D, and nil otherwise. Details of a row that
// was read from JSON are decoded now, because only the caller knows their type.
func DetailsOf[D any, P interface {
	*D
	Details
}](row Row) P {
	switch d := row.Details.(type) {
	case P:
		return d
	case *unread:
		p := P(new(D))
		if d.key == p.Key() && json.Unmarshal(d.text, p) == nil {
			return p
		}
	}
	return nil
}

// unread holds the JSON of details that have not been decoded.
type unread struct {
	key  string
	text json.RawMessage
}

// Key implements Details.
func (u *unread) Key() string { return u.key }

// Quantity implements Details.
func (*unread) Quantity(string, string, string) (v float64, known bool, err error) {
	return 0, false, nil
}

// MarshalJSON returns the unread text.
func (u *unread) MarshalJSON() ([]byte, error) { return u.text, nil }

// shared is a Row without its JSON methods, so that it encodes without details.
type shared Row

// MarshalJSON implements json.Marshaler: it adds the details to the members of the row.
func (r Row) MarshalJSON() ([]byte, error) {
	b, err := encode(shared(r))
	if err != nil || r.Details == nil {
		return b, err
	}
	d, err := encode(r.Details)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", r.Details.Key(), err)
	}
	at := len(b) - 1
	if _, last := r.Details.(Trailing); !last {
		head := shared(r)
		head.Recovery, head.Safety, head.Others, head.Lost, head.Traffic, head.Faults = nil, nil, nil, nil, nil, nil
		h, err := encode(head)
		if err != nil {
			return nil, err
		}
		at = len(h) - 1
	}
	return slices.Insert(b, at, fmt.Appendf(nil, ",%q:%s", r.Details.Key(), d)...), nil
}

// encode returns v as JSON without escaping HTML characters. The encoder of the row decides about
// the escaping.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// UnmarshalJSON implements json.Unmarshaler: it keeps the details undecoded for DetailsOf.
func (r *Row) UnmarshalJSON(b []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, (*shared)(r)); err != nil {
		return err
	}
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	for t, i := reflect.TypeFor[Row](), 0; i < t.NumField(); i++ {
		key, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		delete(members, key)
	}
	for key, text := range members { // there is one at the most
		r.Details = &unread{key, text}
	}
	return nil
}
