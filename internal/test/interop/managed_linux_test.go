// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/internal/test/interop/rcpeer"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// wireEnd carries frames between a NIC and the other endpoint.
type wireEnd struct {
	fd  int
	buf [4352]byte
}

func (e *wireEnd) FD() int { return e.fd }

func (e *wireEnd) Receive(take func(wall int64, b []byte)) (got int, err error) {
	for ; got < 64; got++ {
		n, err := unix.Read(e.fd, e.buf[:])
		if err != nil || n == 0 {
			if err == unix.EAGAIN {
				err = nil
			}
			return got, err
		}
		take(time.Now().UnixNano(), e.buf[:n])
	}
	return got, nil
}

func (e *wireEnd) Send(frames [][]byte) (sent int, err error) {
	for _, f := range frames {
		if _, err := unix.Write(e.fd, f); err == unix.EAGAIN {
			return sent, nil
		} else if err != nil {
			return sent, err
		}
		sent++
	}
	return sent, nil
}

func (e *wireEnd) Drops() uint64 { return 0 }
func (e *wireEnd) Cut() uint64   { return 0 }

// managedNIC is an emulated NIC with a program that talks to its communication manager.
type managedNIC struct {
	t      *testing.T
	loop   *live.Loop
	nic    *virtrnic.NIC
	cm     *cm.Machine
	pd     *virtrnic.PD
	cq     *virtrnic.CQ
	qp     *virtrnic.QP
	mr     *virtrnic.MR
	mem    virtrnic.Bytes
	events []cm.Event
}

const (
	managedPort  = 7174
	managedBytes = 100_000
	managedMTU   = 1024
)

// nearWrap returns a seed of which a machine says a Starting PSN so short of 2^24 that the messages of a test go beyond it.
func nearWrap(t *testing.T, psn func(m *cm.Machine) wire.PSN) uint64 {
	t.Helper()
	for seed := range uint64(1 << 22) {
		m := cm.New(cm.Config{IP: 10<<24 | 1, MTU: 4096, Seed: seed, Send: func(vtime.Time, uint32, []byte) {}, Tell: func(cm.Event) {}})
		if psn(m) > wire.PSNMask-20 {
			return seed
		}
	}
	t.Fatal("no seed of so many gives a PSN near the wrap")
	return 0
}

// ask has a machine ask for a connection.
func ask(now vtime.Time, m *cm.Machine, p cm.Params) (id uint32, err error) {
	if id, err = m.Create(cm.SpaceTCP); err == nil {
		err = m.Resolve(id, 10<<24|2, managedPort)
	}
	if err == nil {
		err = m.Connect(now, id, p)
	}
	return id, err
}

// newManagedNIC returns a NIC, and the other endpoint on its wire.
func newManagedNIC(t *testing.T, seed uint64) (n *managedNIC, p *rcpeer.Peer) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	link := machine.PortConfig{BitsPerSec: 100e9, Delay: 2 * vtime.Microsecond}
	l, err := live.New(live.Config{Mono: mono, IO: []live.IO{&wireEnd{fd: fds[0]}}, Delays: []vtime.Duration{link.Delay}, Rate: live.Rate{Mono: mono.Now(), Dilation: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ports := l.Ports([]machine.PortConfig{link})
	n = &managedNIC{t: t, loop: l, mem: make(virtrnic.Bytes, 2*managedBytes)}
	n.nic = virtrnic.New(virtrnic.Config{IP: 10<<24 | 1, Port: &ports[0], Pool: l.Pool(), Keys: prng.New(1)})
	n.cm = cm.New(cm.Config{
		IP: n.nic.IP(), MTU: 4096, Seed: seed, Send: n.nic.SendMAD,
		Tell: func(e cm.Event) { e.Params.Private = bytes.Clone(e.Params.Private); n.events = append(n.events, e) },
	})
	n.nic.SetGSI(func(now vtime.Time, src uint32, mad []byte) { n.cm.Handle(now, src, mad) })
	n.pd = n.nic.AllocPD()
	if n.cq, err = n.nic.CreateCQ(64); err != nil {
		t.Fatal(err)
	}
	const all = virtrnic.AccessLocalWrite | virtrnic.AccessRemoteWrite
	if n.mr, err = n.nic.RegMR(n.pd, n.mem, all); err != nil {
		t.Fatal(err)
	}
	if n.qp, err = n.nic.CreateQP(virtrnic.QPInit{Type: virtrnic.TypeRC, PD: n.pd, SendCQ: n.cq, RecvCQ: n.cq, MaxSendWR: 8, MaxRecvWR: 8, SQSigAll: true}); err != nil {
		t.Fatal(err)
	}
	l.Start(n.nic, n.news)
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	p, err = rcpeer.New(rcpeer.Config{
		MAC: hwaddr(wire.HostMAC(10<<24 | 2)), IP: netip.MustParseAddr("10.0.0.2"), QPN: 0x4711, PeerIP: netip.MustParseAddr("10.0.0.1"), PeerMAC: hwaddr(wire.HostMAC(10<<24 | 1)),
		PeerPSN: 0xffffe0, MTU: managedMTU, Timeout: time.Minute, Managed: true, VA: 0x10000, RKey: 0x77, Memory: make([]byte, managedBytes),
	}, os.NewFile(uintptr(fds[1]), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Stop()
		if err := errors.Join(<-ended, l.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
	return n, p
}

func hwaddr(m wire.MAC) []byte { return m[:] }

// do calls the NIC and its manager as its node does.
func (n *managedNIC) do(f func(now vtime.Time) error) {
	n.t.Helper()
	var err error
	n.loop.Call(vtime.Never, func(now vtime.Time) { err = f(now) })
	if err != nil {
		n.t.Fatal(err)
	}
}

// await waits until something holds, with the loop's lock.
func (n *managedNIC) await(what string, holds func() bool) {
	n.t.Helper()
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); <-time.After(time.Millisecond) {
		ok := false
		n.loop.Call(vtime.Never, func(vtime.Time) { ok = holds() })
		if ok {
			return
		}
	}
	n.t.Fatalf("it does not come about: %s", what)
}

// event waits for the next event.
func (n *managedNIC) event(want cm.EventType) (e cm.Event) {
	n.t.Helper()
	n.await(fmt.Sprint("event ", want), func() bool { return len(n.events) > 0 })
	n.do(func(vtime.Time) error {
		e, n.events = n.events[0], n.events[1:]
		return nil
	})
	if e.Type != want {
		n.t.Fatalf("it is told %+v and not of %d", e, want)
	}
	return e
}

// bringUp brings the queue pair up as the manager says.
func (n *managedNIC) bringUp(now vtime.Time, id uint32) error {
	q, err := n.cm.Query(id)
	if err != nil {
		return err
	}
	a := virtrnic.QPAttr{
		Port: 1, Access: virtrnic.AccessRemoteWrite, AV: virtrnic.AH{DGID: q.Peer}, PathMTU: q.MTU, DestQPN: q.RemoteQPN, RQPSN: q.RQPSN, SQPSN: q.SQPSN,
		Timeout: 24, RetryCnt: q.Retry, RNRRetry: q.RNR, MinRNRTimer: 12, MaxQPRdAtomic: q.Initiator, MaxDestRdAtomic: q.Responder,
	}
	for _, s := range []struct {
		to   virtrnic.QPState
		mask virtrnic.AttrMask
	}{
		{virtrnic.StateInit, virtrnic.AttrPort | virtrnic.AttrPKeyIndex | virtrnic.AttrAccessFlags},
		{virtrnic.StateRTR, virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN | virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer},
		{virtrnic.StateRTS, virtrnic.AttrSQPSN | virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrMaxQPRdAtomic},
	} {
		a.State = s.to
		if err := n.nic.ModifyQP(now, n.qp, a, s.mask|virtrnic.AttrState); err != nil {
			return err
		}
	}
	return nil
}

func (n *managedNIC) params(private string) cm.Params {
	return cm.Params{QPN: n.qp.Num(), ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7, Private: []byte(private)}
}

// TestManaged: an emulated NIC and an endpoint that was written from the specification connect by communication management, in
// either role, exchange SENDs and WRITEs both ways across the wrap of both PSNs, nothing twice, and end the connection from either side.
func TestManaged(t *testing.T) {
	t.Run("it connects", func(t *testing.T) {
		seed := nearWrap(t, func(m *cm.Machine) wire.PSN {
			id, _ := ask(0, m, cm.Params{QPN: 2})
			q, _ := m.Query(id)
			return q.RQPSN
		})
		n, p := newManagedNIC(t, seed)
		var id uint32
		n.do(func(now vtime.Time) (err error) {
			id, err = ask(now, n.cm, n.params("please"))
			return err
		})
		asked, err := p.Listen(t.Context(), managedPort)
		if err != nil || asked.QPN != uint32(n.qp.Num()) || string(asked.Private[:6]) != "please" || asked.Source.String() != "10.0.0.1" || asked.PSN < 0xffffe8 {
			t.Fatalf("%+v: %v", asked, err)
		}
		accepted := make(chan error, 1)
		go func() { accepted <- p.Accept(t.Context(), []byte("granted")) }()
		if e := n.event(cm.EventConnectResponse); e.Params.QPN != 0x4711 || string(e.Params.Private[:7]) != "granted" {
			t.Errorf("the answer: %+v", e)
		}
		n.do(func(now vtime.Time) error { return errors.Join(n.bringUp(now, id), n.cm.Accept(now, id, cm.Params{})) })
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		n.converse(t.Context(), p)
		n.do(func(now vtime.Time) error { return n.cm.Disconnect(now, id) })
		n.event(cm.EventDisconnected)
		if err := p.Disconnected(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("it listens", func(t *testing.T) {
		n, p := newManagedNIC(t, 1)
		n.do(func(now vtime.Time) error {
			l, err := n.cm.Create(cm.SpaceTCP)
			if err == nil {
				_, err = n.cm.Bind(l, managedPort, false)
			}
			return errors.Join(err, n.cm.Listen(now, l, 0))
		})
		answered := make(chan rcpeer.Asked, 1)
		go func() {
			a, err := p.Connect(t.Context(), managedPort, []byte("please"))
			if err != nil {
				t.Error(err)
			}
			answered <- a
		}()
		e := n.event(cm.EventConnectRequest)
		if e.Params.QPN != 0x4711 || string(e.Params.Private[:6]) != "please" || e.PeerTo != 0x9abc {
			t.Errorf("the request: %+v", e)
		}
		n.do(func(now vtime.Time) error {
			return errors.Join(n.bringUp(now, e.ID), n.cm.Accept(now, e.ID, n.params("granted")))
		})
		if a := <-answered; a.QPN != uint32(n.qp.Num()) || string(a.Private[:7]) != "granted" {
			t.Errorf("the answer: %+v", a)
		}
		n.event(cm.EventEstablished)
		n.converse(t.Context(), p)
		if err := p.Disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		n.event(cm.EventDisconnected)
	})
	t.Run("it refuses", func(t *testing.T) {
		_, p := newManagedNIC(t, 1)
		if _, err := p.Connect(t.Context(), managedPort, nil); !errors.Is(err, rcpeer.ErrRejected) || err.Error() != "the peer rejected the connection: reason 8" {
			t.Error(err)
		}
	})
}

// news runs the manager's deadlines.
func (n *managedNIC) news(now vtime.Time) (alarm vtime.Time) {
	if at, armed := n.cm.NextTimeout(); armed && at <= now {
		n.cm.HandleTimeout(now)
	}
	alarm, _ = n.cm.NextTimeout()
	return alarm
}

// converse exchanges two messages each way, and compares every byte.
func (n *managedNIC) converse(ctx context.Context, p *rcpeer.Peer) {
	n.t.Helper()
	t := n.t
	out, in := make([]byte, managedBytes), make([]byte, managedBytes)
	prng.Fill(out, 1, 0)
	prng.Fill(in, 2, 0)
	p.PostRecv(1)
	n.do(func(now vtime.Time) error {
		copy(n.mem, out)
		half := virtrnic.SGE{Addr: n.mr.Addr() + managedBytes, Length: managedBytes, LKey: n.mr.LKey()}
		return errors.Join(
			n.nic.PostRecv(now, n.qp, virtrnic.RecvWR{SGE: half}),
			n.nic.PostSend(now, n.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: virtrnic.SGE{Addr: n.mr.Addr(), Length: managedBytes, LKey: n.mr.LKey()}}),
			n.nic.PostSend(now, n.qp, virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, RemoteAddr: 0x10000, RKey: 0x77, SGE: virtrnic.SGE{Addr: n.mr.Addr(), Length: managedBytes, LKey: n.mr.LKey()}}),
		)
	})
	if m, err := p.Recv(ctx); err != nil || !bytes.Equal(m.Data, out) {
		t.Fatalf("the NIC's SEND of %d bytes: %v; %+v", len(m.Data), err, p.Stats())
	}
	if err := p.WaitMessages(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if got := make([]byte, managedBytes); p.ReadMemory(got, 0x10000) != len(got) || !bytes.Equal(got, out) {
		t.Error("the NIC's WRITE is not what it wrote")
	}
	if err := p.Send(ctx, in); err != nil {
		t.Fatalf("%v; %+v", err, p.Stats())
	}
	n.completed(3)
	n.same("SEND", n.mem[managedBytes:], in)
	if err := p.Write(ctx, out, n.mr.Addr()+managedBytes, n.mr.RKey()); err != nil {
		t.Fatalf("%v; %+v", err, p.Stats())
	}
	n.same("WRITE", n.mem[managedBytes:], out)
	if s := p.Stats(); s.Retransmitted+s.NaksReceived+s.NaksSent+s.RNRsReceived+s.RNRsSent+s.Duplicates+s.OutOfSequence+s.ICRCErrors != 0 || len(s.Rejects) != 0 {
		t.Errorf("the endpoint counted %+v", s)
	}
}

// completed waits for that many good completions.
func (n *managedNIC) completed(want int) {
	n.t.Helper()
	n.await(fmt.Sprint(want, " completions"), func() bool {
		for {
			w, ok := n.nic.PollCQ(n.cq)
			if !ok {
				return want == 0
			}
			if w.Status != virtrnic.WCSuccess {
				n.t.Errorf("a completion: %+v", w)
			}
			want--
		}
	})
}

func (n *managedNIC) same(what string, got, want []byte) {
	n.t.Helper()
	ok := false
	n.do(func(vtime.Time) error { ok = bytes.Equal(got, want); return nil })
	if !ok {
		n.t.Errorf("the endpoint's %s is not what it sent", what)
	}
}
