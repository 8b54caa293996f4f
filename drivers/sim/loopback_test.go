// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"bytes"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// loops is a net in which a NIC sends to itself by two pairs of queue pairs, and to another by a third.
type loops struct {
	net  *Net
	nics [2]*virtrnic.NIC
	dst  []virtrnic.Bytes
}

// newLoops posts messages to the NIC itself and to the other at several instants.
func newLoops(t *testing.T) *loops {
	t.Helper()
	const size = 20_000
	n := checkedStar(t, 2)
	l := &loops{net: n, nics: [2]*virtrnic.NIC{n.NIC(0), n.NIC(1)}}
	src := make(virtrnic.Bytes, size)
	for i := range src {
		src[i] = byte(i * 7)
	}
	for _, to := range []int{0, 1, 0} { // the NIC of host 0 sends to these
		var qp [2]*virtrnic.QP
		var pd [2]*virtrnic.PD
		for i, nic := range []*virtrnic.NIC{l.nics[0], l.nics[to]} {
			pd[i] = nic.AllocPD()
			cq, err := nic.CreateCQ(64)
			if err != nil {
				t.Fatal(err)
			}
			if qp[i], err = nic.CreateQP(virtrnic.QPInit{PD: pd[i], SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxRecvWR: 8, SQSigAll: true}); err != nil {
				t.Fatal(err)
			}
		}
		for i, at := range []int{0, to} {
			a := virtrnic.QPAttr{Port: 1, PathMTU: 1024, AV: virtrnic.AH{DGID: l.nics[(1-i)*to].IP()}, DestQPN: qp[1-i].Num(), Timeout: 14, RetryCnt: 7, RNRRetry: 7}
			if err := l.nics[at].BringUp(0, qp[i], a); err != nil {
				t.Fatal(err)
			}
		}
		sm, err := l.nics[0].RegMR(pd[0], src, virtrnic.AccessLocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		for k := range 4 {
			dst := make(virtrnic.Bytes, size)
			dm, err := l.nics[to].RegMR(pd[1], dst, virtrnic.AccessLocalWrite)
			if err != nil {
				t.Fatal(err)
			}
			l.dst = append(l.dst, dst)
			n.At(vtime.Time(k)*700*vtime.Time(vtime.Nanosecond), func(now vtime.Time) {
				if err := l.nics[to].PostRecv(now, qp[1], virtrnic.RecvWR{SGE: virtrnic.SGE{Addr: dm.Addr(), Length: size, LKey: dm.LKey()}}); err != nil {
					t.Error(err)
				}
				if err := l.nics[0].PostSend(now, qp[0], virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: virtrnic.SGE{Addr: sm.Addr(), Length: size, LKey: sm.LKey()}}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return l
}

// TestLoopback: a NIC's messages to itself, beside those to others, are, completion by completion, the same
// whether the loop looks at the transmitter only when it must (machine: starts are deadlines) or at every start.
func TestLoopback(t *testing.T) {
	lazy, plain := newLoops(t), newLoops(t)
	if err := lazy.net.Drain(); err != nil {
		t.Fatal(err)
	}
	for plain.net.poll() {
	}
	for i, l := range []*loops{lazy, plain} {
		s := l.nics[0].Stats()
		if s.Loopback == 0 || s.SentPkts == 0 || l.nics[0].Failures() != 0 || s.MessagesSent != 12 || s.Retransmitted != 0 {
			t.Errorf("driver %d: %d frames came back, %d were sent, %d again, for %d messages", i, s.Loopback, s.SentPkts, s.Retransmitted, s.MessagesSent)
		}
		for k, dst := range l.dst {
			if !bytes.Equal(dst, lazy.dst[0]) || dst[1] != 7 {
				t.Errorf("driver %d: message %d has other bytes", i, k)
			}
		}
	}
	for i := range 2 {
		if a, b := lazy.nics[i], plain.nics[i]; a.Digest() != b.Digest() || *a.Stats() != *b.Stats() {
			t.Errorf("NIC %d: completions %x and %x, counters\n%+v\n%+v", i, a.Digest(), b.Digest(), *a.Stats(), *b.Stats())
		}
	}
}
