// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
)

// measured describes the rows that a workload will have, as far as the lab file determines them.
type measured struct {
	schemes []string       // nil: the program's affair
	sizes   []setting.Size // nil: likewise
	fields  map[string][]string
}

// measuredBy returns the schemes, sizes and quantities of a workload's rows.
func measuredBy(w *Workload) (m measured) {
	e := w.Chosen()
	m.fields = map[string][]string{
		"jct": apps.Statistics(), "source": apps.Statistics(), "bytes": {"links", "payload", "sent", "received"},
		"fallback": {"fallbacks", "returns", "probes", "overlay", "apart", "restarted"},
		"recovery": {"cutoffs", "requests", "fetched", "duplicates", "stale"},
	}
	if own, ok := e.Kind.(apps.Measurer); ok {
		maps.Copy(m.fields, own.Quantities())
	}
	if own, ok := e.Kind.(apps.Lister); ok {
		m.schemes, m.sizes = own.Listed()
		return m
	}
	v := reflect.Indirect(reflect.ValueOf(e.Kind))
	if f := v.FieldByName("Sizes"); f.IsValid() {
		m.sizes, _ = f.Interface().([]setting.Size)
	}
	schemes := v.FieldByName("Schemes")
	if !schemes.IsValid() {
		return m
	}
	for i := range schemes.Len() {
		s := schemes.Index(i)
		if s.Kind() == reflect.Struct {
			s = s.FieldByName("Label")
		}
		m.schemes = append(m.schemes, s.String())
	}
	return m
}

// lack returns why no row has a quantity of this scheme, size, field and part, or an empty string
// if one has.
func (m *measured) lack(scheme, size, field, part string) string {
	bytes, err := ParseSize(size)
	fields := make([]string, 0, len(m.fields))
	for f := range m.fields { // sorted below
		fields = append(fields, f)
	}
	slices.Sort(fields)
	switch parts, ok := m.fields[field]; {
	case m.schemes != nil && !slices.Contains(m.schemes, scheme):
		return fmt.Sprintf("no scheme %q%s", scheme, setting.Suggest(scheme, m.schemes))
	case err != nil:
		return fmt.Sprintf("no size %q: %v", size, err)
	case m.sizes != nil && !slices.Contains(m.sizes, bytes):
		var all []string
		for _, s := range m.sizes {
			all = append(all, s.String())
		}
		return fmt.Sprintf("no size %s: use %s", size, setting.List(all[:min(len(all), 12)]))
	case !ok:
		return fmt.Sprintf("no quantity %q: use %s", field, setting.List(fields))
	case !slices.Contains(parts, part):
		return fmt.Sprintf("no %s.%s: use %s", field, part, setting.List(parts[:min(len(parts), 12)]))
	case field == "bytes" && (len(m.schemes) > 1 || len(m.sizes) > 1):
		return "bytes only if it has one scheme and one size"
	}
	return ""
}

// checkExpect verifies the lines of expect: that they can be read and, where that is asked for, that a
// run of the lab measures the quantities in them.
func (c *checking) checkExpect() {
	var labels []string
	by := map[string]measured{}
	known := c.expect && !c.spoilt.has("workloads", "topology", "hosts", "controllers")
	if known {
		for i := range c.l.Workloads {
			labels = append(labels, c.l.Workloads[i].Label())
			by[labels[i]] = measuredBy(&c.l.Workloads[i])
		}
	}
	for i, text := range c.l.Expect {
		at := fmt.Sprintf("expect[%d]", i)
		if !c.item(at) {
			continue
		}
		e, err := ParseExpect(text)
		if err != nil {
			c.failf(at, "expect: %v", err)
			continue
		}
		if !known {
			continue
		}
		_, _, _ = e.Eval(func(name string) (float64, error) { // it is not about the value
			words := strings.Split(name, ".") // five: ParseExpect checks that
			m, ok := by[words[0]]
			if !ok {
				c.failf(at, "expect: %s: there is no workload %q%s", name, words[0], setting.Suggest(words[0], labels))
			} else if lack := m.lack(words[1], words[2], words[3], words[4]); lack != "" {
				c.failf(at, "expect: %s: workload %s has %s", name, words[0], lack)
			}
			return 1, nil
		})
	}
}
