// SPDX-License-Identifier: Apache-2.0

// Package endpoint is one RC queue pair on an interface of this host, on the wall clock:
// a small RoCE peer for experiments by hand, against a lab or any other RoCE device.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/live"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Config describes an endpoint and its connection.
type Config struct {
	Interface  string
	IP, Remote uint32 // Remote may be a group
	IPv6       bool   // address family of both (wire.IPv6Of)
	RemoteQPN  wire.QPN
	SendPSN    wire.PSN
	ReceivePSN wire.PSN
	MTU        int   // payload bytes per packet
	Rate       int64 // bit/s at which it sends
	Traffic    uint8 // DSCP and ECN
	Timeout    uint8 // verbs code
	Retries    uint8
}

// Endpoint is the queue pair with its NIC.
type Endpoint struct {
	c    Config
	loop *live.Loop
	nic  *virtrnic.NIC
	io   *neighbor
	pd   *virtrnic.PD
	cq   *virtrnic.CQ
	qp   *virtrnic.QP

	mu    sync.Mutex
	fresh chan struct{} // closed after the next input
	seen  uint64
	ended chan error
}

// Open opens the interface and connects the queue pair.
func Open(c Config) (*Endpoint, error) {
	o, err := netdev.OpenInterface(c.Interface, c.MTU+wire.RoCEHeadersMax)
	if err != nil {
		return nil, err
	}
	f, err := o.Socket()
	if err != nil {
		return nil, err
	}
	mono, err := live.NewMonotonic()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	e := &Endpoint{c: c, fresh: make(chan struct{}), ended: make(chan error, 1)}
	e.io = &neighbor{Packet: live.NewPacket(int(f.Fd())), file: f, remote: wire.HostMAC(c.Remote)}
	e.loop, err = live.New(live.Config{
		Mono: mono, IO: []live.IO{e.io}, Delays: []vtime.Duration{0}, Rate: live.Rate{Mono: mono.Now(), Dilation: 1},
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	ports := e.loop.Ports([]machine.PortConfig{{BitsPerSec: c.Rate}})
	e.nic = virtrnic.New(virtrnic.Config{
		IP: c.IP, IPv6: c.IPv6, Port: &ports[0], Pool: e.loop.Pool(), Keys: prng.New(uint64(time.Now().UnixNano())),
		Settings: virtrnic.Settings{AckEvery: 16},
	})
	e.nic.SetStack((*stack)(e))
	e.loop.Start(e.nic, e.news)
	go func() { e.ended <- e.loop.Run() }()
	if err := e.connect(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// connect takes the queue pair to RTS.
func (e *Endpoint) connect() (err error) {
	a := virtrnic.QPAttr{
		Port: 1, Access: virtrnic.AccessLocalWrite | virtrnic.AccessRemoteWrite, AV: virtrnic.AH{DGID: e.c.Remote, TrafficClass: e.c.Traffic, HopLimit: 64},
		PathMTU: e.c.MTU, DestQPN: e.c.RemoteQPN, RQPSN: e.c.ReceivePSN, SQPSN: e.c.SendPSN,
		Timeout: e.c.Timeout, RetryCnt: e.c.Retries, RNRRetry: 7, MinRNRTimer: 12,
	}
	e.loop.Call(vtime.Never, func(now vtime.Time) {
		e.pd = e.nic.AllocPD()
		if e.cq, err = e.nic.CreateCQ(1024); err != nil {
			return
		}
		if e.qp, err = e.nic.CreateQP(virtrnic.QPInit{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 1024, MaxRecvWR: 1024, SQSigAll: true}); err != nil {
			return
		}
		err = e.nic.BringUp(now, e.qp, a)
	})
	return err
}

// How often and for how long a MAC address is asked for.
const (
	askEvery = 500 * time.Millisecond
	askTimes = 6
)

// resolve asks for the remote's MAC address, by ARP or neighbor discovery, if it is not known.
func (e *Endpoint) resolve(ctx context.Context) error {
	known := false
	e.loop.Call(vtime.Never, func(vtime.Time) { known = e.io.known })
	if known {
		return nil
	}
	for range askTimes {
		e.loop.Call(vtime.Never, func(now vtime.Time) {
			f := e.loop.Pool().Get()
			f.BuildAsk(e.c.IPv6, wire.HostMAC(e.c.IP), e.c.IP, e.c.Remote)
			e.nic.SendFrame(now, f)
		})
		ask, stop := context.WithTimeout(ctx, askEvery)
		err := e.await(ask, func() bool { return e.io.known })
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	return fmt.Errorf("no host on %s answers for %v: is the lab up, and the address right?", e.c.Interface, e.Remote())
}

// Local returns the number of the queue pair.
func (e *Endpoint) Local() wire.QPN { return e.qp.Num() }

// Address returns the endpoint's own address.
func (e *Endpoint) Address() netip.Addr { return wire.AddrIn(e.c.IPv6, e.c.IP) }

// Remote returns the address it is connected to.
func (e *Endpoint) Remote() netip.Addr { return wire.AddrIn(e.c.IPv6, e.c.Remote) }

// Stats returns the counters of the NIC.
func (e *Endpoint) Stats() (s virtrnic.Stats) {
	e.loop.Call(vtime.Never, func(vtime.Time) { s = *e.nic.Stats() })
	return s
}

// Send sends a message and returns when it has been acknowledged.
func (e *Endpoint) Send(ctx context.Context, message []byte) error {
	if err := e.resolve(ctx); err != nil {
		return err
	}
	_, err := e.work(ctx, message, func(now vtime.Time, s virtrnic.SGE) error {
		return e.nic.PostSend(now, e.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: s})
	})
	return err
}

// Write writes into the remote's memory and returns when that has been acknowledged.
func (e *Endpoint) Write(ctx context.Context, message []byte, va uint64, rkey uint32) error {
	if err := e.resolve(ctx); err != nil {
		return err
	}
	_, err := e.work(ctx, message, func(now vtime.Time, s virtrnic.SGE) error {
		return e.nic.PostSend(now, e.qp, virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: s, RemoteAddr: va, RKey: rkey})
	})
	return err
}

// Recv receives a message into buf and returns its length.
func (e *Endpoint) Recv(ctx context.Context, buf []byte) (int, error) {
	return e.work(ctx, buf, func(now vtime.Time, s virtrnic.SGE) error {
		return e.nic.PostRecv(now, e.qp, virtrnic.RecvWR{SGE: s})
	})
}

// work posts one work request on the endpoint's own memory and waits for its completion.
func (e *Endpoint) work(ctx context.Context, b []byte, post func(vtime.Time, virtrnic.SGE) error) (n int, err error) {
	e.loop.Call(vtime.Never, func(now vtime.Time) {
		var mr *virtrnic.MR
		if mr, err = e.nic.RegMR(e.pd, virtrnic.Bytes(b), virtrnic.AccessLocalWrite); err == nil {
			err = post(now, virtrnic.SGE{Addr: mr.Addr(), Length: uint32(len(b)), LKey: mr.LKey()})
		}
	})
	if err != nil {
		return 0, err
	}
	// The buffer is posted first: a lab takes the request for its address as the sign that this
	// end is ready to receive.
	if err := e.resolve(ctx); err != nil {
		return 0, err
	}
	var wc virtrnic.WC
	if err := e.await(ctx, func() (ok bool) { wc, ok = e.nic.PollCQ(e.cq); return ok }); err != nil {
		return 0, err
	}
	if wc.Status != virtrnic.WCSuccess {
		return 0, fmt.Errorf("the work request completed with status %v", wc.Status)
	}
	return int(wc.ByteLen), nil
}

// await blocks until done returns true. done is called under the loop's lock.
func (e *Endpoint) await(ctx context.Context, done func() bool) error {
	for {
		e.mu.Lock()
		news := e.fresh
		e.mu.Unlock()
		ok := false
		e.loop.Call(vtime.Never, func(vtime.Time) { ok = done() })
		if ok {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return ctx.Err()
		case err := <-e.ended:
			e.ended <- err
			return fmt.Errorf("the endpoint's loop has ended: %w", err)
		}
	}
}

// news is called by the loop after each input.
func (e *Endpoint) news(vtime.Time) vtime.Time {
	seen := e.nic.Completions()
	if e.io.known {
		seen++
	}
	if seen != e.seen {
		e.seen = seen
		e.mu.Lock()
		close(e.fresh)
		e.fresh = make(chan struct{})
		e.mu.Unlock()
	}
	return vtime.Never
}

// Close ends the endpoint.
func (e *Endpoint) Close() error {
	e.loop.Stop()
	err := <-e.ended
	return errors.Join(err, e.loop.Close(), e.io.file.Close())
}

// stack answers requests for the endpoint's MAC address, and takes the replies to its own.
type stack Endpoint

// HandleFrame implements virtrnic.Stack.
func (s *stack) HandleFrame(now vtime.Time, f *wire.Frame) {
	pool := s.loop.Pool()
	if mac, ok := f.Tells(s.c.Remote); ok {
		s.io.remote, s.io.known = mac, true
	}
	q, ok := f.Asks()
	if !ok || q.IP != s.c.IP || q.IPv6() != s.c.IPv6 {
		pool.Put(f)
		return
	}
	pool.Strip(f)
	q.Answer(f, wire.HostMAC(s.c.IP))
	s.nic.SendFrame(now, f)
}

// HandleTimeout implements virtrnic.Stack.
func (s *stack) HandleTimeout(vtime.Time) {}

// NextTimeout implements virtrnic.Stack.
func (s *stack) NextTimeout() (vtime.Time, bool) { return vtime.Never, false }
