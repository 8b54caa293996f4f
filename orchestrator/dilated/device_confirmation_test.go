// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/lab"
)

// endPSN is the last of a message in these tests, which begins before the wrap.
const endPSN = 3

// TestHas: a receiver has a message that it has acknowledged, at its last PSN and not one before, and a source one of which it has
// the acknowledgement, unless it has asked for that since.
func TestHas(t *testing.T) {
	psn := func(p uint32) *uint32 { return &p }
	for _, c := range []struct {
		source bool
		seen   counters.Device
		has    bool
		lacks  string
	}{
		{false, counters.Device{}, false, "has acknowledged nothing; the last packet has PSN 3"},
		{false, counters.Device{Acks: 1, AckPSN: 0xffffff}, false, "has acknowledged PSN 16777215; the last packet has PSN 3"},
		{false, counters.Device{Acks: 1, AckPSN: 2, NAK: &counters.DeviceNAK{Reason: "RNR", PSN: 3}}, false, "PSN 3, and it asks for PSN 3 (RNR)"},
		{false, counters.Device{Acks: 9, AckPSN: 3}, true, ""},
		{false, counters.Device{Acks: 9, AckPSN: 4}, true, ""},
		{true, counters.Device{Acks: 9, AckPSN: 3}, false, "has no acknowledgement; its last packet has PSN 3"},
		{true, counters.Device{Answers: 1, AnswerPSN: 0xffffff}, false, "has the acknowledgement of PSN 16777215; its last packet has PSN 3"},
		{true, counters.Device{Answers: 1, AnswerPSN: 3}, true, ""},
		{true, counters.Device{Answers: 1, AnswerPSN: 3, OwedPSN: psn(2)}, false, "has sent PSN 2 again, and no acknowledgement since"},
		{true, counters.Device{Answers: 1, AnswerPSN: 3, OwedPSN: psn(3)}, false, "has sent PSN 3 again"},
		{true, counters.Device{Answers: 1, AnswerPSN: 3, OwedPSN: psn(4)}, true, ""}, // of the next message
	} {
		v := deviceView{source: c.source, seen: c.seen}
		if has := v.has(endPSN); has != c.has || !has && !strings.Contains(v.lacks(endPSN), c.lacks) {
			t.Errorf("%+v: %v, %s", c.seen, has, v.lacks(endPSN))
		}
	}
}

// TestFinished: the run waits for a device as long as it makes progress, and for a root at the end of a job until it has been
// silent for its linger time; a device without progress for the wait has failed and lacks the rest.
func TestFinished(t *testing.T) {
	begin := time.Now() // any instant
	linger := lab.Duration(2 * vtime.Second)
	type step struct {
		after time.Duration
		seen  counters.Device
		over  bool
		lack  bool
	}
	done := counters.Device{Answers: 5, AnswerPSN: endPSN, Requests: &counters.DeviceRequests{Packets: 9}}
	again, owed := done, done
	again.Answers, again.Requests = 6, &counters.DeviceRequests{Packets: 10}
	psn := uint32(endPSN)
	owed.Requests, owed.OwedPSN = again.Requests, &psn
	for name, c := range map[string]struct { // independent of each other
		source, last bool
		steps        []step
	}{
		"receiver":       {steps: []step{{0, counters.Device{}, false, false}, {time.Second, counters.Device{Acks: 1, AckPSN: endPSN, Advances: 1}, true, false}}},
		"receiver, last": {last: true, steps: []step{{0, counters.Device{Acks: 1, AckPSN: endPSN, Advances: 1}, true, false}}},
		"comes further": {steps: []step{
			{4 * time.Second, counters.Device{Acks: 1, AckPSN: 0, Advances: 1}, false, false}, {8 * time.Second, counters.Device{Acks: 2, AckPSN: 1, Advances: 2}, false, false},
			{13 * time.Second, counters.Device{Acks: 2, AckPSN: 1, Advances: 2}, false, false}, {14 * time.Second, counters.Device{Acks: 2, AckPSN: 1, Advances: 2}, true, true},
		}},
		"never":      {steps: []step{{5 * time.Second, counters.Device{}, false, false}, {6 * time.Second, counters.Device{}, true, true}}},
		"root":       {source: true, steps: []step{{0, done, true, false}}},
		"root, last": {source: true, last: true, steps: []step{{0, done, false, false}, {time.Second, done, false, false}, {2 * time.Second, done, true, false}}},
		"root asks again": {source: true, last: true, steps: []step{
			{0, done, false, false}, {time.Second, owed, false, false}, {3 * time.Second, again, false, false}, {4 * time.Second, again, false, false}, {5 * time.Second, again, true, false},
		}},
		"root is not answered": {source: true, last: true, steps: []step{{0, done, false, false}, {time.Second, owed, false, false}, {7 * time.Second, owed, true, true}}},
	} {
		x := device{view: deviceView{source: c.source, x: lab.External{Wait: lab.Duration(5 * vtime.Second), Linger: &linger}}, end: deviceEnd{since: begin}}
		for i, s := range c.steps {
			x.view.seen = s.seen
			x.finished(wire.PSN(endPSN), c.last, begin.Add(s.after))
			if x.end.over != s.over || (x.end.lack != "") != s.lack {
				t.Errorf("%s, step %d: over %v, lack %q", name, i, x.end.over, x.end.lack)
			}
		}
	}
}
