// SPDX-License-Identifier: Apache-2.0

package sim_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/rank"
)

// unlike compares all that two labs hold, by reflection, so that nothing that Probe does not visit is forgotten. It
// returns the path of the first difference.
type unlike struct{ seen map[[2]uintptr]bool }

// unvisited are fields and types whose contents are names, spare memory or programs, and no state of the fabric.
var unvisited = map[string]bool{
	"Net.skips": true, "Net.cfg": true, "Net.pool": true, "Net.queue": true, "Net.far": true, "coder.base": true, "coder.limit": true, "Net.sink": true, "Net.log": true,
	"Net.turn": true, "Net.tasks": true, "Net.ready": true, "Net.running": true, "Net.timed": true, "Net.freeTimed": true, "Net.stats": true, "Net.graph": true, "Net.layout": true,
	"Stats.Skipped": true, "Stats.Periods": true, "Stats.Skips": true, "host.net": true, "host.tasks": true, "NIC.scratch": true, "NIC.pool": true,
	"Switch.pool": true, "Agent.cfg": true, "Frame.block": true, "buffer.freeIndex": true, "buffer.shared": true, "channel.server": true, "channel.job": true,
	"Net.random": true, "Net.decider": true,
}

func (u *unlike) find(path string, a, b reflect.Value) string {
	if a.Kind() != b.Kind() || a.IsValid() != b.IsValid() {
		return path
	}
	switch a.Kind() {
	case reflect.Invalid, reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return ""
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return path
			}
			return ""
		}
		key := [2]uintptr{a.Pointer(), b.Pointer()}
		if u.seen[key] {
			return ""
		}
		u.seen[key] = true
		return u.find(path, a.Elem(), b.Elem())
	case reflect.Interface:
		return u.find(path, a.Elem(), b.Elem())
	case reflect.Map:
		if a.Len() != b.Len() {
			return path
		}
		for _, k := range a.MapKeys() {
			if k.Kind() == reflect.Pointer {
				continue
			}
			if d := u.find(fmt.Sprintf("%s[%v]", path, k), a.MapIndex(k), b.MapIndex(k)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Slice, reflect.Array:
		if a.Len() != b.Len() {
			return path
		}
		for i := range a.Len() {
			if d := u.find(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
				return d
			}
		}
		return ""
	case reflect.Struct:
		if a.Type().Name() == "Pool" { // spare frames
			return ""
		}
		return u.fields(path, a, b)
	}
	if !a.Equal(b) {
		return fmt.Sprintf("%s: %v, %v", path, a, b)
	}
	return ""
}

func (u *unlike) fields(path string, a, b reflect.Value) string {
	name := a.Type().Name()
	switch {
	case strings.HasPrefix(name, "FIFO["):
		n := a.FieldByName("n").Uint()
		if n != b.FieldByName("n").Uint() {
			return path
		}
		at := func(q reflect.Value, i uint64) reflect.Value {
			buf := q.FieldByName("buf")
			return buf.Index(int((q.FieldByName("head").Uint() + i) & uint64(buf.Len()-1)))
		}
		for i := range n {
			if d := u.find(fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i)); d != "" {
				return d
			}
		}
		return ""
	case name == "Frame":
		n := int(a.FieldByName("n").Uint())
		ha, hb := a.FieldByName("h").Slice(0, n).Bytes(), b.FieldByName("h").Slice(0, n).Bytes()
		if !bytes.Equal(ha, hb) || a.FieldByName("flags").Uint() != b.FieldByName("flags").Uint() || a.FieldByName("pay").Uint() != b.FieldByName("pay").Uint() {
			return fmt.Sprintf("%s: %x, %x", path, ha, hb)
		}
		return ""
	}
	for i := range a.NumField() {
		field := name + "." + a.Type().Field(i).Name
		if unvisited[field] {
			continue
		}
		if d := u.find(path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i)); d != "" {
			return d
		}
	}
	return ""
}

// TestSkipState: at instants in the middle of runs every field of every node and link has the value of a run without
// skips; and so do the pending events.
func TestSkipState(t *testing.T) {
	compared, skipped := 0, 0
	for seed := range uint64(40) {
		l := drawSkipLab(t, seed)
		var end vtime.Time
		program := l.job.Program
		l.job.Program = func(k *rank.Rank) error {
			err := program(k)
			end = max(end, k.Now())
			return err
		}
		l.outcome(t, false)
		l.job.Program = program
		for part := range vtime.Time(3) {
			at := end / 4 * (part + 1)
			c := l.cfg
			whole, err := sim.New(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range l.cross {
				f(whole)
			}
			whole.At(at, func(vtime.Time) {
				c.Skip = true
				n, err := sim.New(c)
				if err != nil {
					t.Fatal(err)
				}
				n.SkipEagerly()
				for _, f := range l.cross {
					f(n)
				}
				n.At(at, func(vtime.Time) {
					u := unlike{map[[2]uintptr]bool{}}
					compared++
					if n.Stats().Skips > 0 {
						skipped++
					}
					if d := u.find("", reflect.ValueOf(whole).Elem(), reflect.ValueOf(n).Elem()); d != "" {
						t.Fatalf("seed %d: %s: at %v, after %d periods left out, another state in %s", seed, l.what, at, n.Stats().Periods, d)
					}
					if got, want := n.Pending(), whole.Pending(); got != want {
						t.Fatalf("seed %d: %s: at %v other events are to come:\n%s\n%s", seed, l.what, at, got, want)
					}
				})
				_ = n.Run(l.job) // TestSkip has its outcome
			})
			_ = whole.Run(l.job) // likewise
		}
	}
	t.Logf("%d states, %d of them after periods were left out", compared, skipped)
	if skipped < compared/5 {
		t.Error("the test is of nothing")
	}
}
