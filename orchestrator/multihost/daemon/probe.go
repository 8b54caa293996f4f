// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

// A probe is a VXLAN datagram like those of links between servers, so that whatever treats those in a way of its own
// does it to probes, too. Its frame is one for local experiments (IEEE 802: 0x88b5) with a session and a proof that the
// sender was given its key, and is filled up with zeros.
//
//	0   8  VXLAN header (RFC 7348): flags 0x08, VNI 0
//	8   6  destination 02:00:00:00:00:02
//	14  6  source 02:00:00:00:00:01
//	20  2  0x88b5
//	22 16  session
//	38 32  HMAC-SHA256 of session and length of the frame (4 bytes, big-endian)
//	70  -  zeros
const (
	vxlanBytes  = 8
	sessionAt   = vxlanBytes + 14
	proofAt     = sessionAt + sessionBytes
	probeHeader = proofAt + sha256.Size

	sessionBytes = 16
	keyBytes     = 32
)

// envelope is the header of a probe in front of the session.
var envelope = [sessionAt]byte{0x08, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}

type session [sessionBytes]byte

// appendProbe appends the datagram of a probe whose frame has so many bytes, 62 at least.
func appendProbe(b []byte, s session, key []byte, frame int) []byte {
	start := len(b)
	b = append(b, envelope[:]...)
	b = append(b, s[:]...)
	b = append(b, proofOf(s, key, frame)...)
	return append(b, make([]byte, start+vxlanBytes+frame-len(b))...)
}

func proofOf(s session, key []byte, frame int) []byte {
	m := hmac.New(sha256.New, key)
	m.Write(s[:])
	m.Write(binary.BigEndian.AppendUint32(nil, uint32(frame)))
	return m.Sum(nil)
}

// parseProbe returns the parts of a datagram; ok is false if it is no probe. The proof is a part of b.
func parseProbe(b []byte) (s session, proof []byte, frame int, ok bool) {
	if len(b) < probeHeader || [sessionAt]byte(b) != envelope {
		return s, nil, 0, false
	}
	for _, x := range b[probeHeader:] {
		if x != 0 {
			return s, nil, 0, false
		}
	}
	return session(b[sessionAt:]), b[proofAt:probeHeader:probeHeader], len(b) - vxlanBytes, true
}
