// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/sweeps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
)

// TestLabs: random labs keep all promises: a third of the seeds that stay, and some of the
// day's own.
func TestLabs(t *testing.T) {
	from, n := sweeps.Range(t, 200)
	blocks := []Options{{From: from, Seeds: n}, {From: 1_000_000 + 100*sweeps.Day(t), Seeds: 50}}
	if testing.Short() {
		blocks = []Options{{From: 0, Seeds: 10}}
	}
	for _, o := range blocks {
		res, err := Labs(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range res.Findings {
			t.Errorf("seed %d: %s: %s\nreplay: mcastlab fuzz --labs 1 --from %d\n%s", f.Seed, f.Class, f.Text, f.Seed, f.Lab.Compact())
		}
		t.Logf("seeds from %d on: %d labs, %d with faults, %d ended with an error, %d long, %d packet-hops", o.From, res.Labs, res.Faulty, res.Ended, res.Long, res.Hops)
		if res.Ended > res.Labs*3/4 {
			t.Errorf("%d of %d labs ended with an error: such labs show little", res.Ended, res.Labs)
		}
	}
}

// TestLabMessages: every random lab comes out of its message as it went in. All keys are among them (TestLabKeys).
func TestLabMessages(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		l, _, err := drawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		b, err := labspec.Encode(l)
		if err != nil {
			t.Errorf("seed %d: %v\n%s", seed, err, l.Compact())
			continue
		}
		if got, err := labspec.Decode(b); err != nil || !reflect.DeepEqual(got, l) {
			t.Errorf("seed %d: %v\n%s", seed, err, b)
		}
	}
}

// TestLabKeys: every key of a lab file is drawn, but for those that are left out on purpose.
// A new key that cannot be drawn is found here.
func TestLabKeys(t *testing.T) {
	want := map[string]bool{}
	keysOf("", reflect.TypeFor[lab.Lab](), want)
	root := prng.New(1)
	for seed := uint64(0); seed < 4000 && len(want) > 0; seed++ {
		d := &labDraw{r: root.Derive(strconv.FormatUint(seed, 10))}
		if s, err := d.lab(seed); err == nil {
			s.strike("", want)
		}
	}
	for path := range want {
		t.Errorf("no lab has %s", path)
	}
}

// keysOf lists the keys of a lab file by their paths.
func keysOf(path string, t reflect.Type, all map[string]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		if t.Kind() == reflect.Slice {
			path += "[]"
		}
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		p := path + "." + t.Field(i).Tag.Get("yaml")
		switch {
		case (&labDraw{}).never(p), strings.HasSuffix(p, "schemes[].name"), strings.HasSuffix(p, "allgather.name"), strings.HasSuffix(p, "reduce-scatter.name"):
			continue // a scheme without parameters is its name
		case strings.HasPrefix(p, ".workloads[].fsdp.schemes[].") && strings.HasSuffix(p, ".label"), strings.HasPrefix(p, ".workloads[].many-to-many.schemes[]."),
			strings.HasPrefix(p, ".workloads[].alltoall.schemes[]."), strings.HasPrefix(p, ".workloads[].reduce-scatter.schemes[]."), strings.HasPrefix(p, ".workloads[].fsdp.schemes[].reduce-scatter."):
			continue // these kinds have no parameters, or no label of a half
		}
		all[p] = true
		keysOf(p, t.Field(i).Type, all)
	}
}

// strike takes the keys that a sketch has out of those that are looked for.
func (s *sketch) strike(path string, want map[string]bool) {
	delete(want, path)
	for _, k := range s.kids {
		switch {
		case k.key != "":
			k.strike(path+"."+k.key, want)
		default:
			k.strike(path+"[]", want)
		}
	}
}

// TestShrinkLab: a lab that breaks a promise is reduced to the part that breaks it.
func TestShrinkLab(t *testing.T) {
	found := 0
	for seed := uint64(0); found < 2; seed++ {
		l, s, err := drawLab(seed)
		if err != nil {
			t.Fatal(err)
		}
		bad := func(l *lab.Lab) (out LabOutcome, err error) {
			for i := range l.Faults {
				if l.Faults[i].Kind() == faults.KindDelay {
					out.Violation = &Violation{Class: "delay"}
				}
			}
			return out, nil
		}
		out, _ := bad(l)
		if out.Violation == nil {
			continue
		}
		found++
		small, err := shrinkLab(s, l, out.Violation, bad)
		if err != nil || len(small.Faults) != 1 || small.Faults[0].Kind() != faults.KindDelay || len(small.Workloads) != 1 {
			t.Errorf("seed %d: %v, and this is left:\n%s", seed, err, small.Compact())
		}
	}
}

// TestLongLab: a lab without faults may take as many packet-hops as it has steps for, and not
// more than its share in one of them; with faults it has one share for all.
func TestLongLab(t *testing.T) {
	for _, c := range []struct {
		budgets, steps, looks int // of each step
		hops                  uint64
		long                  bool
	}{
		{calmTimes, 14, 2, calmTimes * labHopsMax, false},
		{calmTimes, 14, calmTimes * labLooksMax, 1, false},
		{calmTimes, 1, 2, calmTimes*labHopsMax + 1, true},
		{calmTimes, 2, calmTimes*labLooksMax + 1, 1, true},
		{1, 2, 2, labHopsMax / 2, false},
		{1, 3, 2, labHopsMax / 2, true},
		{1, 2, labLooksMax, 1, true},
	} {
		stopped := false
		w := &labWatch{cancel: func() { stopped = true }, budgets: c.budgets}
		var hops uint64
		for step := range c.steps {
			w.Update(runner.ProgressState{Doing: strconv.Itoa(step), PacketHops: hops})
			hops += c.hops
			for range c.looks - 1 {
				w.Update(runner.ProgressState{Doing: strconv.Itoa(step), PacketHops: hops})
			}
		}
		if w.long != c.long || stopped != c.long {
			t.Errorf("%+v: long %v, stopped %v", c, w.long, stopped)
		}
	}
}
