// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"errors"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/drivers/live"
)

// TestLateness: a run that ended by a NIC's timeout is the server's fault if a frame or a rank was
// late by at least the timeout, and not otherwise.
func TestLateness(t *testing.T) {
	err := errors.New("send: transport retry counter exceeded")
	for _, c := range []struct {
		sent, acted, waitsMS int64
		late                 bool
	}{
		{100, 0, 262, false},
		{261, 3, 262, false},
		{400, 0, 262, true},
		{1, 400, 262, true},
		{400, 0, 524, false},
	} {
		lag := live.NewLag()
		for _, ns := range []int64{1000, c.sent * 1e6} {
			if err := lag.Sent.RecordValue(ns); err != nil {
				t.Fatal(err)
			}
		}
		if c.acted > 0 {
			if err := lag.Acted.RecordValue(c.acted * 1e6); err != nil {
				t.Fatal(err)
			}
		}
		got := judgeLateness(err, lag, float64(c.waitsMS)*1000)
		var late *LateError
		if errors.As(got, &late) != c.late || !errors.Is(got, err) || c.late && late.Waits != time.Duration(c.waitsMS)*time.Millisecond {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
