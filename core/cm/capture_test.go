// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
)

// captured is the BTH of a packet over IPv4, and the management datagram behind it, if it is to queue pair 1.
type captured struct {
	src uint32
	bth []byte
	mad []byte
}

func (c captured) psn() wire.PSN { return wire.PSN(binary.BigEndian.Uint32(c.bth[8:])) & wire.PSNMask }

// packets reads the RoCEv2 packets of a capture between Linux's rdma_rxe and an emulated NIC.
func packets(t *testing.T, name string) (all []captured) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "internal", "test", "interop", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	const file, record, bth, deth, icrc = 24, 16, 14 + 20 + 8, 20, 4
	for b = b[file:]; len(b) > record; {
		n := int(binary.LittleEndian.Uint32(b[8:]))
		f := b[record:][:n]
		b = b[record+n:]
		if n < bth+12 || binary.BigEndian.Uint16(f[12:]) != 0x0800 {
			continue
		}
		c := captured{src: binary.BigEndian.Uint32(f[26:]), bth: f[bth:]}
		if wire.QPN(binary.BigEndian.Uint32(f[bth+4:]))&wire.QPNMask == 1 {
			c.mad = f[bth+deth : n-icrc]
		}
		all = append(all, c)
	}
	return all
}

// message returns the first message of a kind.
func message(t *testing.T, all []captured, kind Attribute) (c captured, m Message) {
	t.Helper()
	for _, c := range all {
		if m, err := Parse(c.mad); err == nil && m.Attribute == kind {
			return c, m
		}
	}
	t.Fatalf("the capture has no %v", kind)
	return c, m
}

// The addresses of the captures.
const emulated, linux = 0x0a000002, 0x0a000003

// newLinuxPeer returns a machine whose peer is the device of a capture, with its datagrams and events.
func newLinuxPeer(t *testing.T) (m *Machine, sent *Message, events *[]Event) {
	sent, events = new(Message), new([]Event)
	return New(Config{
		IP: emulated, MTU: 4096, Seed: 1,
		Send: func(_ vtime.Time, dst uint32, mad []byte) {
			var err error
			if *sent, err = Parse(mad); err != nil || dst != linux {
				t.Errorf("it sends to %#x: %v", dst, err)
			}
		},
		Tell: func(e Event) { *events = append(*events, e) },
	}), sent, events
}

// TestStartingPSN: the Starting PSN of a REQ or REP is the first PSN of who receives the message (volume 1, 12.7.31). Two captures
// say that Linux means it so: its first SEND has the PSN of the REP that it has received.
func TestStartingPSN(t *testing.T) {
	t.Run("Linux connects", func(t *testing.T) {
		all := packets(t, "linux-rping-client.pcap")
		_, rep := message(t, all, REP)
		for _, c := range all {
			if c.src == linux && c.bth[0] == byte(wire.OpSendOnly) && c.psn() != rep.PSN {
				t.Errorf("Linux begins with %v, the REP says %v", c.psn(), rep.PSN)
			}
		}
		m, sent, events := newLinuxPeer(t)
		l, err := m.Create(SpaceTCP)
		if err != nil {
			t.Fatal(err)
		}
		request, req := message(t, all, REQ)
		if _, err := m.Bind(l, uint16(req.ServiceID), false); err != nil {
			t.Fatal(err)
		}
		if err := m.Listen(0, l, 0); err != nil {
			t.Fatal(err)
		}
		if m.Handle(0, linux, request.mad); len(*events) != 1 || (*events)[0].Params.QPN != 0x1a || (*events)[0].PeerTo != 0x87a7 {
			t.Fatalf("the REQ is told as %+v", *events)
		}
		id := (*events)[0].ID
		if err := m.Accept(0, id, Params{QPN: 0x11}); err != nil {
			t.Fatal(err)
		}
		if a, err := m.Query(id); err != nil || a.SQPSN != req.PSN || req.PSN != 0xadcd7c || a.RQPSN != sent.PSN || sent.Attribute != REP {
			t.Errorf("REQ %v, REP %v, the queue pair: %+v", req.PSN, sent.PSN, a)
		}
	})
	t.Run("Linux listens", func(t *testing.T) {
		m, sent, events := newLinuxPeer(t)
		id, err := m.Create(SpaceTCP)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Resolve(id, linux, 7174); err != nil {
			t.Fatal(err)
		}
		if err := m.Connect(0, id, Params{QPN: 0x11}); err != nil {
			t.Fatal(err)
		}
		answer, rep := message(t, packets(t, "linux-rping-server.pcap"), REP)
		binary.BigEndian.PutUint32(answer.mad[headerLen+4:], id) // the captured one answers another REQ
		if m.Handle(0, linux, answer.mad); len(*events) != 1 || (*events)[0].Type != EventConnectResponse {
			t.Fatalf("the REP is told as %+v", *events)
		}
		if a, err := m.Query(id); err != nil || a.SQPSN != rep.PSN || rep.PSN != 0x453d06 || a.RQPSN != sent.PSN || a.RemoteQPN != 0x1b || sent.Attribute != REQ {
			t.Errorf("REQ %v, REP %v, the queue pair: %+v", sent.PSN, rep.PSN, a)
		}
	})
}
