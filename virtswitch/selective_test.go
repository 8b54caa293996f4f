// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// tell sends feedback of host i with the selective bit: a NAK with the PSNs that it has.
func (l *lone) tell(i int, psn wire.PSN, syn wire.Syndrome) {
	l.t.Helper()
	e := wire.NewEnvelope(wire.Flow{Src: hostIP(i), Dst: group1, TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2})
	f := l.net.Pool.Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpAcknowledge, PKey: wire.PKeyDefault, DestQP: 1, PSN: psn, Selective: true})
	f.AddAETH(wire.AETH{Syndrome: syn, MSN: uint32(i)})
	if syn.IsNAK() {
		f.AddSACK(wire.SACK{PSN: psn.Add(1), Lo: 1})
	}
	f.Seal(1, false)
	l.stub[i].send(f)
	l.run()
}

func (l *lone) wantAtSource(what, want string) {
	l.t.Helper()
	if got := l.took(0); got != want {
		l.t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// TestSelectiveFeedback: the packets that members have beyond a gap are not passed on, that all of them
// keep it is, and no longer once one does not.
func TestSelectiveFeedback(t *testing.T) {
	l := groupLab(t, nil)
	l.tell(1, 5, wire.SyndromeACK)
	l.tell(2, 9, wire.SyndromeACK)
	l.tell(3, 7, wire.SyndromePSNSequence)
	l.wantAtSource("all have said so", "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=5 S ACK msn=1")
	l.tell(1, 9, wire.SyndromeACK)
	l.wantAtSource("a gap", "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=6 S ACK msn=3\n10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=7 S NAK(sequence) msn=3")
	l.feed(2, 10, wire.SyndromeACK) // goes back N from now on
	l.tell(3, 8, wire.SyndromeACK)
	l.wantAtSource("one goes back N", "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=8 ACK msn=3")
}

// TestSelectiveRecall: a member's NAK that came while a smaller one was being answered is
// passed on when it is the smallest, though the member does not repeat it.
func TestSelectiveRecall(t *testing.T) {
	l := groupLab(t, nil)
	l.tell(1, 5, wire.SyndromePSNSequence)
	l.tell(2, 9, wire.SyndromePSNSequence)
	l.tell(3, 20, wire.SyndromeACK)
	l.took(0)
	l.tell(1, 5, wire.SyndromePSNSequence)
	l.wantAtSource("the first gap again", "")
	l.tell(1, 21, wire.SyndromeACK)
	l.wantAtSource("it is filled", "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=8 S ACK msn=2\n10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=9 S NAK(sequence) msn=2")
	l.tell(2, 21, wire.SyndromeACK)
	l.wantAtSource("so is the second", "10.254.0.1>10.0.0.1 RC_ACKNOWLEDGE qp=100 psn=20 S ACK msn=3")
}

// TestSelectiveRecallOnce: a NAK that has been answered is not passed on again when PSNs come
// round to its packet, 2^24 packets later, whether the gap was filled by an acknowledgement,
// by a later NAK, or by another member's turn as source.
func TestSelectiveRecallOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		fill func(l *lone)
	}{
		{"acknowledged", func(l *lone) { l.tell(1, 10, wire.SyndromeACK) }},
		{"an RNR NAK", func(l *lone) { l.tell(1, 11, wire.SyndromeRNR) }},
		{"late NAK", func(l *lone) { l.tell(1, 10, wire.SyndromeACK); l.tell(1, 5, wire.SyndromePSNSequence) }},
		{"source meanwhile", func(l *lone) {
			for _, psn := range []wire.PSN{10, 12} {
				for i := 1; i < 4; i++ {
					l.tell(i, psn, wire.SyndromeACK)
				}
				if psn == 10 {
					l.stub[1].send(l.data(hostIP(1), group1, 9, 11, 26<<2))
					l.run()
					l.tell(0, 11, wire.SyndromeACK)
					l.tell(2, 11, wire.SyndromeACK)
					l.tell(3, 11, wire.SyndromeACK)
					l.stub[0].send(l.data(hostIP(0), group1, 9, 12, 26<<2))
					l.run()
				}
			}
		}},
	} {
		l := groupLab(t, nil)
		for i := 1; i < 4; i++ {
			l.tell(i, 4, wire.SyndromeACK)
		}
		l.tell(1, 5, wire.SyndromePSNSequence)
		c.fill(l)
		l.stub[0].got = nil
		// Round to the packet before: no member asks for a packet any more.
		psn := wire.PSN(12)
		for psn != 4 {
			next := psn.Add(1 << 22)
			if d := (4 - psn) & wire.PSNMask; d < 1<<22 {
				next = 4
			}
			psn = next
			for i := 3; i > 0; i-- {
				l.stub[0].send(l.data(hostIP(0), group1, 9, psn, 26<<2))
				l.tell(i, psn, wire.SyndromeACK)
			}
		}
		if got := l.took(0); strings.Contains(got, "NAK") {
			t.Errorf("%s: asked for again after 2^24 packets:\n%s", c.name, got)
		}
	}
}
