// SPDX-License-Identifier: Apache-2.0

package rcpeer

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// vectors are whole frames with a known ICRC, made by scapy and checked by three CRC
// implementations; those over IPv6 by a script with zlib, and bit by bit. All are untagged.
var vectors = map[string]string{
	"RC SEND_ONLY":    "02000000000202000000000108004502003412344000401114810a0000010a000002c00112b7002000000440ffff0000001280000100526f43457632210a6b6e9aa7",
	"RC ACK":          "02000000000102000000000208004502003000004000401126b90a0000020a000001c00212b7001c00001140ffff00000011000001001f00000199aa8a4c",
	"RC WRITE_ONLY":   "020000000002020000000001080045690044beef40004011674e0a0000010a000002c00112b7003000000a70ffff0012345680ffffff00007f0011223344000002030000000568656c6c6f00000011be36a7",
	"CNP":             "020000000001020000000002080045c2003c432140004011e2cb0a0000020a000001000012b7002800008100ffff4000001100000000000000000000000000000000000000006b61af39",
	"UD multicast":    "01005e01020302000000000108004500003c0001400001117eab0a000001ef010203c00512b7002800006440ffff00ffffff0000000511111111000000136d63617374313233347409bb",
	"RC empty":        "02000000000202000000000108004502002c00074000401126b60a0000010a000002c00112b7001800000440ffff0000001280000009c95c8535",
	"to a group":      "020000000064020000000001080045020034123440004011141f0a0000010a000064c00112b7002000000440ffff0000000180000100526f43457632210a7a56679f",
	"from a group":    "020000000003020000000064080045020034123440003f11151d0a0000640a000003c00112b7002000000440ffff0000003380000100526f43457632210a6ff564fe",
	"all masked ones": "02000000000202000000000108004" + "5ff00341234400009114a840a0000010a000002c00112b70020abcd0440ffffff00001280000100526f43457632210a6b6e9aa7",
	"IPv6 SEND_ONLY":  "02000000000b02000000000a86dd66a0000000201140fd6d636173740000000000000a00000afd6d636173740000000000000a00000bc00112b7002000000400ffff0000001280000100526f43457632210aed9b732f",
	"IPv6 UC":         "02000000000202000000000186dd6020000000281140fe800000000000000000000000000001fe800000000000000000000000000002c00112b7002800002440ffff000000120000000749507636204943524320636865636b214ce84b30",
	"ConnectX-4 CNP":  "0200000000010200000000020800" + "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff400001180000000000000000000000000000000000000000" + "82fd002a",
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestICRC: the known frames carry the ICRC that icrc computes, and a change of any byte that
// it covers changes it.
func TestICRC(t *testing.T) {
	for name, s := range vectors {
		f := unhex(t, s)
		ip := f[ethernetLen : len(f)-icrcLen]
		masked := map[int]bool{}
		for _, i := range leftOut(ip) {
			masked[i] = true
		}
		want := binary.LittleEndian.Uint32(f[len(f)-icrcLen:])
		if got := icrc(ip); got != want {
			t.Errorf("%s: icrc %08x, want %08x", name, got, want)
		}
		for i := range ip {
			ip[i] ^= 0x10
			if changed := icrc(ip) != want; changed == masked[i] {
				t.Errorf("%s: a change of byte %d shows: %v", name, i, changed)
			}
			ip[i] ^= 0x10
		}
	}
}

// leftOut lists the bytes of a packet that the ICRC takes for ones. The lower half of an IPv6
// header's first byte is left out besides.
func leftOut(ip []byte) []int {
	if ip[0]>>4 == 6 {
		return []int{1, 2, 3, 7, 46, 47, 52}
	}
	return []int{1, 8, 10, 11, 26, 27, 32}
}

// TestEncode: frames of the reference, byte for byte.
func TestEncode(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	macA, macB := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	for _, x := range []struct {
		name string
		f    flow
		p    packet
		m    byte // the vectors have the M bit set, which Soft-RoCE and we do not set
	}{
		{"RC SEND_ONLY", flow{macA, macB, a, b, 0xc001, 2}, packet{id: 0x1234, opcode: opSendOnly, qpn: 0x12, ackReq: true, psn: 0x100, payload: []byte("RoCEv2!\n")}, 0x40},
		{"RC ACK", flow{macB, macA, b, a, 0xc002, 2}, packet{opcode: opAck, qpn: 0x11, psn: 0x100, syn: 0x1f, msn: 1}, 0x40},
		{"RC WRITE_ONLY", flow{macA, macB, a, b, 0xc001, 0x69}, packet{id: 0xbeef, opcode: 0x0a, qpn: 0x123456, ackReq: true, psn: 0xffffff,
			va: 0x7f0011223344, rkey: 0x203, length: 5, payload: []byte("hello")}, 0x40},
		{"IPv6 SEND_ONLY", flow{[6]byte{2, 0, 0, 0, 0, 10}, [6]byte{2, 0, 0, 0, 0, 11}, netip.MustParseAddr("fd6d:6361:7374::a00:a"),
			netip.MustParseAddr("fd6d:6361:7374::a00:b"), 0xc001, 26<<2 | 2}, packet{opcode: opSendOnly, qpn: 0x12, ackReq: true, psn: 0x100, payload: []byte("RoCEv2!\n")}, 0},
		{"RC empty", flow{macA, macB, a, b, 0xc001, 2}, packet{id: 7, opcode: opSendOnly, qpn: 0x12, ackReq: true, psn: 9}, 0x40},
	} {
		want := unhex(t, vectors[x.name])
		want[bthAt+1] &^= x.m
		binary.LittleEndian.PutUint32(want[len(want)-icrcLen:], slowICRC(want[ethernetLen:len(want)-icrcLen]))
		if got := encode(x.f, x.p); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", x.name, got, want)
		}
	}
}

// slowICRC computes the ICRC bit by bit, to check icrc with other code.
func slowICRC(ip []byte) uint32 {
	b := append(bytes.Repeat([]byte{0xff}, 8), ip...)
	for _, i := range leftOut(ip) {
		b[8+i] = 0xff
	}
	if ip[0]>>4 == 6 {
		b[8] |= 0x0f
	}
	crc := ^uint32(0)
	for _, x := range b {
		for i := range 8 {
			bit := crc&1 ^ uint32(x>>i)&1
			crc >>= 1
			if bit != 0 {
				crc ^= 0xedb88320
			}
		}
	}
	return ^crc
}

// TestDecode: packets decode to the encoded values, for all opcodes and pads, with an Ethernet trailer;
// a frame cut anywhere is rejected; so is one in which any bit is flipped that the ICRC, the checksums
// or the other checks protect.
func TestDecode(t *testing.T) {
	for _, f := range []flow{flowAB(), flow6AB()} {
		decodes(t, f)
	}
}

func decodes(t *testing.T, w flow) {
	unprotected := []int{bthAt + 4}
	if w.src.Is6() { // the header has no checksum
		unprotected = []int{ethernetLen + 1, ethernetLen + 2, ethernetLen + 3, ethernetLen + 7, ethernetLen + ipv6Len + udpLen + 4}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for opcode, o := range operations {
		if o == 0 || o&isOther != 0 || o&has8 != 0 {
			continue
		}
		for n := range 9 {
			want := packet{opcode: byte(opcode), ackReq: n%2 == 0, qpn: 0x12, psn: rng.Uint32() & psnMask, payload: make([]byte, n)}
			for i := range want.payload {
				want.payload[i] = byte(rng.Uint32())
			}
			if o&hasRETH != 0 {
				want.va, want.rkey, want.length = rng.Uint64(), rng.Uint32(), rng.Uint32()
			}
			if o&hasAETH != 0 {
				want.syn, want.msn = byte(rng.Uint32()), rng.Uint32()&psnMask
			}
			if o&hasImm != 0 {
				want.imm = rng.Uint32()
			}
			if w.src.Is4() {
				want.id = uint16(rng.Uint32())
			}
			f := encode(w, want)
			got, reason := decode(append(bytes.Clone(f), 0xa5, 0xa5), w.src, 0x12)
			if reason != "" || !got.padded() || !bytes.Equal(got.payload, want.payload) {
				t.Fatalf("opcode %#x, %d bytes: %s", opcode, n, reason)
			}
			g, x := got, want
			g.payload, g.tail, x.payload = nil, nil, nil
			if g.id != x.id || g.opcode != x.opcode || g.ackReq != x.ackReq || g.qpn != x.qpn || g.psn != x.psn || g.va != x.va ||
				g.rkey != x.rkey || g.length != x.length || g.syn != x.syn || g.msn != x.msn || g.imm != x.imm {
				t.Fatalf("opcode %#x: decoded %+v, want %+v", opcode, g, x)
			}
			for cut := range f {
				if addressed(f[:cut], macB, w.dst) {
					if _, reason := decode(f[:cut:cut], w.src, 0x12); reason == "" {
						t.Fatalf("opcode %#x cut to %d bytes is accepted", opcode, cut)
					}
				}
			}
			for i := ethernetLen; i < len(f); i++ {
				f[i] ^= 1 << (i % 8)
				if _, reason := decode(f, w.src, 0x12); reason == "" && addressed(f, macB, w.dst) && !slices.Contains(unprotected, i) {
					t.Fatalf("opcode %#x with a wrong bit in byte %d is accepted", opcode, i)
				}
				f[i] ^= 1 << (i % 8)
			}
		}
	}
}

// TestRejects: each check of decode rejects a frame for its reason. The ICRC is right in all
// frames but one.
func TestRejects(t *testing.T) {
	good := encode(flowAB(), packet{opcode: opSendOnly, qpn: 0x12, payload: []byte("abcd")})
	set := func(at int, b ...byte) func([]byte) { return func(f []byte) { copy(f[at:], b) } }
	for _, x := range []struct {
		want   string
		change func([]byte)
	}{
		{"", func([]byte) {}},
		{"", set(bthAt+1, 0x40)}, // MigReq
		{"", set(bthAt+4, 0xc0)}, // FECN, BECN
		{badIP, set(ethernetLen, 0x46)},
		{badIP, set(ethernetLen+6, 0x20)},       // more fragments
		{badIP, set(ethernetLen+2, 0x01, 0x00)}, // total length beyond the frame
		{badUDP, set(udpAt+4, 0, 25)},
		{badUDP, set(udpAt+6, 1, 2)},
		{badService, set(bthAt, 0x24)},
		{badService, set(bthAt, 0x15)},
		{badService, set(bthAt, 0x81)},
		{badLength, set(bthAt, 0x0a)},
		{badTVer, set(bthAt+1, 0x01)},
		{badQPN, set(bthAt+7, 0x13)},
		{badSource, set(ethernetLen+12, 10, 0, 0, 9)},
		{badPKey, set(bthAt+2, 0x7f)},
	} {
		f := bytes.Clone(good)
		x.change(f)
		f[ethernetLen+10], f[ethernetLen+11] = 0, 0
		binary.BigEndian.PutUint16(f[ethernetLen+10:], ^sum(f[ethernetLen:udpAt], 0))
		binary.LittleEndian.PutUint32(f[len(f)-4:], icrc(f[ethernetLen:len(f)-4]))
		if _, got := decode(f, addrA, 0x12); got != x.want {
			t.Errorf("%x:\nrejected for %q, want %q", f, got, x.want)
		}
	}
	f := bytes.Clone(good)
	binary.BigEndian.PutUint16(f[udpAt+6:], ^sum(f[udpAt:], pseudo(f[ethernetLen:], len(f)-udpAt)))
	if _, got := decode(f, addrA, 0x12); got != "" {
		t.Errorf("with a right UDP checksum it is rejected for %q", got)
	}
	good[len(good)-1]++
	if _, got := decode(good, addrA, 0x12); got != badICRC {
		t.Errorf("a wrong ICRC is rejected for %q", got)
	}
}

// FuzzDecode: no frame makes decode panic, and an accepted frame has the right ICRC.
func FuzzDecode(f *testing.F) {
	for _, s := range vectors {
		f.Add(unhex(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		w := flowAB()
		if addressed(b, macB, addrB6) {
			w = flow6AB()
		} else if !addressed(b, macB, addrB) {
			return
		}
		if _, reason := decode(b, w.src, 0x12); reason == "" {
			n := ethernetLen + ipLenOf(w.src)
			n += int(binary.BigEndian.Uint16(b[n+4:]))
			if binary.LittleEndian.Uint32(b[n-4:]) != slowICRC(b[ethernetLen:n-4]) {
				t.Error("accepted with a wrong ICRC")
			}
		}
	})
}

// TestNumbers: the RNR timer's table in units of 10 µs, and differences of PSNs.
func TestNumbers(t *testing.T) {
	for code, want := range []int{65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192,
		12288, 16384, 24576, 32768, 49152} {
		if got := rnrTimer(byte(code)); got != time.Duration(want)*10*time.Microsecond {
			t.Errorf("RNR timer code %d is %v", code, got)
		}
	}
	for _, x := range []struct {
		a, b uint32
		want int32
	}{{0, 0xffffff, 1}, {0xffffff, 0, -1}, {0x800000, 0, -1 << 23}, {0x7fffff, 0, 1<<23 - 1}, {5, 5, 0}} {
		if got := signed(x.a - x.b); got != x.want {
			t.Errorf("PSN %#x - %#x = %d, want %d", x.a, x.b, got, x.want)
		}
	}
}

// TestScapy: scapy decodes the frames to the fields that were encoded, and computes the ICRC
// that they carry.
func TestScapy(t *testing.T) {
	python := "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import scapy.contrib.roce").Run(); err != nil {
		if os.Getenv("MCASTLAB_REQUIRE_TOOLS") != "" {
			t.Fatalf("scapy is not installed: %v", err)
		}
		t.Skip("scapy is not installed")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	var in, want strings.Builder
	for i := range 300 {
		p := packet{id: uint16(i), opcode: byte(rng.IntN(12)), qpn: rng.Uint32() & psnMask, psn: rng.Uint32() & psnMask, ackReq: i%3 == 0, payload: make([]byte, rng.IntN(60))}
		if i%4 == 0 {
			p.opcode, p.payload, p.syn, p.msn = opAck, nil, 0x60, rng.Uint32()&psnMask
		}
		f := encode(flowAB(), p)
		in.WriteString(hex.EncodeToString(f) + "\n")
		want.WriteString(strings.Join([]string{num(p.opcode), num(-len(p.payload) & 3), num(p.qpn), num(p.ackReq), num(p.psn),
			num(binary.LittleEndian.Uint32(f[len(f)-4:]))}, " ") + "\n")
	}
	cmd := exec.Command(python, "testdata/bth.py")
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got, wanted := strings.Split(string(out), "\n"), strings.Split(want.String(), "\n")
	for i := range wanted {
		if i >= len(got) || got[i] != wanted[i] {
			t.Fatalf("frame %d: scapy says %q, want %q", i, got[min(i, len(got)-1)], wanted[i])
		}
	}
}
