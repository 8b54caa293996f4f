// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/external"
)

// Device is the state of the device behind an external host, as its port has observed it: frames and
// PSNs since the last workload began, addresses since the lab was deployed.
type Device struct {
	Heard    bool            `json:"heard"` // it has answered for its address, asked for another, or sent a packet
	MAC      string          `json:"mac,omitempty"`
	Other    string          `json:"other_address,omitempty"` // not its own, from which it asked or sent
	Asked    []DeviceAsked   `json:"asked,omitempty"`
	Frames   uint64          `json:"frames"`
	Last     *DeviceFrame    `json:"last,omitempty"`
	Requests *DeviceRequests `json:"requests,omitempty"`
	Given    uint64          `json:"given"`               // packets of requests to it
	GivenPSN uint32          `json:"given_psn,omitempty"` // furthest of them
	Acks     uint64          `json:"acks"`                // acknowledgements with news
	AckPSN   uint32          `json:"ack_psn,omitempty"`   // furthest packet acknowledged
	Strange  uint64          `json:"acks_strange"`        // acknowledgements of packets that it was not given
	NAK      *DeviceNAK      `json:"nak,omitempty"`       // the last
	Answers  uint64          `json:"answers,omitempty"`   // acknowledgements to it
	// AnswerPSN is the furthest packet that was acknowledged to it. OwedPSN is the last packet of a request from
	// it, if no acknowledgement since covers it.
	AnswerPSN uint32  `json:"answer_psn,omitempty"`
	OwedPSN   *uint32 `json:"owed_psn,omitempty"`
	Advances  uint64  `json:"advances"` // grows whenever the device has come further
}

// DeviceAsked is an address whose MAC the device has asked for.
type DeviceAsked struct {
	Address string `json:"address"`
	Times   uint64 `json:"times"`
}

// DeviceFrame is the last packet from a device.
type DeviceFrame struct {
	OpCode string `json:"opcode"`
	PSN    uint32 `json:"psn"`
	To     string `json:"to"`
	QPN    uint32 `json:"qpn"` // that it is for
}

// DeviceRequests are the packets of requests from a device.
type DeviceRequests struct {
	Packets  uint64 `json:"packets"`
	FirstPSN uint32 `json:"first_psn"`
	LastPSN  uint32 `json:"last_psn"` // furthest
	Repeats  uint64 `json:"repeats"`  // not beyond those before
}

// DeviceNAK is the last negative acknowledgement of a device.
type DeviceNAK struct {
	Reason string `json:"reason"`
	PSN    uint32 `json:"psn"`
	Times  uint64 `json:"times"` // of any reason
}

// deviceOf returns the observations of an adapter.
func deviceOf(a *external.Adapter) *Device {
	s := a.Seen()
	addr := func(ip uint32) string { return a.NIC().Addr(ip).String() }
	d := &Device{
		Heard: s.Heard, Frames: s.Frames, Given: s.Given, GivenPSN: uint32(s.GivenPSN),
		Acks: s.Acks, AckPSN: uint32(s.AckPSN), Strange: s.Strange, Advances: s.Advances(),
	}
	if d.Answers, d.AnswerPSN = s.Answers, uint32(s.AnswerPSN); s.Owed {
		psn := uint32(s.OwedPSN)
		d.OwedPSN = &psn
	}
	if m := a.MAC(); s.Heard {
		d.MAC = m.String()
	}
	if s.Other != 0 {
		d.Other = addr(s.Other)
	}
	for _, q := range s.Asked {
		d.Asked = append(d.Asked, DeviceAsked{addr(q.IP), q.Times})
	}
	if s.Frames > 0 {
		op := s.OpCode.String()
		if s.OpCode == wire.OpAcknowledge {
			op += " " + s.Syndrome.String()
		}
		d.Last = &DeviceFrame{op, uint32(s.PSN), addr(s.To), uint32(s.QPN)}
	}
	if s.Requests > 0 {
		d.Requests = &DeviceRequests{s.Requests, uint32(s.First), uint32(s.Last), s.Repeats}
	}
	if s.NAKs > 0 {
		d.NAK = &DeviceNAK{s.NAKReason.String(), uint32(s.NAKPSN), s.NAKs}
	}
	return d
}

// TimesAsked returns how often the device has asked for an address.
func (d *Device) TimesAsked(address string) uint64 {
	i := slices.IndexFunc(d.Asked, func(q DeviceAsked) bool { return q.Address == address })
	if i < 0 {
		return 0
	}
	return d.Asked[i].Times
}
