// SPDX-License-Identifier: Apache-2.0

package cm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mcastlab/mcastlab/core/wire"
)

// MADLen is the length of every management datagram.
const MADLen = 256

// headerLen is the length of the header that all management datagrams have in common.
const headerLen = 24

// The common header of a datagram of communication management.
const (
	baseVersion  = 1
	classCM      = 0x07
	classVersion = 2
	methodSend   = 0x03
)

// Attribute is the type of a message: its attribute ID.
type Attribute uint16

// Attributes of communication management that are served.
const (
	REQ     Attribute = 0x10
	MRA     Attribute = 0x11
	REJ     Attribute = 0x12
	REP     Attribute = 0x13
	RTU     Attribute = 0x14
	DREQ    Attribute = 0x15
	DREP    Attribute = 0x16
	SIDRReq Attribute = 0x17
	SIDRRep Attribute = 0x18
)

// String returns the name of the message.
func (a Attribute) String() string {
	names := [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP"}
	if a < REQ || a > SIDRRep {
		return fmt.Sprintf("attribute %#x", uint16(a))
	}
	return names[a-REQ]
}

// Reason is the reason of a REJ.
type Reason uint16

// Reasons that are given here.
const (
	ReasonNoResources      Reason = 3
	ReasonTimeout          Reason = 4
	ReasonInvalidCommID    Reason = 6
	ReasonInvalidService   Reason = 8
	ReasonInvalidTransport Reason = 9
	ReasonStale            Reason = 10
	ReasonInvalidMTU       Reason = 26
	ReasonConsumer         Reason = 28
)

// Status is the answer of a SIDR_REP.
type Status uint8

// Statuses that are given here.
const (
	StatusValid       Status = 0
	StatusUnsupported Status = 1 // service ID not supported
	StatusRejected    Status = 2 // by the service
)

// Message is a datagram of communication management. The comments name the messages that have a field; in the
// others it is not looked at. RDMA over Ethernet has no LIDs: where InfiniBand has them, 0xffff stands.
type Message struct {
	Attribute Attribute
	TID       uint64

	LocalID  uint32 // all but SIDR: communication ID of the sender; SIDR: request ID
	RemoteID uint32 // all but REQ and SIDR

	ServiceID uint64 // REQ, SIDR
	GUID      uint64 // REQ, REP
	QPN       wire.QPN
	QKey      uint32   // REQ, REP, SIDR_REP
	PSN       wire.PSN // REQ, REP: Starting PSN, with which the receiver of the message begins to send
	PKey      uint16   // REQ, SIDR_REQ

	ResponderResources uint8 // REQ, REP
	InitiatorDepth     uint8 // REQ, REP
	Transport          uint8 // REQ: 0 is RC, 1 UC
	FlowControl        bool  // REQ, REP
	SRQ                bool  // REQ, REP
	RetryCount         uint8 // REQ
	RNRRetryCount      uint8 // REQ, REP
	MTU                uint8 // REQ: code of the path's
	RemoteTimeout      uint8 // REQ: exponent, in which the peer's CM answers
	LocalTimeout       uint8 // REQ: exponent, in which the sender's CM answers
	MaxCMRetries       uint8 // REQ
	AckDelay           uint8 // REP
	Path               Path  // REQ: the primary one

	Kind    uint8  // MRA, REJ: which message: 0 REQ, 1 REP, 2 neither
	Timeout uint8  // MRA: exponent
	Reason  Reason // REJ
	Status  Status // SIDR_REP

	// Private is the private data, in its whole length after Parse. AppendTo fills up with zeros.
	Private []byte
}

// Path is a path of a REQ.
type Path struct {
	Local, Remote [16]byte // GIDs
	FlowLabel     uint32
	Rate          uint8 // static rate, code
	TrafficClass  uint8
	HopLimit      uint8
	SL            uint8
	SubnetLocal   bool
	AckTimeout    uint8
}

// lidPermissive stands where InfiniBand has the LID of a port behind a router.
const lidPermissive = 0xffff

// Errors of Parse.
var (
	ErrLength    = errors.New("management datagram is not 256 bytes long")
	ErrClass     = errors.New("not a datagram of communication management of version 2")
	ErrAttribute = errors.New("message is not served")
)

// privateAt is the offset of the private data of a message, after the common header.
func (a Attribute) privateAt() int {
	at := [...]int{140, 10, 84, 36, 8, 12, 8, 16, 96}
	return at[a-REQ]
}

// PrivateMax returns the number of bytes of private data of a message.
func (a Attribute) PrivateMax() int { return MADLen - headerLen - a.privateAt() }

// AppendTo appends the datagram. Private data must not be longer than there is room.
func (m *Message) AppendTo(b []byte) []byte {
	n := len(b)
	var zero [MADLen]byte
	b = append(b, zero[:]...)
	h := b[n:]
	h[0], h[1], h[2], h[3] = baseVersion, classCM, classVersion, methodSend
	binary.BigEndian.PutUint64(h[8:], m.TID)
	binary.BigEndian.PutUint16(h[16:], uint16(m.Attribute))
	d := h[headerLen:]
	m.put(d)
	copy(d[m.Attribute.privateAt():], m.Private)
	return b
}

func (m *Message) put(d []byte) {
	be := binary.BigEndian
	be.PutUint32(d, m.LocalID)
	if m.Attribute != REQ && m.Attribute < SIDRReq {
		be.PutUint32(d[4:], m.RemoteID)
	}
	switch m.Attribute {
	case REQ:
		m.putREQ(d)
	case MRA:
		d[8], d[9] = m.Kind<<6, m.Timeout<<3
	case REJ:
		d[8] = m.Kind << 6
		be.PutUint16(d[10:], uint16(m.Reason))
	case REP:
		be.PutUint32(d[8:], m.QKey)
		be.PutUint32(d[12:], uint32(m.QPN)<<8)
		be.PutUint32(d[20:], uint32(m.PSN)<<8)
		d[24], d[25] = m.ResponderResources, m.InitiatorDepth
		d[26] = m.AckDelay<<3 | bit(m.FlowControl)
		d[27] = m.RNRRetryCount<<5 | bit(m.SRQ)<<4
		be.PutUint64(d[28:], m.GUID)
	case DREQ:
		be.PutUint32(d[8:], uint32(m.QPN)<<8)
	case SIDRReq:
		be.PutUint16(d[4:], m.PKey)
		be.PutUint64(d[8:], m.ServiceID)
	case SIDRRep:
		d[4] = uint8(m.Status)
		be.PutUint32(d[8:], uint32(m.QPN)<<8)
		be.PutUint64(d[12:], m.ServiceID)
		be.PutUint32(d[20:], m.QKey)
	}
}

func (m *Message) putREQ(d []byte) {
	be := binary.BigEndian
	be.PutUint64(d[8:], m.ServiceID)
	be.PutUint64(d[16:], m.GUID)
	be.PutUint32(d[28:], m.QKey)
	be.PutUint32(d[32:], uint32(m.QPN)<<8|uint32(m.ResponderResources))
	d[39] = m.InitiatorDepth
	d[43] = m.RemoteTimeout<<3 | m.Transport&3<<1 | bit(m.FlowControl)
	be.PutUint32(d[44:], uint32(m.PSN)<<8)
	d[47] = m.LocalTimeout<<3 | m.RetryCount&7
	be.PutUint16(d[48:], m.PKey)
	d[50] = m.MTU<<4 | m.RNRRetryCount&7
	d[51] = m.MaxCMRetries<<4 | bit(m.SRQ)<<3
	be.PutUint16(d[52:], lidPermissive)
	be.PutUint16(d[54:], lidPermissive)
	p := &m.Path
	copy(d[56:], p.Local[:])
	copy(d[72:], p.Remote[:])
	be.PutUint32(d[88:], p.FlowLabel<<12|uint32(p.Rate&0x3f))
	d[92], d[93] = p.TrafficClass, p.HopLimit
	d[94] = p.SL<<4 | bit(p.SubnetLocal)<<3
	d[95] = p.AckTimeout << 3
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// Parse reads a datagram. The private data is a part of b.
func Parse(b []byte) (m Message, err error) {
	if len(b) != MADLen {
		return m, ErrLength
	}
	if b[0] != baseVersion || b[1] != classCM || b[2] != classVersion || b[3] != methodSend {
		return m, ErrClass
	}
	be := binary.BigEndian
	m.Attribute = Attribute(be.Uint16(b[16:]))
	if m.Attribute < REQ || m.Attribute > SIDRRep {
		return m, ErrAttribute
	}
	m.TID = be.Uint64(b[8:])
	d := b[headerLen:]
	m.Private = d[m.Attribute.privateAt():]
	m.LocalID = be.Uint32(d)
	if m.Attribute != REQ && m.Attribute < SIDRReq {
		m.RemoteID = be.Uint32(d[4:])
	}
	switch m.Attribute {
	case REQ:
		m.getREQ(d)
	case MRA:
		m.Kind, m.Timeout = d[8]>>6, d[9]>>3
	case REJ:
		m.Kind, m.Reason = d[8]>>6, Reason(be.Uint16(d[10:]))
	case REP:
		m.QKey = be.Uint32(d[8:])
		m.QPN, m.PSN = wire.QPN(be.Uint32(d[12:])>>8), wire.PSN(be.Uint32(d[20:])>>8)
		m.ResponderResources, m.InitiatorDepth = d[24], d[25]
		m.AckDelay, m.FlowControl = d[26]>>3, d[26]&1 != 0
		m.RNRRetryCount, m.SRQ = d[27]>>5, d[27]&0x10 != 0
		m.GUID = be.Uint64(d[28:])
	case DREQ:
		m.QPN = wire.QPN(be.Uint32(d[8:]) >> 8)
	case SIDRReq:
		m.PKey, m.ServiceID = be.Uint16(d[4:]), be.Uint64(d[8:])
	case SIDRRep:
		m.Status, m.QPN = Status(d[4]), wire.QPN(be.Uint32(d[8:])>>8)
		m.ServiceID, m.QKey = be.Uint64(d[12:]), be.Uint32(d[20:])
	}
	return m, nil
}

func (m *Message) getREQ(d []byte) {
	be := binary.BigEndian
	m.ServiceID, m.GUID, m.QKey = be.Uint64(d[8:]), be.Uint64(d[16:]), be.Uint32(d[28:])
	m.QPN, m.ResponderResources = wire.QPN(be.Uint32(d[32:])>>8), d[35]
	m.InitiatorDepth = d[39]
	m.RemoteTimeout, m.Transport, m.FlowControl = d[43]>>3, d[43]>>1&3, d[43]&1 != 0
	m.PSN = wire.PSN(be.Uint32(d[44:]) >> 8)
	m.LocalTimeout, m.RetryCount = d[47]>>3, d[47]&7
	m.PKey = be.Uint16(d[48:])
	m.MTU, m.RNRRetryCount = d[50]>>4, d[50]&7
	m.MaxCMRetries, m.SRQ = d[51]>>4, d[51]&8 != 0
	p := &m.Path
	copy(p.Local[:], d[56:])
	copy(p.Remote[:], d[72:])
	v := be.Uint32(d[88:])
	p.FlowLabel, p.Rate = v>>12, uint8(v&0x3f)
	p.TrafficClass, p.HopLimit = d[92], d[93]
	p.SL, p.SubnetLocal = d[94]>>4, d[94]&8 != 0
	p.AckTimeout = d[95] >> 3
}
