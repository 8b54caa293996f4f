// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// The numbers of phases that package nodeapi knows. A line does not compile if they differ.
var (
	_ = [1]struct{}{}[mrp.Active-3]
	_ = [1]struct{}{}[mrp.Failed-7]
)

// member is a program with an RC queue pair in INIT.
type member struct {
	*rawClient
	t   *testing.T
	qpn uint32
}

func newMember(t *testing.T, h *host) *member {
	t.Helper()
	c, err := dial(h.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	m := &member{rawClient: c, t: t}
	pd := m.must(opAllocPD, &byID{}).ID
	cq := m.must(opCreateCQ, &createCQ{Depth: 20}).ID
	m.qpn = m.must(opCreateQP, &createQP{PD: pd, SendCQ: cq, RecvCQ: cq, Type: uint32(virtrnic.TypeRC), SendWR: 8, RecvWR: 8, SendSGE: 1, RecvSGE: 1}).ID
	m.must(opModifyQP, &modifyQP{QPN: m.qpn, Mask: uint32(virtrnic.AttrState | virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags), Attr: attr{State: 1, Port: 1}})
	return m
}

func (m *member) must(o op, body any) reply {
	m.t.Helper()
	r, err := m.ask(o, body)
	if err != nil || r.Status != 0 {
		m.t.Fatalf("request %d: %v, %v", o, unix.Errno(r.Status), err)
	}
	return r
}

// join connects the queue pair to a group, and returns why it cannot.
func (m *member) join(group nodeapi.GID, psn uint32) error {
	m.t.Helper()
	mask := virtrnic.AttrState | virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN | virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer
	return m.modify(mask, attr{State: 2, PathMTU: 1024, DestQPN: 1, RQPSN: psn, DestRdAtomic: 1, Path: path{GID: group}})
}

// mayTransmit takes the queue pair to RTS.
func (m *member) mayTransmit(psn uint32) error {
	m.t.Helper()
	mask := virtrnic.AttrState | virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrSQPSN | virtrnic.AttrMaxQPRdAtomic
	return m.modify(mask, attr{State: 3, Timeout: 10, RetryCnt: 1, SQPSN: psn, RdAtomic: 1})
}

func (m *member) modify(mask virtrnic.AttrMask, a attr) error {
	m.t.Helper()
	r, err := m.ask(opModifyQP, &modifyQP{QPN: m.qpn, Mask: uint32(mask), Attr: a})
	if err == nil && r.Status != 0 {
		err = unix.Errno(r.Status)
	}
	return err
}

func (m *member) state() virtrnic.QPState {
	m.t.Helper()
	if _, err := m.conn.Write(request(opQueryQP, &byID{m.qpn})); err != nil {
		m.t.Fatal(err)
	}
	b, _, err := receive(m.conn)
	if err != nil || len(b) < 20 {
		m.t.Fatal(err)
	}
	return virtrnic.QPState(b[16])
}

// operators connects to both hosts.
func operators(t *testing.T, h [2]*host) (all [2]*nodeapi.Groups) {
	t.Helper()
	for i := range h {
		conn, err := nodeapi.DialProgram(h[i].path)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = nodeapi.NewGroups(conn)
		t.Cleanup(func() { _ = all[i].Close() })
	}
	return all
}

func groupGID(lower uint32) nodeapi.GID { return wire.AddrOf(wire.GroupNet | lower).As16() }

// active waits until the group is registered.
func active(t *testing.T, status func() (nodeapi.GroupStatus, error)) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		s, err := status()
		switch {
		case err != nil || s.Failed || time.Now().After(deadline):
			t.Fatalf("registration: %+v, %v", s, err)
		case s.Active:
			return
		}
	}
}

// TestGroupBound: an operator offers a group, has it registered, and takes it back; whatever else a queue pair tries is refused.
func TestGroupBound(t *testing.T) {
	h, _ := hosts(t)
	o, g := operators(t, h), groupGID(0xf001)
	a, b := newMember(t, h[0]), newMember(t, h[1])
	expect := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) || want == nil && got != nil {
			t.Errorf("%s: %v, not %v", what, got, want)
		}
	}
	expect("a group that is not offered", a.join(g, 0), unix.EINVAL)
	for i := range o {
		expect("offer", o[i].Offer(g, true), nil)
	}
	expect("offered twice", o[0].Offer(g, true), unix.EINVAL)
	expect("no group's address", o[0].Offer(wire.AddrOf(1).As16(), true), unix.EINVAL)
	expect("another first PSN", a.join(g, 1), unix.EINVAL)
	expect("no member to register", o[0].Register(g), unix.EINVAL)
	expect("join", a.join(g, 0), nil)
	expect("join", b.join(g, 0), nil)
	expect("a second at a host", newMember(t, h[0]).join(g, 0), unix.EBUSY)
	expect("another PSN to send", a.mayTransmit(1), unix.EINVAL)
	expect("transmit", a.mayTransmit(0), nil)
	expect("transmit", b.mayTransmit(0), nil)
	if r, err := newMember(t, h[0]).ask(opGroupRegister, &groupID{GID: g}); err != nil || unix.Errno(r.Status) != unix.ENOENT {
		t.Errorf("a program registers another's group: %v, %v", unix.Errno(r.Status), err)
	}
	if s, err := o[1].Status(g); err != nil || s.QPN != b.qpn {
		t.Errorf("the member at the second host is %+v, %v, and not %d", s, err, b.qpn)
	}
	var ip uint32
	h[1].loop.Call(vtime.Never, func(vtime.Time) { ip = h[1].nic.IP() })
	expect("member", o[0].Member(g, wire.AddrOf(ip).As16(), b.qpn), nil)
	expect("register", o[0].Register(g), nil)
	active(t, func() (nodeapi.GroupStatus, error) { return o[0].Status(g) })
	waits := func() (yes bool) {
		h[0].loop.Call(vtime.Never, func(vtime.Time) { yes = h[0].server.qps[wire.QPN(a.qpn)].waits.Load() })
		return yes
	}
	if !waits() {
		t.Error("what a member posts does not wait for the registration")
	}
	expect("run", o[0].Run(g), nil)
	if waits() {
		t.Error("what a member posts waits still")
	}
	_ = o[0].Close()
	for deadline := time.Now().Add(time.Minute); a.state() != virtrnic.StateErr; <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("without its operator a group goes on")
		}
	}
	a.close()
	b.close()
	_ = o[1].Close()
}

// TestGroupLeased: programs want a group, get it from a lessor, register it themselves, and take it out when they end.
func TestGroupLeased(t *testing.T) {
	h, _ := hosts(t)
	o, g := operators(t, h), groupGID(0xf002)
	a, b := newMember(t, h[0]), newMember(t, h[1])
	if r, err := a.ask(opGroupWant, &byID{}); err != nil || unix.Errno(r.Status) != unix.EOPNOTSUPP {
		t.Errorf("without a lessor: %v, %v", unix.Errno(r.Status), err)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: h[0].path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan error, 1)
	leases := 0
	go func() {
		ended <- nodeapi.LeaseGroups(conn, func() { close(ready) }, func() (nodeapi.GID, error) {
			if leases++; leases > 1 {
				return g, errors.New("there is only one")
			}
			return g, errors.Join(o[0].Offer(g, false), o[1].Offer(g, false))
		})
	}()
	<-ready
	if r := a.must(opGroupWant, &byID{}); r.Status != 0 {
		t.Errorf("a lessor gives %+v", r)
	}
	if r, err := a.ask(opGroupWant, &byID{}); err != nil || unix.Errno(r.Status) != unix.ENOSPC {
		t.Errorf("a second one: %v, %v", unix.Errno(r.Status), err)
	}
	for _, m := range []*member{a, b} {
		if err := errors.Join(m.join(g, 0), m.mayTransmit(0)); err != nil {
			t.Fatal(err)
		}
	}
	var ip uint32
	h[1].loop.Call(vtime.Never, func(vtime.Time) { ip = h[1].nic.IP() })
	a.must(opGroupMember, &groupMember{Group: g, GID: wire.AddrOf(ip).As16(), QPN: b.qpn})
	a.must(opGroupRegister, &groupID{GID: g})
	active(t, func() (nodeapi.GroupStatus, error) {
		p := mrp.Phase(a.must(opGroupStatus, &groupID{GID: g}).ID)
		return nodeapi.GroupStatus{Active: p == mrp.Active, Failed: p == mrp.Failed}, nil
	})
	a.must(opGroupSource, &groupSource{QPN: a.qpn})
	b.must(opGroupSource, &groupSource{QPN: b.qpn, New: 1})
	a.must(opDestroyQP, &byID{a.qpn})
	if r, err := a.ask(opGroupSource, &groupSource{QPN: a.qpn}); err != nil || unix.Errno(r.Status) != unix.EINVAL {
		t.Errorf("a queue pair that has gone: %v, %v", unix.Errno(r.Status), err)
	}
	b.close()
	for i := range o {
		_ = o[i].Close()
	}
	_ = conn.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	h[0].gone(t)
	h[1].gone(t)
}

// gone waits until no group is left.
func (h *host) gone(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		member, led, offered := 0, 0, 0
		h.loop.Call(vtime.Never, func(vtime.Time) {
			member, led = h.server.agent.Groups()
			offered = len(h.server.groups)
		})
		if member+led+offered == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %d memberships, %d registrations, %d offers", member, led, offered)
		}
	}
}
