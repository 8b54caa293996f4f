// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/wire"
)

// message builds a control message as the kernel lays it out.
func message(level, kind int32, data ...byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(len(data))))
	binary.NativeEndian.PutUint32(b[8:], uint32(level))
	binary.NativeEndian.PutUint32(b[12:], uint32(kind))
	copy(b[unix.CmsgLen(0):], data)
	return b
}

// auxdata is a struct tpacket_auxdata.
func auxdata(status uint32, tci uint16) []byte {
	b := binary.NativeEndian.AppendUint32(nil, status)
	b = append(b, make([]byte, 12)...)
	b = binary.NativeEndian.AppendUint16(b, tci)
	return binary.NativeEndian.AppendUint16(b, 0x8100)
}

// TestTagComesBack: a frame whose tag the kernel has taken out is restored as it was sent, as a frame
// and behind the header of a train; one without a tag is left alone.
func TestTagComesBack(t *testing.T) {
	var pool wire.Pool
	at := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, 3), 5)
	stamp := message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, at...)
	tagged := roce(&pool, 7, 100, 1, false, overIPv6, func(w *wire.Flow) { w.VLAN = &wire.VLAN{PCP: 5, ID: 300} })
	taken := append(bytes.Clone(tagged[:12]), tagged[16:]...)
	for _, c := range []struct {
		name    string
		control []byte
		have    []byte
		want    []byte
	}{
		{"tag taken out", append(bytes.Clone(stamp), message(unix.SOL_PACKET, unix.PACKET_AUXDATA, auxdata(unix.TP_STATUS_VLAN_VALID, 5<<13|300)...)...), taken, tagged},
		{"no tag", append(bytes.Clone(stamp), message(unix.SOL_PACKET, unix.PACKET_AUXDATA, auxdata(0, 0)...)...), taken, taken},
		{"only a time", stamp, tagged, tagged},
	} {
		for _, skip := range []int{0, vnetLen} {
			k := readControl(c.control)
			if k.wall != 3e9+5 {
				t.Errorf("%s: stamped %d", c.name, k.wall)
			}
			head := bytes.Repeat([]byte{0xa5}, skip)
			got := k.whole(append(append(make([]byte, wire.VLANLen), head...), c.have...), skip)
			if want := append(head, c.want...); !bytes.Equal(got, want) {
				t.Errorf("%s, after %d bytes:\n got %x\nwant %x", c.name, skip, got, want)
			}
		}
	}
}

// TestControlCutShort: control messages that end anywhere, or lie about their length, are
// not read beyond their end.
func TestControlCutShort(t *testing.T) {
	whole := append(message(unix.SOL_SOCKET, unix.SCM_TIMESTAMPNS, make([]byte, 16)...),
		message(unix.SOL_PACKET, unix.PACKET_AUXDATA, auxdata(unix.TP_STATUS_VLAN_VALID, 9)...)...)
	if len(whole) > controlLen {
		t.Errorf("both messages take %d bytes, there is room for %d", len(whole), controlLen)
	}
	for n := range whole {
		cut := append(make([]byte, 0, n), whole[:n]...)
		if k := readControl(cut); k.tagged && n < len(whole)-4 {
			t.Errorf("%d of %d bytes have a tag", n, len(whole))
		}
	}
	for _, size := range []uint64{0, 1, 15, 17, 1 << 40} {
		bad := bytes.Clone(whole)
		binary.NativeEndian.PutUint64(bad, size)
		readControl(bad)
	}
	short := wire.VLANLen + 11
	if got := (control{tagged: true}).whole(make([]byte, short), 0); len(got) != 11 {
		t.Errorf("a frame of 11 bytes has %d", len(got))
	}
}
