// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"
)

// sackFrame is a NAK with a SACK.
func sackFrame(p *Pool) *Frame {
	e := NewEnvelope(Flow{Src: 10<<24 | 1, Dst: 10<<24 | 2, TTL: 64, DstPort: PortRoCEv2})
	f := p.Get()
	f.Start(&e, BTH{OpCode: OpAcknowledge, PKey: PKeyDefault, DestQP: 18, PSN: 0xffffff})
	f.AddAETH(AETH{Syndrome: SyndromePSNSequence, MSN: 7})
	f.AddSACK(SACK{PSN: 4, Lo: 1 << 4, Hi: 3})
	f.Seal(0, false)
	return f
}

// TestSACKFrame: a NAK with a SACK survives the wire, reads as a plain NAK otherwise, and is
// bridged by a switch like one. Anything but the exact form is a NAK with a payload.
func TestSACKFrame(t *testing.T) {
	var p Pool
	b := sackFrame(&p).AppendTo(nil)
	f, err := p.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	k, ok := f.SACK()
	if want := (SACK{PSN: 4, Lo: 1 << 4, Hi: 3}); !ok || k != want || f.PayloadLen() != 0 || !f.CheckICRC() {
		t.Errorf("SACK %+v %v, payload %d, want %+v", k, ok, f.PayloadLen(), want)
	}
	if h := f.AETH(); h.Syndrome != SyndromePSNSequence || h.MSN != 7 || f.PSN() != 0xffffff {
		t.Errorf("the NAK itself reads %v psn %v", h, f.PSN())
	}
	const text = "10.0.0.1>10.0.0.2 RC_ACKNOWLEDGE qp=18 psn=16777215 NAK(sequence) msn=7 sack=4:10+3"
	if f.String() != text {
		t.Errorf("text %s, want %s", f, text)
	}
	if !bytes.Equal(f.AppendTo(nil), b) {
		t.Errorf("parsed and written again:\n%x\n%x", f.AppendTo(nil), b)
	}
	r := Bridge{Dst: 10<<24 | 9, Src: 10<<24 | 8, DestQP: 3}
	r.Apply(f)
	if !f.CheckICRC() {
		t.Error("bridged: ICRC is wrong")
	}
	b[14+20+8+12+4] = 2 // another version
	if f, err = p.Parse(b); err != nil || f.PayloadLen() != SACKLen {
		t.Fatalf("version 2: %v, payload %d", err, f.PayloadLen())
	}
	if _, ok := f.SACK(); ok {
		t.Error("version 2 is read as a SACK")
	}
}
