// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"testing"
)

// Requests as scapy makes them, and the answers.
const (
	askARP = "ffffffffffff 02000a000002 0806 0001 0800 06 04 0001 02000a000002 0a000002 000000000000 0afe0001" +
		"000000000000000000000000000000000000"
	askND = "3333ff000001 02000a000002 86dd 60000000 0020 3a ff fd6d6361737400000000 0000 0a000002 ff020000000000000000 0001 ff000001" +
		"8700b111 00000000 fd6d6361737400000000 0000 0a000001 0101 02000a000002"
)

func TestAsks(t *testing.T) {
	for name, c := range map[string]struct {
		ask  string
		ip   uint32
		want string
	}{
		"ARP": {askARP, 0x0afe0001, "02000a000002 024d43fe0001 0806 0001 0800 06 04 0002 024d43fe0001 0afe0001 02000a000002 0a000002" +
			"000000000000000000000000000000000000"},
		"ND": {askND, 0x0a000001, "02000a000002 02000a000001 86dd 60000000 0020 3a ff fd6d6361737400000000 0000 0a000001 fd6d6361737400000000 0000 0a000002" +
			"8800 6ed3 60000000 fd6d6361737400000000 0000 0a000001 0201 02000a000001"},
	} {
		var p Pool
		f, err := p.Parse(unhex(t, c.ask))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		const asker = 0x0a000002
		if m, ok := f.Tells(asker); !ok || m != HostMAC(asker) {
			t.Errorf("%s: the question tells %v, %v", name, m, ok)
		}
		if _, ok := f.Tells(c.ip); ok {
			t.Errorf("%s: the question tells its answer", name)
		}
		mine := p.Get()
		mine.BuildAsk(name == "ND", HostMAC(asker), asker, c.ip)
		if got, want := mine.AppendTo(nil), unhex(t, c.ask); !bytes.Equal(got, want) {
			t.Errorf("%s: asked\n%x, want\n%x", name, got, want)
		}
		q, ok := f.Asks()
		if !ok || q.IP != c.ip {
			t.Errorf("%s: asks %v for %v, want %v", name, ok, AddrOf(q.IP), AddrOf(c.ip))
			continue
		}
		mac := HostMAC(c.ip)
		if (GroupRange{}).Has(c.ip) {
			mac = GroupMAC(c.ip)
		}
		a := p.Get()
		q.Answer(a, mac)
		if got, want := a.AppendTo(nil), unhex(t, c.want); !bytes.Equal(got, want) {
			t.Errorf("%s: answered\n%x, want\n%x", name, got, want)
		}
		if m, ok := a.Tells(c.ip); !ok || m != mac {
			t.Errorf("%s: the answer tells %v, %v", name, m, ok)
		}
		if _, again := a.Asks(); again {
			t.Errorf("%s: the answer asks", name)
		}
	}
}

// TestAsksNot: frames that do not ask for an address of the fabric.
func TestAsksNot(t *testing.T) {
	change := func(s string, at int, v ...byte) []byte {
		b := unhex(t, s)
		copy(b[at:], v)
		return b
	}
	var p Pool
	for name, b := range map[string][]byte{
		"reply":               change(askARP, 21, 2),
		"probe":               change(askARP, 28, 0, 0, 0, 0),
		"announcement":        change(askARP, 28, 10, 254, 0, 1),
		"other protocol":      change(askARP, 17, 1),
		"forwarded":           change(askND, 21, 254),
		"wrong checksum":      change(askND, 57, 0),
		"advertisement":       change(askND, 54, 136),
		"router solicitation": change(askND, 54, 133),
		"IPv4":                unhex(t, "02000a000001 02000a000002 0800 45000014 00004000 400166e8 0a000002 0a000001"),
	} {
		f, err := p.Parse(b)
		if err != nil {
			continue
		}
		if q, ok := f.Asks(); ok {
			t.Errorf("%s: asks for %v", name, AddrOf(q.IP))
		}
		p.Put(f)
	}
}
