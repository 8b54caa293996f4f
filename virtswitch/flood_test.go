// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestFloodTTL: a control packet at the end of its life is not sent on to the group.
func TestFloodTTL(t *testing.T) {
	for _, live := range []bool{true, false} {
		l := groupLab(t, nil)
		f := l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5})
		for !live && f.TTL() > 1 {
			f.DecTTL()
		}
		l.stub[0].send(f)
		l.run()
		got := len(l.stub[1].got)
		if drops := l.sw.Stats().Drops[DropTTL]; live != (got > 0) || live != (drops == 0) {
			t.Errorf("alive %v: a member got %d packets, %d dropped for their time to live", live, got, drops)
		}
	}
}
