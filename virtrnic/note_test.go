// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/wire"
)

// TestAcknowledged: the count goes up by one with each packet that is acknowledged, whatever
// PSN it has, and software's notes are among the events.
func TestAcknowledged(t *testing.T) {
	for _, psn := range []wire.PSN{0, 1<<24 - 3} {
		p := newPair(t, pairOptions{psn: psn, log: psn == 0})
		_, from := p.region(0, 5000, 1)
		_, to := p.region(1, 5000, 0)
		first := p.qp[0].Acknowledged()
		p.recv(1, RecvWR{SGE: SGE{Addr: to.Addr(), Length: 5000, LKey: to.LKey()}})
		p.post(0, SendWR{Opcode: WRSend, SGE: SGE{Addr: from.Addr(), Length: 5000, LKey: from.LKey()}})
		if n := p.qp[0].Acknowledged() - first; n != 0 {
			t.Errorf("%d packets are acknowledged before any has come", n)
		}
		p.run()
		if n := p.qp[0].Acknowledged() - first; n != 5 {
			t.Errorf("%d packets are acknowledged, want 5", n)
		}
		p.nic[0].Note(p.net.Now, machine.Event{Kind: machine.EventFallback, Text: "why"})
		if psn == 0 && !strings.Contains(p.net.Log.String(), "A: fallback value=0 why") {
			t.Errorf("no note in\n%s", p.net.Log)
		}
	}
}
