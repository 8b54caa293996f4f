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

// Details are what rows of one kind of workload say beside what all rows do. They are a
// member of the row's JSON.
type Details interface {
	// Key returns the member's name.
	Key() string
	// Quantity returns the value of WORKLOAD.SCHEME.SIZE.of.which, which a line of expect
	// names; known is false if it has no quantity of that name.
	Quantity(name, of, which string) (v float64, known bool, err error)
}

// Judge is Details that say what is wrong with their row, where its bytes do not.
type Judge interface {
	// Failures returns a line for each fault.
	Failures(row *Row) []string
}

// Untabled is Details of rows that their workload prints itself (Printer).
type Untabled interface{ OwnText() }

// Timed is Details of rows that took another time than that of their iterations.
type Timed interface{ TookUS() float64 }

// Columned is Details with columns of their own in tables and CSV files.
type Columned interface {
	Details
	Columns() (table, csv []Column)
}

// Column is a column, and what a row has there.
type Column struct{ Head, Cell string }

// Fixed prints a number with so many digits after the point.
func Fixed(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }

// Trailing is Details that are the last member of the row's JSON. Others come before what a
// row says of recovery.
type Trailing interface{ AfterTraffic() }

// DetailsOf returns a row's details if they are of type D, nil if not. Of a row that was read
// from JSON they are read now.
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

// unread is details as they stood in JSON.
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

// shared is a row without its details.
type shared Row

// MarshalJSON puts the details among the members.
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
		head.Recovery, head.Safety, head.Others, head.Lost, head.Traffic = nil, nil, nil, nil, nil
		h, err := encode(head)
		if err != nil {
			return nil, err
		}
		at = len(h) - 1
	}
	return slices.Insert(b, at, fmt.Appendf(nil, ",%q:%s", r.Details.Key(), d)...), nil
}

// encode returns v as JSON that says < and not \u003c: who writes the row decides that.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// UnmarshalJSON keeps the details for DetailsOf.
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
