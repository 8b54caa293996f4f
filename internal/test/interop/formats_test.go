// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// formatCase is a frame of this project and the values that tshark must find in it: names of its fields, and
// numbers.
type formatCase struct {
	name  string
	build func(f *wire.Frame, e *wire.Envelope)
	want  string
}

// bth begins a packet with a value in every field of the BTH that tshark knows.
func bth(op wire.OpCode) wire.BTH {
	return wire.BTH{OpCode: op, Solicited: true, PKey: 0x8001, DestQP: 0x123456, AckReq: true, PSN: 0xabcdef}
}

const bthWant = "infiniband.bth.se=1 infiniband.bth.m=0 infiniband.bth.tver=0 infiniband.bth.p_key=0x8001 infiniband.bth.destqp=0x123456 infiniband.bth.a=1 infiniband.bth.psn=0xabcdef "

func formatCases() []formatCase {
	reth := wire.RETH{VA: 0x0123456789abcdef, RKey: 0xa1a2a3a4, DMALen: 0x01020304}
	const rethWant = "infiniband.reth.va=0x0123456789abcdef infiniband.reth.r_key=0xa1a2a3a4 infiniband.reth.dmalen=0x01020304 "
	atomic := wire.AtomicETH{VA: 0x0123456789abcdef, RKey: 0xa1a2a3a4, SwapAdd: 0x1111222233334444, Compare: 0x5555666677778888}
	const atomicWant = "infiniband.reth.va=0x0123456789abcdef infiniband.reth.r_key=0xa1a2a3a4 infiniband.atomiceth.swapdt=0x1111222233334444 infiniband.atomiceth.cmpdt=0x5555666677778888"
	at := func(op wire.OpCode, more func(f *wire.Frame)) func(f *wire.Frame, e *wire.Envelope) {
		return func(f *wire.Frame, e *wire.Envelope) {
			f.Start(e, bth(op))
			more(f)
			f.Seal(1, false)
		}
	}
	ack := func(s wire.Syndrome) func(f *wire.Frame) {
		return func(f *wire.Frame) { f.AddAETH(wire.AETH{Syndrome: s, MSN: 0x7a7b7c}) }
	}
	all := []formatCase{
		{"RDMA WRITE Only Immediate", at(wire.OpWriteOnlyImm, func(f *wire.Frame) { f.AddRETH(reth); f.AddImm(0xd1d2d3d4) }), rethWant + "infiniband.immdt=0xd1d2d3d4 infiniband.bth.opcode=0x0b"},
		{"RDMA READ Request", at(wire.OpReadRequest, func(f *wire.Frame) { f.AddRETH(reth) }), rethWant + "infiniband.bth.opcode=0x0c"},
		{"CmpSwap", at(wire.OpCompareSwap, func(f *wire.Frame) { f.AddAtomicETH(atomic) }), atomicWant + " infiniband.bth.opcode=0x13"},
		{"FetchAdd", at(wire.OpFetchAdd, func(f *wire.Frame) { f.AddAtomicETH(atomic) }), atomicWant + " infiniband.bth.opcode=0x14"},
		{"ATOMIC Acknowledge", at(wire.OpAtomicAck, func(f *wire.Frame) {
			ack(wire.SyndromeACK)(f)
			f.AddAtomicAckETH(wire.AtomicAckETH{Original: 0x99aabbccddeeff00})
		}), "infiniband.atomicacketh.origremdt=0x99aabbccddeeff00 infiniband.aeth.msn=0x7a7b7c infiniband.aeth.syndrome.opcode=0"},
		{"SEND Only Invalidate", at(wire.OpSendOnlyInv, func(f *wire.Frame) { f.AddImm(0xe1e2e3e4) }), "infiniband.ieth=0xe1e2e3e4 infiniband.bth.opcode=0x17"},
		{"UD SEND Only Immediate", at(wire.OpUDSendOnlyImm, func(f *wire.Frame) {
			f.AddDETH(wire.DETH{QKey: 0x80010000, SrcQP: 0x654321})
			f.AddImm(0xd1d2d3d4)
		}), "infiniband.deth.q_key=0x80010000 infiniband.deth.srcqp=0x654321 infiniband.immdt=0xd1d2d3d4"},
		{"ACK", at(wire.OpAcknowledge, ack(wire.SyndromeACK)), "infiniband.aeth.syndrome.opcode=0 infiniband.aeth.syndrome.credit_count=31 infiniband.aeth.msn=0x7a7b7c"},
		{"NAK of the sequence", at(wire.OpAcknowledge, ack(wire.SyndromePSNSequence)), "infiniband.aeth.syndrome.opcode=3 infiniband.aeth.syndrome.error_code=0"},
		{"NAK of the request", at(wire.OpAcknowledge, ack(wire.SyndromeInvalidReq)), "infiniband.aeth.syndrome.opcode=3 infiniband.aeth.syndrome.error_code=1"},
		{"NAK of the access", at(wire.OpAcknowledge, ack(wire.SyndromeRemoteAcc)), "infiniband.aeth.syndrome.opcode=3 infiniband.aeth.syndrome.error_code=2"},
		{"NAK of the operation", at(wire.OpAcknowledge, ack(wire.SyndromeRemoteOp)), "infiniband.aeth.syndrome.opcode=3 infiniband.aeth.syndrome.error_code=3"},
		{"RNR NAK", at(wire.OpAcknowledge, ack(wire.SyndromeRNR|17)), "infiniband.aeth.syndrome.opcode=1 infiniband.aeth.syndrome.timer=17"},
	}
	for i := range all {
		all[i].want = bthWant + all[i].want
	}
	p := wire.PFC{Src: wire.MAC{2, 0, 10, 0, 0, 1}, Enable: 0xa5, Quanta: [8]uint16{1, 2, 3, 4, 5, 0xffff, 7, 0}}
	want := "macc.opcode=0x0101 macc.cbfc.enbv=0x00a5"
	for i, q := range p.Quanta {
		want += fmt.Sprintf(" macc.cbfc.enbv.c%d=%d macc.cbfc.pause_time.c%d=%d", i, p.Enable>>i&1, i, q)
	}
	return append(all, formatCase{"PFC", func(f *wire.Frame, _ *wire.Envelope) { f.BuildPFC(p) }, want})
}

// TestWiresharkFields: tshark finds in each header that we write, and that no other test has seen others read, the values that were
// meant: not that a field is there, but that it is at the right place.
func TestWiresharkFields(t *testing.T) {
	e := wire.NewEnvelope(wire.Flow{SrcMAC: wire.HostMAC(10<<24 | 1), DstMAC: wire.HostMAC(10<<24 | 2), Src: 10<<24 | 1, Dst: 10<<24 | 2, TTL: 64, SrcPort: 0xc000, DstPort: wire.PortRoCEv2})
	var pool wire.Pool
	var all []formatBytes
	for _, c := range formatCases() {
		f := pool.Get()
		c.build(f, &e)
		all = append(all, formatBytes{c.name, f.AppendTo(nil), c.want})
		pool.Put(f)
	}
	wiresharkFinds(t, all)
}

// formatBytes are the bytes of a frame and the values that tshark must find in it.
type formatBytes struct {
	name  string
	bytes []byte
	want  string
}

// wiresharkFinds has tshark read frames.
func wiresharkFinds(t *testing.T, all []formatBytes) {
	t.Helper()
	tshark := tool(t, "tshark")
	file := binary.LittleEndian.AppendUint32(nil, 0xa1b2c3d4) // of pcap, version 2.4, Ethernet
	file = append(file, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0)
	for i, c := range all {
		for _, v := range []uint32{uint32(i), 0, uint32(len(c.bytes)), uint32(len(c.bytes))} {
			file = binary.LittleEndian.AppendUint32(file, v)
		}
		file = append(file, c.bytes...)
	}
	name := filepath.Join(t.TempDir(), "formats.pcap")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-r", name, "-o", "ip.check_checksum:TRUE", "-T", "fields"}
	column := map[string]int{}
	for _, c := range all {
		for _, w := range strings.Fields(c.want) {
			if field, _, _ := strings.Cut(w, "="); column[field] == 0 {
				column[field] = len(column) + 1
				args = append(args, "-e", field)
			}
		}
	}
	lines := strings.Split(output(t, tshark, args...), "\n")
	for i, c := range all {
		got := strings.Split(lines[i], "\t")
		for _, w := range strings.Fields(c.want) {
			field, value, _ := strings.Cut(w, "=")
			if g := got[column[field]-1]; g != value && (strings.Contains(value, ",") || number(g) != number(value) || number(value) == noNumber) {
				t.Errorf("%s: %s is %q and not %s", c.name, field, g, value)
			}
		}
	}
}

// noNumber is the result of number for a text that is none.
const noNumber = 1<<64 - 1

// number reads a value of tshark, in which a bit may be a word, and the same value may be there twice.
func number(s string) uint64 {
	s, _, _ = strings.Cut(s, ",")
	s = strings.ReplaceAll(s, ":", "")
	for _, base := range []int{0, 16} {
		if v, err := strconv.ParseUint(s, base, 64); err == nil {
			return v
		}
	}
	if v, err := strconv.ParseBool(s); err == nil && v {
		return 1
	} else if err == nil {
		return 0
	}
	return noNumber // tshark finds no such field
}
