// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"errors"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// redirect connects side 0's queue pair of UC to another address and queue pair.
func (p *pair) redirect(ip uint32, qpn wire.QPN) {
	p.t.Helper()
	if err := p.nic[0].ModifyQP(p.net.Now, p.qp[0], QPAttr{State: StateReset}, AttrState); err != nil {
		p.t.Fatal(err)
	}
	p.connectUC(0, p.qp[0], ip, qpn, StateRTS)
}

// connectUC connects a side's queue pair of UC, in reset, and stops at a state.
func (p *pair) connectUC(i int, q *QP, ip uint32, qpn wire.QPN, last QPState) {
	p.t.Helper()
	a := QPAttr{Port: 1, Access: AccessLocalWrite | AccessRemoteWrite, AV: AH{DGID: ip, TrafficClass: 26 << 2}, PathMTU: 1024, DestQPN: qpn}
	for _, s := range []struct {
		to   QPState
		mask AttrMask
	}{
		{StateInit, AttrPKeyIndex | AttrPort | AttrAccessFlags}, {StateRTR, AttrAV | AttrPathMTU | AttrDestQPN | AttrRQPSN}, {StateRTS, AttrSQPSN},
	} {
		a.State = s.to
		if err := p.nic[i].ModifyQP(p.net.Now, q, a, s.mask|AttrState); err != nil {
			p.t.Fatal(err)
		}
		if s.to == last {
			return
		}
	}
}

// sendUC sends a message of 5000 bytes to side 1 and returns the received bytes, and whether they
// arrived.
func (p *pair) sendUC() ([]byte, bool) {
	p.t.Helper()
	src, sm := p.region(0, 5000, 7)
	dst, dm := p.region(1, 5000, 0)
	p.recv(1, RecvWR{SGE: whole(dm, 5000)})
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 5000)})
	p.run()
	got := p.completions(1)
	return dst, len(got) == 1 && got[0].Status == WCSuccess && bytes.Equal(src, dst)
}

// TestAliases: a NIC takes packets to its aliases, and to no address beside them.
func TestAliases(t *testing.T) {
	const first = 10<<24 | 128<<16 | 33
	for ip, want := range map[uint32]bool{first - 1: false, first: true, first + 3: true, first + 4: false} { // each is its own case
		p := newPair(t, pairOptions{typ: TypeUC})
		p.nic[1].alias, p.nic[1].aliases = first, 4
		p.redirect(ip, p.qp[1].Num())
		if _, ok := p.sendUC(); ok != want {
			t.Errorf("sent to %v: delivered %v, want %v", wire.AddrOf(ip), ok, want)
		}
		if dropped := p.nic[1].Stats().Drops[DropNotMine] > 0; dropped == want {
			t.Errorf("sent to %v: dropped as not this host's %v", wire.AddrOf(ip), dropped)
		}
	}
}

// TestUCByPeer: a message of several packets to a group reaches the queue pair of UC that is attached
// to the group and connected to the sender, and to no other.
func TestUCByPeer(t *testing.T) {
	const group = 0xefff_c000
	p := newPair(t, pairOptions{typ: TypeUC})
	p.redirect(group, wire.QPNMulticast)
	if _, ok := p.sendUC(); ok {
		t.Error("delivered without a member")
	}
	if err := p.nic[1].AttachUC(p.qp[1], group); err != nil {
		t.Fatal(err)
	}
	p.completions(1)
	stranger, err := p.nic[1].CreateQP(QPInit{Type: TypeUC, PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1], MaxRecvWR: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.nic[1].AttachUC(stranger, group); err != nil {
		t.Fatal(err)
	}
	dst, dm := p.region(1, 5000, 0)
	src, sm := p.region(0, 5000, 9)
	p.post(0, SendWR{Opcode: WRSend, SGE: whole(sm, 5000)})
	p.run() // into the receive that is left
	p.recv(1, RecvWR{SGE: whole(dm, 5000)})
	p.post(0, SendWR{Opcode: WRSendWithImm, Imm: 0xdeadbeef, SGE: whole(sm, 5000)}) // where a datagram has its Q_Key
	p.run()
	if got := p.completions(1); len(got) != 2 || got[1].Imm != 0xdeadbeef || !bytes.Equal(src, dst) {
		t.Errorf("%d messages came, want 2: %+v", len(got), got)
	}
	far := make(Bytes, 5000) // so far up that a WRITE has no zeros where a datagram has its Q_Key
	m, err := p.nic[1].RegMRAs(p.pd[1], far, AccessLocalWrite|AccessRemoteWrite, 7<<32, ChosenKeys)
	if err != nil {
		t.Fatal(err)
	}
	p.qp[1].attr.Access |= AccessRemoteWrite
	p.post(0, SendWR{Opcode: WRRDMAWrite, SGE: whole(sm, 5000), RemoteAddr: m.Addr(), RKey: m.RKey()})
	p.run()
	if !bytes.Equal(src, far) {
		t.Error("a WRITE to the group did not arrive")
	}
	if err := p.nic[1].DestroyQP(p.net.Now, p.qp[1]); !errors.Is(err, ErrBusy) {
		t.Errorf("destroying an attached queue pair: %v, want %v", err, ErrBusy)
	}
	if err := p.nic[1].DetachMcast(p.qp[1], group); err != nil {
		t.Error(err)
	}
	if err := p.nic[0].AttachUC(newPair(t, datagrams).qp[0], group); !errors.Is(err, ErrInvalid) {
		t.Errorf("attaching UD as UC: %v, want %v", err, ErrInvalid)
	}
	if err := p.nic[1].AttachMcast(p.qp[1], group); !errors.Is(err, ErrInvalid) {
		t.Errorf("attaching UC as UD: %v, want %v", err, ErrInvalid)
	}
	for range MaxMcastQPs { // one for each sender: more than of UD
		q, err := p.nic[1].CreateQP(QPInit{Type: TypeUC, PD: p.pd[1], SendCQ: p.cq[1], RecvCQ: p.cq[1]})
		if err == nil {
			err = p.nic[1].AttachUC(q, group)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
