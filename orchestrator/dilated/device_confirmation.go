// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// deviceFinish is the end of a message: ranks wait for key until each external host has it, or comes no further.
type deviceFinish struct {
	rankhost.Finish
	key   string
	since time.Time
	told  bool // the operators know what the run waits for
}

// confirmTick is the interval at which devices are checked while ranks wait for the end of a message.
const confirmTick = 20 * time.Millisecond

// finish begins to wait for the end of a message. key is what ranks have put f under.
func (v *devices) finish(key string, value []byte) error {
	if v == nil {
		return fmt.Errorf("a rank waits for external hosts, and the lab has none")
	}
	f := &deviceFinish{key: rankhost.ExternalKey + rankhost.DoneKey + strings.TrimPrefix(key, rankhost.ExternalKey+rankhost.FinishKey), since: time.Now()}
	if err := json.Unmarshal(value, &f.Finish); err != nil {
		return fmt.Errorf("read what ranks wait for: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open = f
	for _, x := range v.all {
		x.end = deviceEnd{since: f.since}
	}
	select {
	case v.kick <- struct{}{}:
	default:
	}
	return nil
}

// deviceEnd is the state of a device at the end of a message.
type deviceEnd struct {
	since time.Time // when it last came further
	at    deviceProgress
	over  bool
	lack  string // empty: it has all
}

// deviceProgress holds the values that change when a device makes progress or retransmits.
type deviceProgress struct {
	advances, answers, requests uint64
	answer                      uint32
}

// confirm looks whether devices have the message, and resumes ranks once that is known of all. The lock is held.
func (v *devices) confirm(ctx context.Context, now time.Time) {
	f := v.open
	lacks, waits := []rankhost.Lack{}, []string{}
	for _, x := range v.all {
		psn, takesPart := f.PSNs[x.view.name]
		if !takesPart {
			continue
		}
		if !x.end.over {
			x.finished(wire.PSN(psn), f.Last, now)
		}
		switch {
		case !x.end.over:
			waits = append(waits, x.view.name+" "+x.view.lacks(wire.PSN(psn)))
		case x.end.lack != "":
			lacks = append(lacks, rankhost.Lack{Host: x.view.name, Why: x.end.lack})
		}
	}
	if len(waits) > 0 {
		if !f.told && now.Sub(f.since) > deviceHint {
			f.told = true
			v.d.Announce("waiting for external hosts: %s", strings.Join(waits, "; "))
		}
		return
	}
	v.open = nil
	for _, x := range v.all {
		x.since = now
	}
	b, err := json.Marshal(lacks)
	if err == nil {
		err = v.put(f.key, b)
	}
	if err != nil {
		v.end(ctx, err)
	}
}

// finished notes how far a device is with a message whose last packet has a PSN. It is over when the device has all, and
// at the end of a job, as a root, cannot ask again; or when it has come no further for as long as a run waits.
func (x *device) finished(psn wire.PSN, last bool, now time.Time) {
	s, e := &x.view.seen, &x.end
	at := deviceProgress{advances: s.Advances, answer: s.AnswerPSN}
	has := x.view.has(psn)
	if has { // then repeats count, too
		at.answers = s.Answers
		if s.Requests != nil {
			at.requests = s.Requests.Packets
		}
	}
	if at != e.at {
		e.at, e.since = at, now
	}
	patience := wall(vtime.Duration(x.view.x.Wait))
	switch still := now.Sub(e.since); {
	case has && (!last || !x.view.source || still >= wall(vtime.Duration(x.view.x.LingerTime()))):
		e.over = true
	case !has && still > patience:
		e.over, e.lack = true, x.view.lacks(psn)
	}
}

func wall(d vtime.Duration) time.Duration { return time.Duration(d / vtime.Nanosecond) }

// has reports whether a device has acknowledged the message that ends with a PSN; of the source, whether it has the
// acknowledgement and has not asked for it since.
func (v *deviceView) has(psn wire.PSN) bool {
	s := &v.seen
	if v.source {
		return s.Answers > 0 && !psn.After(wire.PSN(s.AnswerPSN)) && (s.OwedPSN == nil || wire.PSN(*s.OwedPSN).After(psn))
	}
	return s.Acks > 0 && !psn.After(wire.PSN(s.AckPSN))
}

// lacks describes the part that a device lacks of the message that ends with a PSN.
func (v *deviceView) lacks(psn wire.PSN) string {
	s := &v.seen
	switch {
	case v.source && v.has(psn):
		return fmt.Sprintf("has the acknowledgement of PSN %d, its last, and may ask for it again", psn)
	case v.source && s.Answers == 0:
		return fmt.Sprintf("has no acknowledgement; its last packet has PSN %d", psn)
	case v.source && s.OwedPSN != nil && !psn.After(wire.PSN(s.AnswerPSN)):
		return fmt.Sprintf("has sent PSN %d again, and no acknowledgement since; its last packet has PSN %d", *s.OwedPSN, psn)
	case v.source:
		return fmt.Sprintf("has the acknowledgement of PSN %d; its last packet has PSN %d", s.AnswerPSN, psn)
	case s.Acks == 0:
		return fmt.Sprintf("has acknowledged nothing; the last packet has PSN %d%s", psn, lastNAK(s))
	}
	return fmt.Sprintf("has acknowledged PSN %d; the last packet has PSN %d%s", s.AckPSN, psn, lastNAK(s))
}

func lastNAK(s *counters.Device) string {
	if s.NAK == nil || s.Acks > 0 && !wire.PSN(s.NAK.PSN).After(wire.PSN(s.AckPSN)) {
		return ""
	}
	return fmt.Sprintf(", and it asks for PSN %d (%s)", s.NAK.PSN, s.NAK.Reason)
}
