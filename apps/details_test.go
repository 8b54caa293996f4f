// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"encoding/json"
	"strings"
	"testing"
)

// inside and trailing are details that come before recovery and last.
type inside struct {
	N int `json:"n"`
}

func (*inside) Key() string { return "inside" }
func (*inside) Quantity(string, string, string) (v float64, known bool, err error) {
	return 0, false, nil
}

type trailing struct{ inside }

func (*trailing) Key() string   { return "trailing" }
func (*trailing) AfterTraffic() {}

// TestRowJSON: details are a member of the row's JSON, in the place that readers of text know,
// and are read back by who knows their type.
func TestRowJSON(t *testing.T) {
	for _, c := range []struct {
		details Details
		want    string
	}{
		{nil, `"verified":null,"lost":["h<1"],"traffic":{`},
		{&inside{7}, `"verified":null,"inside":{"n":7},"lost":["h<1"],"traffic":{`},
		{&trailing{inside{7}}, `"received_bytes":0},"trailing":{"n":7}}`},
	} {
		row := Row{Workload: "w", Lost: []string{"h<1"}, Traffic: &Traffic{Links: 1}, Details: c.details}
		b, err := row.MarshalJSON()
		if err != nil || !strings.Contains(string(b), c.want) {
			t.Errorf("%s, %v: want %s", b, err, c.want)
		}
		var again Row
		if err := json.Unmarshal(b, &again); err != nil || again.Lost[0] != "h<1" || again.Traffic.Links != 1 {
			t.Errorf("%+v, %v", again, err)
		}
		_, in := c.details.(*inside)
		if d := DetailsOf[inside](again); (d != nil) != in || in && d.N != 7 {
			t.Errorf("details %T are read as %+v", c.details, d)
		}
		if d := DetailsOf[inside](row); (d != nil) != in {
			t.Errorf("details %T are %+v", c.details, d)
		}
		if twice, err := again.MarshalJSON(); err != nil || in && string(twice) != string(b) {
			t.Errorf("read and written again: %s, %v", twice, err)
		}
	}
}
