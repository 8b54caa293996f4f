// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is the other end of a Peer's wire, driven by a test: B, with the Peer as A.
type script struct {
	*testing.T
	p *Peer
	e *end
}

// play runs a test with a Peer of the first configuration that knows its peer's MAC address,
// and a script at the other end of its wire.
func play(t *testing.T, change func(*Config), f func(t *testing.T, s *script)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, _ := configs()
		if change != nil {
			change(&c)
		}
		ea, eb := newLink()
		s := &script{T: t, p: start(t, c, ea), e: eb}
		s.e.Write(arp(arpReply, macB, addrB, macA, addrA))
		synctest.Wait()
		f(t, s)
		synctest.Wait()
		s.quiet()
	})
}

// frame returns the next frame that the Peer sends, without a wait.
func (s *script) frame() []byte {
	s.Helper()
	synctest.Wait()
	select {
	case f := <-s.e.in:
		return f
	default:
		s.Fatal("the endpoint sends nothing")
	}
	return nil
}

// quiet fails if the Peer has sent anything that was not read.
func (s *script) quiet() {
	s.Helper()
	synctest.Wait()
	select {
	case f := <-s.e.in:
		s.Fatalf("the endpoint sends %x", f)
	default:
	}
}

// request sends a request packet.
func (s *script) request(p packet) {
	p.qpn = 0x11
	s.e.Write(encode(flow{srcMAC: macB, dstMAC: macA, src: addrB, dst: addrA, port: 0xc012}, p))
}

// respond sends an acknowledgment.
func (s *script) respond(syn byte, psn uint32) {
	s.request(packet{opcode: opAck, syn: syn, psn: psn})
}

// want checks the next frame's opcode and PSN, and the syndrome and MSN of an acknowledgment.
func (s *script) want(opcode byte, psn uint32, aeth ...uint32) {
	s.Helper()
	k, reason := decode(s.frame(), addrA, 0x12)
	if reason != "" || k.opcode != opcode || k.psn != psn {
		s.Fatalf("opcode %#x, PSN %#x (%s), want opcode %#x, PSN %#x", k.opcode, k.psn, reason, opcode, psn)
	}
	if opcode == opAck && (uint32(k.syn) != aeth[0] || k.msn != aeth[1] || k.ackReq || len(k.payload) != 0) {
		s.Fatalf("acknowledgment %+v, want syndrome %#x, MSN %d", k, aeth[0], aeth[1])
	}
}

// TestGoldenRequests: segmented messages across the wrap of the PSN, byte for byte. The
// frames were made by scapy; PPPP stands for 256 bytes 5a.
func TestGoldenRequests(t *testing.T) {
	five := func(n int) []byte { return bytes.Repeat([]byte{0x5a}, n) }
	play(t, func(c *Config) { c.StartPSN = 0xffffff }, func(t *testing.T, s *script) {
		s.p.Post(Request{Data: five(257)})
		s.p.Post(Request{Data: five(513), Write: true, VA: 0x7f0011223344, RKey: 0x203, Imm: 0xdeadbeef, HasImm: true})
		last := s.p.Post(Request{})
		for i, g := range []string{
			"02000000000202000000000108004500012c00014000401125be0a0000010a000002c01112b7011800000000ffff0000001200ffffffPPPPdcaa2aba",
			"02000000000202000000000108004500003000024000401126b90a0000010a000002c01112b7001c00000230ffff00000012800000005a000000667d7e85",
			"02000000000202000000000108004500013c00034000401125ac0a0000010a000002c01112b7012800000600ffff000000120000000100007f00112233440000020300000201PPPP44c7d2e0",
			"02000000000202000000000108004500012c00044000401125bb0a0000010a000002c01112b7011800000700ffff0000001200000002PPPP59f0b60d",
			"02000000000202000000000108004500003400054000401126b20a0000010a000002c01112b7002000000930ffff0000001280000003deadbeef5a000000dbf9fb75",
			"02000000000202000000000108004500002c00064000401126b90a0000010a000002c01112b7001800000400ffff00000012800000045915a041",
		} {
			if want, got := unhex(t, strings.Replace(g, "PPPP", strings.Repeat("5a", 256), 1)), s.frame(); !bytes.Equal(got, want) {
				t.Errorf("frame %d:\n got %x\nwant %x", i, got, want)
			}
		}
		s.respond(0, 4) // with credits, as an adapter of ConnectX does
		if err := last.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestGoldenARP: the requests that are sent, when they are repeated, and which requests are
// answered.
func TestGoldenARP(t *testing.T) {
	const ask = "ffffffffffff020000000001" + "0806" + "0001080006040001" + "0200000000010a000001" + "0000000000000a000002"
	synctest.Test(t, func(t *testing.T) {
		c, _ := configs()
		ea, eb := newLink()
		s := &script{T: t, p: start(t, c, ea), e: eb}
		s.quiet()
		sent := s.p.Post(Request{})
		for range 3 {
			if got := s.frame(); !bytes.Equal(got, unhex(t, ask)) {
				t.Errorf("asks with %x", got)
			}
			s.quiet()
			<-time.After(arpInterval)
		}
		s.frame()
		for _, f := range []string{
			"ffffffffffff0200000000090806" + "0001080006040001" + "0200000000090a000009" + "0000000000000a000002", // for another
			"0200000000010200000000090806" + "0001080006040002" + "0200000000090a000009" + "0200000000010a000001", // of another
			"ffffffffffff0200000000090806" + "0001080006040001" + "0200000000090a00",                              // cut
			"3333000000020200000000096000", "01",
		} {
			s.e.Write(unhex(t, f))
		}
		s.quiet()
		if got := s.p.Stats(); got.Ignored != 3 || len(got.Rejects) != 0 {
			t.Errorf("%+v", got)
		}
		s.e.Write(unhex(t, "0200000000010200000000020806"+"0001080006040002"+"0200000000020a000002"+"0200000000010a000001"+strings.Repeat("00", 18)))
		s.want(opSendOnly, c.StartPSN)
		s.respond(synACK, c.StartPSN)
		if err := sent.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		s.e.Write(unhex(t, "ffffffffffff0200000000090806"+"0001080006040001"+"0200000000090a000009"+"0000000000000a000001"))
		if got, want := s.frame(), unhex(t, "0200000000090200000000010806"+"0001080006040002"+"0200000000010a000001"+"0200000000090a000009"); !bytes.Equal(got, want) {
			t.Errorf("answers %x", got)
		}
		s.quiet()
	})
}

// TestResponder: sequence, duplicates, gaps, AckReq and MSN, step by step.
func TestResponder(t *testing.T) {
	part := make([]byte, 256)
	play(t, nil, func(t *testing.T, s *script) { // the Peer expects PSN 7
		s.p.PostRecv(2)
		s.request(packet{opcode: opSendFirst, psn: 7, payload: part})
		s.quiet() // AckReq is not set
		s.request(packet{opcode: opSendMiddle, psn: 8, payload: part, ackReq: true})
		s.want(opAck, 8, synACK, 0)
		s.request(packet{opcode: opSendLast, psn: 10, payload: part, ackReq: true})
		s.want(opAck, 9, synSequence, 0)
		s.request(packet{opcode: opSendOnly, psn: 11, ackReq: true})
		s.quiet() // one NAK for each gap
		s.request(packet{opcode: opSendFirst, psn: 7, payload: part})
		s.want(opAck, 8, synACK, 0) // a duplicate is acknowledged with the PSN that was executed last
		s.request(packet{opcode: opSendMiddle, psn: 9, payload: part})
		s.request(packet{opcode: opSendLast, psn: 11, payload: part})
		s.want(opAck, 10, synSequence, 0) // a new gap
		s.request(packet{opcode: opSendLast, psn: 10, payload: part, ackReq: true})
		s.want(opAck, 10, synACK, 1)
		if m, err := s.p.Recv(t.Context()); err != nil || len(m.Data) != 4*256 {
			t.Error(err, len(m.Data))
		}
		// Three buffers were posted, two at first and one by Recv. One is taken.
		s.request(packet{opcode: 0x0a, psn: 11, va: 0x7f0000001003, rkey: 0x101, length: 5, payload: []byte("hello")})
		s.request(packet{opcode: 0x0b, psn: 12, ackReq: true, imm: 77})
		s.want(opAck, 12, synACK, 3)
		s.request(packet{opcode: opSendOnly + withImm, psn: 13, ackReq: true, imm: 78})
		s.want(opAck, 13, synACK, 4)
		for i := range uint32(2) {
			if m, err := s.p.Recv(t.Context()); err != nil || m.Write != (i == 0) || !m.HasImm || m.Imm != 77+i || m.Length != 0 {
				t.Errorf("%+v %v", m, err)
			}
		}
		b := make([]byte, 10)
		if s.p.ReadMemory(b, 0x7f0000001000) != 10 || string(b) != "\x00\x00\x00hello\x00\x00" {
			t.Errorf("memory %q", b)
		}
		// Recv has posted two buffers; after them there is none.
		for psn := range uint32(2) {
			s.request(packet{opcode: opSendOnly, psn: 14 + psn, ackReq: true})
			s.want(opAck, 14+psn, synACK, 5+psn)
		}
		s.request(packet{opcode: opSendOnly, psn: 16, ackReq: true})
		s.want(opAck, 16, synRNR, 6)
		s.request(packet{opcode: opSendOnly, psn: 17, ackReq: true})
		s.quiet()
		s.request(packet{opcode: opSendOnly, psn: 16, ackReq: true})
		s.want(opAck, 16, synRNR, 6)
		s.p.PostRecv(1)
		s.request(packet{opcode: opSendOnly, psn: 16, ackReq: true})
		s.want(opAck, 16, synACK, 7)
		got := s.p.Stats()
		if got.Duplicates != 1 || got.OutOfSequence != 4 || got.NaksSent != 2 || got.RNRsSent != 2 || got.Messages != 7 || len(got.Rejects) != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestRefusals: the requests that a responder answers with a NAK that ends the connection, and
// its reasons.
func TestRefusals(t *testing.T) {
	part, va := make([]byte, 256), uint64(0x7f0000001000)
	first := packet{opcode: opSendFirst, psn: 7, payload: part}
	write := packet{opcode: opWriteFirst, psn: 7, payload: part, va: va, rkey: 0x101, length: 600}
	for _, x := range []struct {
		name, reason string
		syn          uint32
		packets      []packet
	}{
		{"middle without first", badSequence, 0x61, []packet{{opcode: opSendMiddle, payload: part}}},
		{"last without first", badSequence, 0x61, []packet{{opcode: opSendLast, payload: part}}},
		{"write within send", badSequence, 0x61, []packet{first, {opcode: 0x07, payload: part}}},
		{"first within send", badSequence, 0x61, []packet{first, {opcode: opSendOnly}}},
		{"read", badOpcode, 0x61, []packet{{opcode: 0x0c, va: va, rkey: 0x101, length: 8}}},
		{"short first", badSize, 0x61, []packet{{opcode: opSendFirst, payload: part[:252]}}},
		{"empty last", badSize, 0x61, []packet{first, {opcode: opSendLast}}},
		{"long only", badSize, 0x61, []packet{{opcode: opSendOnly, payload: make([]byte, 257)}}},
		{"longer than the buffer", badSize, 0x61, []packet{first, {opcode: opSendLast, payload: part}}},
		{"write too short", badSize, 0x61, []packet{write, {opcode: 0x08, payload: part}}},
		{"write too long", badSize, 0x61, []packet{write, {opcode: 0x07, payload: part}, {opcode: 0x07, payload: part}}},
		{"write first that is all", badSize, 0x61, []packet{{opcode: opWriteFirst, payload: part, va: va, rkey: 0x101, length: 256}}},
		{"R_Key", badAccess, 0x62, []packet{{opcode: 0x0a, payload: part, va: va, rkey: 0x100, length: 256}}},
		{"below", badAccess, 0x62, []packet{{opcode: 0x0a, payload: part, va: va - 1, rkey: 0x101, length: 256}}},
		{"beyond", badAccess, 0x62, []packet{{opcode: 0x0a, payload: part, va: va + 1<<20 - 255, rkey: 0x101, length: 256}}},
		{"far beyond", badAccess, 0x62, []packet{{opcode: opWriteFirst, payload: part, va: ^uint64(0), rkey: 0x101, length: 1 << 31}}},
	} {
		play(t, func(c *Config) { c.RecvSize = 500 }, func(t *testing.T, s *script) {
			s.p.PostRecv(3)
			psn := uint32(7)
			for _, k := range x.packets {
				k.psn = psn
				psn++
				s.request(k)
			}
			s.want(opAck, psn-1, x.syn, 0)
			if n := s.p.Stats().Rejects[x.reason]; n != 1 {
				t.Errorf("%s: %v", x.name, s.p.Stats().Rejects)
			}
			if err := s.p.Send(t.Context(), nil); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v", x.name, err)
			}
			s.request(packet{opcode: opSendOnly, psn: psn, ackReq: true})
			s.quiet()
			if n := s.p.Stats().Rejects[badState]; n != 1 {
				t.Errorf("%s: after it %v", x.name, s.p.Stats().Rejects)
			}
		})
	}
}

// TestRequester: go-back-N step by step, with PSNs that start at 0xfffff0.
func TestRequester(t *testing.T) {
	const base = 0xfffff0
	burst := func(s *script, from, to uint32) {
		s.Helper()
		for psn := from; psn < to; psn++ {
			switch {
			case psn == base:
				s.want(opSendFirst, psn)
			case psn == base+19:
				s.want(opSendLast, psn&psnMask)
			default:
				s.want(opSendMiddle, psn&psnMask)
			}
		}
	}
	play(t, func(c *Config) { c.Window = 8 }, func(t *testing.T, s *script) {
		sent := s.p.Post(Request{Data: make([]byte, 20*256)})
		burst(s, base, base+8)
		s.quiet() // the window is full
		s.respond(synACK, base+1)
		burst(s, base+8, base+10)
		s.respond(synSequence, base+4) // it acknowledges everything before it, too
		burst(s, base+4, base+12)
		s.respond(synSequence, base+4)
		s.respond(synACK, base+2)
		s.quiet() // the packets are under way already, and old acknowledgments have no effect
		<-time.After(66 * time.Millisecond)
		s.quiet()
		<-time.After(2 * time.Millisecond)
		burst(s, base+4, base+12)
		s.respond(synACK, base+11)
		burst(s, base+12, base+20)
		s.respond(0x20|25, base+14) // 61.44 ms
		s.respond(synSequence, base+14)
		s.quiet() // Soft-RoCE sends a needless NAK after RNR
		<-time.After(61 * time.Millisecond)
		s.quiet()
		<-time.After(time.Millisecond)
		burst(s, base+14, base+20)
		s.respond(synACK, base+25) // never sent
		s.respond(synACK, (base+19)&psnMask)
		if err := sent.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		<-time.After(time.Second)
		got := s.p.Stats()
		if got.Retransmitted != 6+8+6 || got.Timeouts != 1 || got.NaksReceived != 3 || got.RNRsReceived != 1 || got.StaleReceived != 1 || got.Rejects[badResponse] != 1 {
			t.Errorf("%+v", got)
		}
	})
	play(t, nil, func(t *testing.T, s *script) { // responses of this endpoint do not delay the timer of its requests
		sent := s.p.Post(Request{})
		s.want(opSendOnly, base)
		s.p.PostRecv(2)
		for psn := range uint32(2) {
			<-time.After(30 * time.Millisecond)
			s.request(packet{opcode: opSendOnly, psn: 7 + psn, ackReq: true})
			s.want(opAck, 7+psn, synACK, 1+psn)
		}
		<-time.After(8 * time.Millisecond)
		s.want(opSendOnly, base)
		s.respond(synACK, base)
		if err := sent.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for _, syn := range []byte{0x61, 0x62, 0x63} {
		play(t, nil, func(t *testing.T, s *script) {
			one, two := s.p.Post(Request{}), s.p.Post(Request{})
			s.want(opSendOnly, base)
			s.want(opSendOnly, base+1)
			s.respond(syn, base+1)
			if err := one.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			if err := two.Wait(t.Context()); !errors.Is(err, ErrRemote) {
				t.Error(err)
			}
		})
	}
}

// TestBadResponses: invalid acknowledgments, an invalid pad, a duplicate READ.
func TestBadResponses(t *testing.T) {
	play(t, nil, func(t *testing.T, s *script) {
		sent := s.p.Post(Request{})
		s.want(opSendOnly, 0xfffff0)
		s.respond(0x40, 0xfffff0) // reserved
		s.respond(0x9f, 0xfffff0)
		s.request(packet{opcode: 0x10, psn: 0xfffff0}) // of a READ
		s.request(packet{opcode: opAck, syn: synACK, psn: 0xfffff0, payload: []byte("data")})
		s.request(packet{opcode: 0x0c, psn: 6})
		s.quiet()
		got := s.p.Stats()
		if got.Rejects[badResponse] != 3 || got.Rejects[badSize] != 1 || got.Rejects[badDuplicate] != 1 || len(got.Rejects) != 3 || got.AcksReceived != 0 {
			t.Errorf("%+v", got)
		}
		s.respond(synACK, 0xfffff0)
		if err := sent.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		s.p.PostRecv(1)
		f := encode(flow{srcMAC: macB, dstMAC: macA, src: addrB, dst: addrA}, packet{opcode: opSendOnly, qpn: 0x11, psn: 7, payload: []byte{1, 2, 3}})
		f[len(f)-icrcLen-1] = 1
		binary.LittleEndian.PutUint32(f[len(f)-icrcLen:], icrc(f[ethernetLen:len(f)-icrcLen]))
		s.e.Write(f)
		s.want(opAck, 7, synInvalid, 0)
		if n := s.p.Stats().Rejects[badPad]; n != 1 || !errors.Is(s.p.Err(), ErrRefused) {
			t.Error(s.p.Err())
		}
	})
}

// TestGroup: a peer address that stands for a group. All requests go to that address, and
// packets from a member's own address are rejected.
func TestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, _ := configs()
		group := netip.MustParseAddr("10.0.0.100")
		ca.PeerIP, ca.PeerQPN = group, 0x33
		ea, eb := newLink()
		s := &script{T: t, p: start(t, ca, ea), e: eb}
		mac := [6]byte{2, 0, 0, 0, 0, 0x64}
		s.e.Write(arp(arpReply, mac, group, macA, addrA))
		synctest.Wait()
		sent := s.p.Post(Request{Data: []byte("to all")})
		f := s.frame()
		if !addressed(f, mac, group) {
			t.Errorf("%x is not sent to the group", f)
		}
		if k, reason := decode(f, addrA, 0x33); reason != "" || string(k.payload) != "to all" {
			t.Error(reason)
		}
		s.respond(synACK, ca.StartPSN)
		synctest.Wait()
		if n := s.p.Stats().Rejects[badSource]; n != 1 {
			t.Errorf("an acknowledgment of a member's own address: %+v", s.p.Stats())
		}
		s.e.Write(encode(flow{srcMAC: mac, dstMAC: macA, src: group, dst: addrA}, packet{opcode: opAck, qpn: 0x11, psn: ca.StartPSN, syn: synACK}))
		if err := sent.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestAckRequests: AckReq is on the last packet of a message and twice in a window.
func TestAckRequests(t *testing.T) {
	play(t, func(c *Config) { c.Window = 16 }, func(t *testing.T, s *script) {
		s.p.Post(Request{Data: make([]byte, 3*256)})
		s.p.Post(Request{Data: make([]byte, 13*256)})
		for i := range 16 {
			k, reason := decode(s.frame(), addrA, 0x12)
			if want := i == 2 || i == 7 || i == 15; k.ackReq != want || reason != "" {
				t.Errorf("packet %d: AckReq %v (%s)", i, k.ackReq, reason)
			}
		}
	})
}
