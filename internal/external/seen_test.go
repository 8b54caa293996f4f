// SPDX-License-Identifier: Apache-2.0

package external

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestSeen: the observations of a device by the adapter, for diagnosis.
func TestSeen(t *testing.T) {
	families(t, func(t *testing.T, v6 bool) {
		b := newBench(1, v6)
		s := b.a.Seen()
		ask := func(from, target uint32) {
			b.device.send(b.Now, func(f *wire.Frame) { f.BuildAsk(v6, deviceMAC, from, target) })
			b.run(t)
		}
		ask(deviceIP, groupID)
		ask(deviceIP, groupID)
		ask(deviceIP+5, hostIP)
		if !s.Heard || len(s.Asked) != 1 || s.Asked[0] != (Asked{groupID, 2}) || s.Other != deviceIP+5 {
			t.Errorf("after questions: %+v", *s)
		}
		for _, psn := range []wire.PSN{wire.PSNMask, 0, 1, 0, 2} {
			b.device.send(b.Now, b.packet(deviceIP, groupID, deviceMAC, psn))
			b.run(t)
		}
		if !s.Heard || s.Frames != 5 || s.Requests != 5 || s.First != wire.PSNMask || s.Last != 2 || s.Repeats != 1 || s.To != groupID || s.QPN != 0x42 || s.Advances() != 4 {
			t.Errorf("after requests: %+v", *s)
		}
		for psn := range wire.PSN(4) {
			b.leaf.send(b.Now, b.packet(groupID, deviceIP, wire.GroupMAC(groupID), psn+10))
			b.run(t)
		}
		answer := func(psn wire.PSN, syndrome wire.Syndrome) {
			b.device.send(b.Now, b.answer(deviceIP, groupID, psn, syndrome))
			b.run(t)
		}
		answer(11, wire.SyndromeACK)
		answer(11, wire.SyndromeACK) // says nothing new
		answer(12, wire.SyndromeRemoteAcc)
		answer(500, wire.SyndromeACK)
		if s.Given != 4 || s.GivenPSN != 13 || s.Acks != 1 || s.AckPSN != 11 || s.Strange != 1 || s.NAKs != 1 || s.NAKPSN != 12 || s.NAKReason != wire.SyndromeRemoteAcc || s.Advances() != 5 {
			t.Errorf("after answers: %+v", *s)
		}
		if n := b.a.Stats().Drops[DropNotGiven]; n != 1 || len(b.leaf.got) != 5+3 {
			t.Errorf("%d acknowledgements were dropped, and the leaf has %d packets; 1 is of what the device was not sent", n, len(b.leaf.got))
		}
		told := func(psn wire.PSN, syndrome wire.Syndrome, answers uint64, furthest wire.PSN, owed bool) {
			t.Helper()
			b.leaf.send(b.Now, b.answer(groupID, deviceIP, psn, syndrome))
			b.run(t)
			if s.Answers != answers || s.AnswerPSN != furthest || s.Owed != owed {
				t.Errorf("after %v of PSN %v: %+v", syndrome, psn, *s)
			}
		}
		told(wire.PSNMask, wire.SyndromeACK, 1, wire.PSNMask, true) // PSN 2 is owed
		told(2, wire.SyndromePSNSequence, 1, wire.PSNMask, true)
		told(2, wire.SyndromeACK, 2, 2, false)
		told(1, wire.SyndromeACK, 3, 2, false)
		b.device.send(b.Now, b.packet(deviceIP, groupID, deviceMAC, 2)) // it has not heard it
		b.run(t)
		told(1, wire.SyndromeACK, 4, 2, true)
		told(2, wire.SyndromeACK, 5, 2, false)
		b.a.Watch(b.Now, hostIP)
		if s.Heard || s.Frames != 0 || s.Given != 0 || s.Other != deviceIP+5 || len(s.Asked) != 1 {
			t.Errorf("after Watch: %+v", *s)
		}
	})
}
