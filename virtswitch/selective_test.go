package virtswitch

import (
	"testing"

	"github.com/mcastlab/mcastlab/wire"
)

// tell sends feedback of host i that has the selective bit, a NAK with what it has.
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

// TestSelectiveFeedback: what members have beyond a gap is not passed on, that all of them
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
