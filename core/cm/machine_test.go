// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// pair is two machines on one wire.
type pair struct {
	t      *testing.T
	m      [2]*Machine
	now    vtime.Time
	wire   []flight
	rng    prng.Stream
	loss   float64
	twice  float64 // how often a datagram comes twice
	slow   float64 // how often one is late, by up to a second
	events [2][]Event
	sent   []Message // all that was sent
	ids    [2]uint32
	react  func(side int, e Event) // actions of the program, after the machine's call
	queue  []func()
}

type flight struct {
	at vtime.Time
	to int
	b  []byte
}

const hop = 10 * vtime.Microsecond

func newPair(t *testing.T, seed uint64) *pair {
	p := &pair{t: t, rng: prng.New(seed)}
	for i := range p.m {
		p.m[i] = New(Config{
			IP: p.ip(i), MTU: 4096, Seed: seed*2 + uint64(i),
			Send: func(now vtime.Time, dst uint32, mad []byte) { p.carry(now, i, dst, mad) },
			Tell: func(e Event) {
				e.Params.Private = bytes.Clone(e.Params.Private)
				p.events[i] = append(p.events[i], e)
				if p.react != nil {
					react := p.react
					p.queue = append(p.queue, func() { react(i, e) })
				}
			},
		})
	}
	return p
}

func (p *pair) ip(side int) uint32 { return 0x0a000001 + uint32(side) }

func (p *pair) carry(now vtime.Time, from int, dst uint32, mad []byte) {
	m, err := Parse(mad)
	if err != nil {
		p.t.Fatalf("it sends what it does not read: %v", err)
	}
	m.Private = bytes.Clone(m.Private)
	p.sent = append(p.sent, m)
	if dst != p.ip(1-from) {
		return // no peer is there
	}
	for copies := 1; copies > 0; copies-- {
		if p.rng.Chance(p.twice) {
			copies++
		}
		if p.rng.Chance(p.loss) {
			continue
		}
		at := now.Add(hop)
		if p.rng.Chance(p.slow) {
			at = at.Add(vtime.Duration(p.rng.IntN(1000)) * vtime.Millisecond)
		}
		p.wire = append(p.wire, flight{at, 1 - from, bytes.Clone(mad)})
	}
}

// step carries out the next action, and reports whether there was one.
func (p *pair) step() bool {
	for len(p.queue) > 0 {
		f := p.queue[0]
		p.queue = p.queue[1:]
		f()
	}
	next, side, arrival := vtime.Never, -1, -1
	for i, f := range p.wire {
		if f.at < next {
			next, arrival = f.at, i
		}
	}
	for i, m := range p.m {
		if at, armed := m.NextTimeout(); armed && at < next {
			next, side = at, i
		}
	}
	switch {
	case next == vtime.Never:
		return false
	case side >= 0:
		p.now = max(p.now, next)
		p.m[side].HandleTimeout(p.now)
	default:
		f := p.wire[arrival]
		p.wire = slices.Delete(p.wire, arrival, arrival+1)
		p.now = max(p.now, f.at)
		p.m[f.to].Handle(p.now, p.ip(1-f.to), f.b)
	}
	return true
}

// run steps until nothing is left to do.
func (p *pair) run() {
	p.t.Helper()
	for range 100000 {
		if !p.step() {
			return
		}
	}
	p.t.Fatal("it does not come to rest")
}

// check demands the machines' invariants.
func (p *pair) check() {
	p.t.Helper()
	for i, m := range p.m {
		users := map[*binding]int{}
		for id, e := range m.ends {
			waits := e.state == reqSent || e.state == repSent || e.state == dreqSent || e.state == timeWait || e.state == sidrSent
			if e.id != id || waits != (e.deadline != vtime.Never) {
				p.t.Errorf("side %d: endpoint %#x as %#x in state %d has the deadline %v", i, e.id, id, e.state, e.deadline)
			}
			if e.deadline < m.next {
				p.t.Errorf("side %d: a deadline %v is before %v", i, e.deadline, m.next)
			}
			if e.bind != nil {
				users[e.bind]++
			}
		}
		for k, b := range m.ports {
			if b.users != users[b] || b.users == 0 || b.listener != nil && (m.ends[b.listener.id] != b.listener || b.users != 1) {
				p.t.Errorf("side %d: port %v has %d users, counted are %d", i, k, b.users, users[b])
			}
		}
		for k, e := range m.peers {
			if m.ends[e.id] != e || k.id != e.peerID {
				p.t.Errorf("side %d: %v names an endpoint that is gone", i, k)
			}
		}
	}
}

func (p *pair) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// listen has side 1 listen at a port, and returns its endpoint.
func (p *pair) listen(s Space, port uint16, backlog int) uint32 {
	p.t.Helper()
	id, err := p.m[1].Create(s)
	p.must(err)
	_, err = p.m[1].Bind(id, port, false)
	p.must(err)
	p.must(p.m[1].Listen(p.now, id, backlog))
	return id
}

// ask has side 0 ask for a connection.
func (p *pair) ask(s Space, port uint16, params Params) uint32 {
	p.t.Helper()
	id, err := p.m[0].Create(s)
	p.must(err)
	p.must(p.m[0].Resolve(id, p.ip(1), port))
	p.must(p.m[0].Connect(p.now, id, params))
	return id
}

const port = 7174

var (
	asking    = Params{QPN: 0x11, ResponderResources: 2, InitiatorDepth: 3, RetryCount: 7, RNRRetryCount: 6, Private: []byte("please")}
	accepting = Params{QPN: 0x22, ResponderResources: 3, InitiatorDepth: 2, RNRRetryCount: 5, Private: []byte("granted")}
)

// accept has both programs carry out the usual steps.
func (p *pair) accept() {
	p.react = func(side int, e Event) {
		switch e.Type {
		case EventConnectRequest:
			p.ids[side] = e.ID
			_ = p.m[side].Accept(p.now, e.ID, accepting) // the peer may have given up
		case EventConnectResponse:
			p.ids[side] = e.ID
			p.must(p.m[side].Accept(p.now, e.ID, Params{}))
		}
	}
}

// everyState leaves endpoints in many states, and in ids those of a connection.
func (p *pair) everyState() {
	p.accept()
	p.listen(SpaceTCP, port, 0)
	p.listen(SpaceUDP, port, 0)
	p.ask(SpaceTCP, port, asking)
	p.run()
	p.react = nil
	p.ask(SpaceTCP, port, Params{QPN: 0x12})
	p.ask(SpaceUDP, port, Params{})
	for range 4 {
		p.step()
	}
	p.ask(SpaceTCP, port, Params{QPN: 0x13})
}

// types returns the events of a side.
func (p *pair) types(side int) (all []EventType) {
	for _, e := range p.events[side] {
		all = append(all, e.Type)
	}
	return all
}

func (p *pair) want(side int, want ...EventType) {
	p.t.Helper()
	if got := p.types(side); !slices.Equal(got, want) {
		p.t.Errorf("side %d is told %v and not %v", side, got, want)
	}
}

// TestConnection: a connection is set up, both sides have the other's parameters, and it is ended.
func TestConnection(t *testing.T) {
	p := newPair(t, 1)
	p.accept()
	p.listen(SpaceTCP, port, 0)
	p.ask(SpaceTCP, port, asking)
	p.run()
	p.want(0, EventConnectResponse)
	p.want(1, EventConnectRequest, EventEstablished)
	request, response := p.events[1][0], p.events[0][0]
	if r := request.Params; r.QPN != asking.QPN || r.ResponderResources != 3 || r.InitiatorDepth != 2 || r.RetryCount != 7 || r.RNRRetryCount != 6 ||
		!bytes.HasPrefix(r.Private, asking.Private) || len(r.Private) != 56 {
		t.Errorf("the request: %+v", r)
	}
	if r := response.Params; r.QPN != accepting.QPN || r.ResponderResources != 2 || r.InitiatorDepth != 3 || r.RNRRetryCount != 5 ||
		!bytes.HasPrefix(r.Private, accepting.Private) || len(r.Private) != 196 {
		t.Errorf("the response: %+v", r)
	}
	a, err := p.m[0].Query(p.ids[0])
	p.must(err)
	b, err := p.m[1].Query(p.ids[1])
	p.must(err)
	if a.SQPSN != b.RQPSN || a.RQPSN != b.SQPSN || a.RemoteQPN != accepting.QPN || b.RemoteQPN != asking.QPN || a.Port != b.PeerPort || b.Port != port ||
		a.Responder != b.Initiator || a.Initiator != b.Responder || a.RNR != 5 || b.RNR != 6 || a.Timeout != b.Timeout || a.MTU != 4096 || b.MTU != 4096 {
		t.Errorf("they do not agree:\n%+v\n%+v", a, b)
	}
	p.must(p.m[0].Disconnect(p.now, p.ids[0]))
	p.run()
	p.want(0, EventConnectResponse, EventDisconnected, EventTimewaitExit)
	p.want(1, EventConnectRequest, EventEstablished, EventDisconnected, EventTimewaitExit)
	p.check()
	var kinds []Attribute
	for _, m := range p.sent {
		kinds = append(kinds, m.Attribute)
	}
	if want := []Attribute{REQ, REP, RTU, DREQ, DREP}; !slices.Equal(kinds, want) {
		t.Errorf("it sends %v", kinds)
	}
}

// TestLoss: whichever messages are lost, late or doubled, both sides end in the same state, and a connection that was set
// up has each event once.
func TestLoss(t *testing.T) {
	up := 0
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			p := newPair(t, seed)
			p.loss, p.twice, p.slow = float64(seed%5)/8, float64(seed%3)/10, float64(seed%7)/20
			p.accept()
			p.listen(SpaceTCP, port, 0)
			id := p.ask(SpaceTCP, port, asking)
			p.run()
			p.check()
			a, b := p.m[0].ends[id], p.m[1].ends[p.ids[1]]
			if a.state == established && (b == nil || b.state != established) || a.state != established && b != nil && b.state == established {
				t.Errorf("one side believes in the connection: %d and %+v", a.state, b)
			}
			if a.state != established {
				return
			}
			up++
			side := int(seed % 2)
			p.must(p.m[side].Disconnect(p.now, p.ids[side]))
			p.run()
			p.check()
			for i := range 2 {
				counts := map[EventType]int{}
				for _, e := range p.events[i] {
					counts[e.Type]++
				}
				for kind, n := range counts { // a demand on each
					if n != 1 {
						t.Errorf("side %d is told %d times of %d", i, n, kind)
					}
				}
			}
			if p.types(side)[len(p.events[side])-1] != EventTimewaitExit {
				t.Errorf("side %d, which has ended it, is told %v", side, p.types(side))
			}
		})
	}
	if up < 300 {
		t.Errorf("of 400 connections only %d came about", up)
	}
}

// TestReject: each reason reaches the peer, with the private data of the program.
func TestReject(t *testing.T) {
	p := newPair(t, 1)
	refused := func(why Reason) {
		t.Helper()
		p.run()
		last := p.events[0][len(p.events[0])-1]
		if last.Type != EventRejected || last.Status != int(why) {
			t.Errorf("it is told %+v and not of reason %d", last, why)
		}
		p.check()
	}
	p.ask(SpaceTCP, port, asking)
	refused(ReasonInvalidService)
	l := p.listen(SpaceTCP, port, 1)
	p.react = func(side int, e Event) {
		if e.Type == EventConnectRequest {
			p.must(p.m[side].Reject(p.now, e.ID, []byte("no")))
		}
	}
	p.ask(SpaceTCP, port, asking)
	refused(ReasonConsumer)
	if e := p.events[0][len(p.events[0])-1]; !bytes.HasPrefix(e.Params.Private, []byte("no")) || len(e.Params.Private) != 148 {
		t.Errorf("the private data is %q", e.Params.Private)
	}
	p.react = nil
	p.m[0].mtu++ // as if the peer's port had a longer one
	p.ask(SpaceTCP, port, asking)
	p.m[0].mtu--
	refused(ReasonInvalidMTU)
	first := p.ask(SpaceTCP, port, asking) // waits for the program
	for range 3 {
		p.step()
	}
	p.ask(SpaceTCP, port, asking)
	for range 3 {
		p.step()
	}
	if e := p.events[0][len(p.events[0])-1]; e.Type != EventRejected || e.Status != int(ReasonNoResources) {
		t.Errorf("beyond the backlog it is told %+v", e)
	}
	p.must(p.m[0].Destroy(p.now, first))
	p.run()
	if p.m[1].ends[l].waiting != 0 {
		t.Error("a request that was taken back counts")
	}
	p.check()
}

// TestLateRequest: a REQ that comes again after its peer has given up, before the program had answered, has no answer.
func TestLateRequest(t *testing.T) {
	p := newPair(t, 1)
	p.listen(SpaceTCP, port, 0)
	id := p.ask(SpaceTCP, port, asking)
	late := bytes.Clone(p.wire[0].b)
	p.step()
	p.must(p.m[0].Destroy(p.now, id))
	p.run()
	p.want(1, EventConnectRequest, EventRejected)
	sent := len(p.sent)
	p.m[1].Handle(p.now, p.ip(0), late)
	if len(p.sent) != sent {
		t.Errorf("it answers %v", p.sent[sent:])
	}
	p.check()
}

// TestLateService: a request that comes shortly before a program listens is taken, of those that come much earlier as many
// as there is room for are refused late, and the rest at once.
func TestLateService(t *testing.T) {
	p := newPair(t, 1)
	p.accept()
	p.ask(SpaceTCP, port, asking)
	p.step() // the request arrives
	p.listen(SpaceTCP, port, 0)
	for len(p.events[0]) == 0 && p.step() {
	}
	p.want(0, EventConnectResponse)
	if p.now > vtime.Time(0).Add(holdTime) {
		t.Errorf("it is taken at %v", p.now)
	}
	p.run()
	for range heldMax + 1 {
		p.ask(SpaceTCP, port+1, asking)
	}
	start, refused := p.now, map[bool]int{}
	p.react = func(_ int, e Event) {
		if e.Type == EventRejected && e.Status == int(ReasonInvalidService) {
			refused[p.now.Sub(start) < holdTime]++
		}
	}
	p.run()
	if refused[true] != 1 || refused[false] != heldMax {
		t.Errorf("refused at once and later: %v", refused)
	}
	p.check()
}

// TestSlowProgram: a program that takes its time costs no connection, since its side says so.
func TestSlowProgram(t *testing.T) {
	p := newPair(t, 1)
	p.listen(SpaceTCP, port, 0)
	id := p.ask(SpaceTCP, port, asking)
	for p.now < vtime.Time(0).Add(20000*vtime.Millisecond) {
		if !p.step() {
			t.Fatal("nothing is left to do")
		}
	}
	if p.m[0].ends[id].state != reqSent {
		t.Fatalf("after %v it is in state %d", p.now, p.m[0].ends[id].state)
	}
	p.accept()
	p.must(p.m[1].Accept(p.now, p.events[1][0].ID, accepting))
	p.run()
	if p.m[0].ends[id].state != established {
		t.Errorf("it ends in state %d", p.m[0].ends[id].state)
	}
	p.check()
}

// TestUnreachable: without an answer a request is given up.
func TestUnreachable(t *testing.T) {
	for _, s := range []Space{SpaceTCP, SpaceUDP} {
		p := newPair(t, 1)
		p.loss = 1
		p.ask(s, port, asking)
		p.run()
		p.want(0, EventUnreachable)
		if p.events[0][0].Status != timedOut {
			t.Errorf("the status is %d", p.events[0][0].Status)
		}
	}
}

// TestDatagramService: the queue pair of a datagram service is found, or it is said why not.
func TestDatagramService(t *testing.T) {
	for seed := range uint64(50) {
		p := newPair(t, seed)
		p.loss, p.twice = float64(seed%4)/8, float64(seed%3)/10
		p.react = func(side int, e Event) {
			if e.Type == EventConnectRequest {
				p.must(p.m[side].Accept(p.now, e.ID, Params{QPN: 0x33, QKey: 0x01234567, Private: []byte("here")}))
			}
		}
		l := p.listen(SpaceUDP, port, 0)
		p.ask(SpaceUDP, port, Params{Private: []byte("who")})
		p.run()
		p.want(0, EventEstablished)
		p.want(1, EventConnectRequest)
		if e := p.events[0][0].Params; e.QPN != 0x33 || e.QKey != 0x01234567 || !bytes.HasPrefix(e.Private, []byte("here")) {
			t.Errorf("it is told %+v", e)
		}
		if e := p.events[1][0].Params; !bytes.HasPrefix(e.Private, []byte("who")) || len(e.Private) != 180 {
			t.Errorf("it is told %+v", e)
		}
		p.loss = 0
		p.must(p.m[1].Destroy(p.now, l))
		p.ask(SpaceUDP, port, Params{})
		p.run()
		if e := p.events[0][1]; e.Type != EventUnreachable || e.Status != int(StatusUnsupported) {
			t.Errorf("without a service it is told %+v", e)
		}
		p.check()
	}
}

// TestDestroyed: the peer of an endpoint that is destroyed learns that, whatever state it is in, and nothing is left.
func TestDestroyed(t *testing.T) {
	for steps := range 12 {
		for side := range 2 {
			p := newPair(t, 1)
			p.accept()
			p.listen(SpaceTCP, port, 0)
			id := p.ask(SpaceTCP, port, asking)
			for range steps {
				p.step()
			}
			p.queue, p.react = nil, nil
			if side == 1 {
				id = 0
				for _, e := range p.m[1].ends { // there is at most one that does not listen
					if e.state != listening {
						id = e.id
					}
				}
			}
			if id == 0 {
				continue
			}
			p.must(p.m[side].Destroy(p.now, id))
			p.run()
			p.check()
			for _, e := range p.m[1-side].ends { // a demand on each
				if e.state == established || e.state == reqSent || e.state == repSent {
					t.Errorf("side %d destroyed after %d steps: the peer is in state %d", side, steps, e.state)
				}
			}
		}
	}
}

// TestRestarted: a side that has started again can connect, though the other still knows its queue pair and its IDs.
func TestRestarted(t *testing.T) {
	p := newPair(t, 1)
	p.accept()
	p.listen(SpaceTCP, port, 0)
	p.ask(SpaceTCP, port, asking)
	p.run()
	again := newPair(t, 1) // which gives the same IDs
	p.m[0].Reset()
	p.m[0].last, p.m[0].rng = again.m[0].last, prng.New(99)
	p.ask(SpaceTCP, port, asking)
	p.run()
	if e := p.events[0][len(p.events[0])-1]; e.Type != EventRejected || e.Status != int(ReasonStale) {
		t.Errorf("it is told %+v", e)
	}
	p.want(1, EventConnectRequest, EventEstablished, EventDisconnected, EventTimewaitExit)
	p.ask(SpaceTCP, port, asking)
	p.run()
	if e := p.events[0][len(p.events[0])-1]; e.Type != EventConnectResponse {
		t.Errorf("it is told %+v", e)
	}
	p.check()
}

// TestPorts: a port belongs to one endpoint unless all agree.
func TestPorts(t *testing.T) {
	m := newPair(t, 1).m[0]
	bind := func(s Space, port uint16, reuse bool) (uint32, error) {
		id, err := m.Create(s)
		if err != nil {
			t.Fatal(err)
		}
		_, err = m.Bind(id, port, reuse)
		return id, err
	}
	id, err := bind(SpaceTCP, port, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bind(SpaceTCP, port, false); !errors.Is(err, ErrPortInUse) {
		t.Errorf("twice: %v", err)
	}
	if _, err := bind(SpaceUDP, port, false); err != nil {
		t.Errorf("in the other space: %v", err)
	}
	other, err := bind(SpaceTCP, port, true)
	if err != nil {
		t.Errorf("shared: %v", err)
	}
	if err := m.Listen(0, id, 0); !errors.Is(err, ErrPortInUse) {
		t.Errorf("to listen at a shared port: %v", err)
	}
	if err := errors.Join(m.Destroy(0, other), m.Listen(0, id, 0)); err != nil {
		t.Error(err)
	}
	if _, err := bind(SpaceTCP, port, true); !errors.Is(err, ErrPortInUse) {
		t.Errorf("beside a listener: %v", err)
	}
	if err := m.Destroy(0, id); err != nil {
		t.Error(err)
	}
	if _, err := bind(SpaceTCP, port, false); err != nil {
		t.Errorf("after the listener: %v", err)
	}
}

// TestMisuse: calls that are invalid in an endpoint's state are refused and change nothing.
func TestMisuse(t *testing.T) {
	p := newPair(t, 1)
	m := p.m[0]
	id, err := m.Create(SpaceTCP)
	p.must(err)
	for what, err := range map[string]error{ // independent of each other
		"connect": m.Connect(0, id, asking), "accept": m.Accept(0, id, asking), "reject": m.Reject(0, id, nil), "listen": m.Listen(0, id, 0),
		"disconnect": m.Disconnect(0, id), "establish": m.Establish(id),
	} {
		if !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := m.Accept(0, id+1, asking); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("of another endpoint: %v", err)
	}
	p.must(m.Resolve(id, p.ip(1), port))
	if err := m.Connect(0, id, Params{Private: make([]byte, 57)}); !errors.Is(err, ErrPrivate) {
		t.Errorf("with 57 bytes: %v", err)
	}
	p.must(m.Connect(0, id, Params{Private: make([]byte, 56)}))
	p.check()
}
