// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"reflect"
	"regexp"
	"testing"
)

// complete checks that every number of a machine's statistics has a counter, and one only.
func complete[S any](t *testing.T, what string, table []count[S]) {
	t.Helper()
	var s S
	v := reflect.ValueOf(&s).Elem()
	field := map[uint64]string{}
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.Uint64 {
			f.SetUint(uint64(i + 1))
			field[uint64(i+1)] = v.Type().Field(i).Name
		}
	}
	for _, c := range table {
		n := c.of(&s)
		if field[n] == "" {
			t.Errorf("%s: counter %s shows what another shows", what, c.Name)
		}
		delete(field, n)
		if !regexp.MustCompile(`^[a-z][a-z_]*[a-z]$`).MatchString(c.Name) || len(c.Doc) < 8 {
			t.Errorf("%s: counter %q, %q", what, c.Name, c.Doc)
		}
	}
	for _, name := range field { // independent of each other
		t.Errorf("%s: %s has no counter", what, name)
	}
}

// TestComplete: all counters of machines are shown, each number under one name.
func TestComplete(t *testing.T) {
	complete(t, "switch", switchCounts)
	complete(t, "NIC", nicCounts)
	complete(t, "agent", agentCounts)
	complete(t, "adapter", adapterCounts)
	complete(t, "port", portCounts)
	for _, kind := range Kinds() {
		seen := map[string]bool{}
		for _, c := range Names(kind) {
			if seen[c.Name] {
				t.Errorf("%s: two counters %s", kind, c.Name)
			}
			seen[c.Name] = true
		}
		for _, r := range Reasons(kind) {
			if seen["drop "+r] {
				t.Errorf("%s: two reasons %s", kind, r)
			}
			seen["drop "+r] = true
		}
	}
}

// TestSince: earlier counts are subtracted, everywhere.
func TestSince(t *testing.T) {
	var p Port
	v := reflect.ValueOf(&p).Elem()
	for i := range v.NumField() {
		if v.Field(i).Kind() == reflect.Uint64 {
			v.Field(i).SetUint(uint64(10 * (i + 1)))
		}
	}
	n := Node{Ports: []Port{p}, Counts: map[string]uint64{"sent": 7}, Drops: map[string]uint64{"ttl": 2, "icrc": 3}}
	before := Node{Ports: []Port{p}, Counts: map[string]uint64{"sent": 3}, Drops: map[string]uint64{"ttl": 2, "icrc": 1}}
	n.Since(&before)
	if n.Ports[0] != (Port{}) {
		t.Errorf("port %+v, want nothing", n.Ports[0])
	}
	if n.Counts["sent"] != 4 || len(n.Drops) != 1 || n.Drops["icrc"] != 2 {
		t.Errorf("counts %v, drops %v", n.Counts, n.Drops)
	}
}
