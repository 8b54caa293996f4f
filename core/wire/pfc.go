// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// PFCLen is the size of a pause frame in bytes without FCS.
const PFCLen = MinFrameLen

// PauseQuantumBits is one pause quantum in bit times of the link (802.1Qbb).
const PauseQuantumBits = 512

const pfcOpcode uint16 = 0x0101

// pfcAddr is the destination of every pause frame. Bridges never forward it.
var pfcAddr = MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01}

// PFC is a priority-based flow control frame (802.1Qbb clause 36). A set bit i in Enable makes
// Quanta[i] count: 0 resumes the class, any other value pauses it for that many quanta, which replace
// the rest of an earlier pause.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|        destination 01:80:c2:00:00:01, source (12 bytes)       |
//	+-------------------------------+-------------------------------+
//	|       EtherType 0x8808        |         opcode 0x0101         |
//	+---------------+---------------+-------------------------------+
//	|       0       | class enable  |           quanta 0            |
//	+---------------+---------------+-------------------------------+
//	|                 quanta 1 .. quanta 7 (14 bytes)               |
//	+---------------------------------------------------------------+
//	|                     zero padding (26 bytes)                   |
//	+---------------------------------------------------------------+
type PFC struct {
	Src    MAC
	Enable uint8
	Quanta [8]uint16
}

// AppendTo appends the 60 frame bytes.
func (h PFC) AppendTo(b []byte) []byte {
	b = Ethernet{Dst: pfcAddr, Src: h.Src, EtherType: EtherTypeMACControl}.AppendTo(b)
	b = binary.BigEndian.AppendUint16(b, pfcOpcode)
	b = append(b, 0, h.Enable)
	for _, q := range h.Quanta {
		b = binary.BigEndian.AppendUint16(b, q)
	}
	return append(b, make([]byte, PFCLen-EthernetLen-2-2-16)...)
}

// ParsePFC reads a whole pause frame. It returns ErrFormat for MAC control frames
// that are not PFC (a classic 802.3x PAUSE among them).
func ParsePFC(b []byte) (h PFC, err error) {
	eth, rest, err := ParseEthernet(b)
	if err != nil {
		return PFC{}, err
	}
	if len(rest) < PFCLen-EthernetLen {
		return PFC{}, ErrShort
	}
	if eth.EtherType != EtherTypeMACControl || binary.BigEndian.Uint16(rest) != pfcOpcode {
		return PFC{}, ErrFormat
	}
	h = PFC{Src: eth.Src, Enable: rest[3]}
	for i := range h.Quanta {
		h.Quanta[i] = binary.BigEndian.Uint16(rest[4+2*i:])
	}
	return h, nil
}
