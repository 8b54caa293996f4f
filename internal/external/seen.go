// SPDX-License-Identifier: Apache-2.0

package external

import (
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// askedMax is the number of addresses asked for by the device that an adapter remembers.
const askedMax = 8

// Asked is an address whose MAC the device has asked for, and how often.
type Asked struct {
	IP    uint32
	Times uint64
}

// Seen holds the observations of the device, for diagnosis. Frames and PSNs are those since Watch;
// addresses are those since the adapter began.
type Seen struct {
	Heard bool    // it has answered for its address, asked for another, or sent a packet
	Other uint32  // an address that is not its own from which it has asked or sent; 0: none
	Asked []Asked // what it has asked for, at most askedMax

	Frames   uint64 // RoCE packets from its address
	OpCode   wire.OpCode
	Syndrome wire.Syndrome // of its last acknowledgement
	PSN      wire.PSN      // of the last one, as are:
	To       uint32
	QPN      wire.QPN

	Requests uint64   // packets of requests from it
	First    wire.PSN // of the first of them
	Last     wire.PSN // furthest of them
	Repeats  uint64   // that are not beyond those before

	Given     uint64   // packets of requests to it
	GivenPSN  wire.PSN // furthest of them
	Acks      uint64   // acknowledgements with news
	AckPSN    wire.PSN // furthest packet that it has acknowledged
	Strange   uint64   // acknowledgements of packets that it was not given
	NAKs      uint64   // RNR NAKs included
	NAKPSN    wire.PSN
	NAKReason wire.Syndrome

	Answers   uint64   // acknowledgements to it
	AnswerPSN wire.PSN // furthest of them
	Owed      bool     // it has sent a request since the last acknowledgement that covers it
	OwedPSN   wire.PSN // of the last packet of a request from it
}

// Advances grows whenever the device has come further.
func (s *Seen) Advances() uint64 { return s.Requests - s.Repeats + s.Acks }

// Seen returns the observations of the device.
func (a *Adapter) Seen() *Seen { return &a.seen }

// Watch forgets the frames seen so far, and asks the device for its MAC address in the name
// of a host until it answers or sends something.
func (a *Adapter) Watch(now vtime.Time, sender uint32) {
	a.seen = Seen{Other: a.seen.Other, Asked: a.seen.Asked}
	a.asker = sender
	a.ask(now, sender)
}

// question notes whom the device has asked for, and as whom.
func (a *Adapter) question(q wire.Ask) {
	if from := q.Sender(); from != 0 && from != a.c.IP {
		a.seen.Other = from
		return
	}
	for i := range a.seen.Asked {
		if a.seen.Asked[i].IP == q.IP {
			a.seen.Asked[i].Times++
			return
		}
	}
	if len(a.seen.Asked) == askedMax {
		a.seen.Asked = append(a.seen.Asked[:0], a.seen.Asked[1:]...)
	}
	a.seen.Asked = append(a.seen.Asked, Asked{q.IP, 1})
}

// sent records a packet from the device. It reports whether that is no acknowledgement, or one of a
// packet that the device was given.
func (a *Adapter) sent(f *wire.Frame) (given bool) {
	s := &a.seen
	s.Frames++
	s.OpCode, s.PSN, s.To, s.QPN = f.OpCode(), f.PSN(), f.DstIP(), f.DestQP()
	switch {
	case s.OpCode.Service() != wire.RC || !s.OpCode.Is(wire.OpAssigned):
	case !s.OpCode.Is(wire.OpResponse):
		if s.request() {
			a.stats.Repeats++
		}
	case s.OpCode.Info().AETH:
		return s.answer(f.AETH().Syndrome)
	}
	return true
}

// request notes a packet of a request and reports whether it is a repeat.
func (s *Seen) request() (again bool) {
	s.Owed, s.OwedPSN = true, s.PSN
	switch {
	case s.Requests == 0:
		s.First, s.Last = s.PSN, s.PSN
	case s.PSN.After(s.Last):
		s.Last = s.PSN
	default:
		again = true
		s.Repeats++
	}
	s.Requests++
	return again
}

// answer records an acknowledgement of either kind, and reports whether it is of a packet that the
// device was given.
func (s *Seen) answer(syndrome wire.Syndrome) (given bool) {
	s.Syndrome = syndrome
	if !syndrome.IsACK() {
		s.NAKs++
		s.NAKPSN, s.NAKReason = s.PSN, syndrome
		return true
	}
	switch {
	case s.Given == 0 || s.PSN.After(s.GivenPSN):
		s.Strange++
		return false
	case s.Acks == 0 || s.PSN.After(s.AckPSN):
		s.Acks++
		s.AckPSN = s.PSN
	}
	return true
}

// given notes a packet to the device.
func (a *Adapter) given(f *wire.Frame) {
	s := &a.seen
	switch op := f.OpCode(); {
	case op.Service() != wire.RC:
		return
	case op.Is(wire.OpResponse):
		if op.Info().AETH && f.AETH().Syndrome.IsACK() {
			s.answered(f.PSN())
		}
		return
	}
	if psn := f.PSN(); s.Given == 0 || psn.After(s.GivenPSN) {
		s.GivenPSN = psn
	}
	s.Given++
}

// answered notes an acknowledgement to the device. It covers all packets up to its own.
func (s *Seen) answered(psn wire.PSN) {
	if s.Answers == 0 || psn.After(s.AnswerPSN) {
		s.AnswerPSN = psn
	}
	s.Answers++
	s.Owed = s.Owed && s.OwedPSN.After(psn)
}
