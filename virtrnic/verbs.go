// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"errors"

	"github.com/mcastlab/mcastlab/core/wire"
)

// The verbs' vocabulary, named and numbered as in libibverbs.

// WROpcode is the operation of a send work request (ibv_wr_opcode).
type WROpcode uint8

// Work request opcodes.
const (
	WRRDMAWrite        WROpcode = 0
	WRRDMAWriteWithImm WROpcode = 1
	WRSend             WROpcode = 2
	WRSendWithImm      WROpcode = 3
	WRRDMARead         WROpcode = 4
	WRAtomicCmpAndSwp  WROpcode = 5
	WRAtomicFetchAdd   WROpcode = 6
	WRSendWithInv      WROpcode = 9
)

// SendFlags qualify a send work request (ibv_send_flags).
type SendFlags uint8

// Send flags.
const (
	SendFence     SendFlags = 1 // waits until the READs and atomics before it are complete
	SendSignaled  SendFlags = 2 // completes with a CQE even if the QP does not signal all
	SendSolicited SendFlags = 4 // raises an event at the receiver
	SendInline    SendFlags = 8 // takes its data from SendWR.Inline at posting
)

// AccessFlags are the operations allowed on a memory region or through a queue pair (ibv_access_flags).
// Local read is always allowed.
type AccessFlags uint8

// Access flags.
const (
	AccessLocalWrite   AccessFlags = 1
	AccessRemoteWrite  AccessFlags = 2
	AccessRemoteRead   AccessFlags = 4
	AccessRemoteAtomic AccessFlags = 8
)

// SGE is a piece of a local memory region.
type SGE struct {
	Addr   uint64 // virtual address in the region
	Length uint32 // bytes, at most MaxMessage
	LKey   uint32
}

// SendWR is a request posted to the send queue (ibv_send_wr). PostSend copies its list and its
// inline data.
type SendWR struct {
	WRID       uint64
	Opcode     WROpcode
	Flags      SendFlags
	SGE        SGE    // the local memory, if it is one piece
	RemoteAddr uint64 // READ, WRITE and atomics
	RKey       uint32 // READ, WRITE and atomics; SEND with invalidate: the key to take back
	Imm        uint32 // with immediate only
	SGL        []SGE  // the local memory in pieces; not nil: in place of SGE
	Inline     []byte // the data of a request with SendInline
	SwapAdd    uint64 // atomics: the new value, or the value to add
	Compare    uint64 // compare-and-swap: swaps if the memory holds this
	UD         UDDest // UD only
}

// UDDest is the destination of a datagram.
type UDDest struct {
	AH   *AddressHandle
	QPN  wire.QPN // wire.QPNMulticast for a group
	QKey uint32   // with the highest bit set: the sending queue pair's own
}

// RecvWR is a buffer posted to a receive queue. A UD queue pair puts 40 bytes of global
// route header in front of the data.
type RecvWR struct {
	WRID uint64
	SGE  SGE
	SGL  []SGE // in pieces; not nil: in place of SGE
}

// QPType is the transport service of a queue pair (ibv_qp_type).
type QPType uint8

// Queue pair types. QPInit takes 0 for RC.
const (
	TypeRC QPType = 2
	TypeUC QPType = 3
	TypeUD QPType = 4
)

// service returns the type's opcode class.
func (t QPType) service() wire.Service {
	switch t {
	case TypeUC:
		return wire.UC
	case TypeUD:
		return wire.UD
	}
	return wire.RC
}

// QPState is the state of a queue pair (ibv_qp_state).
type QPState uint8

// Queue pair states.
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

// String names the state.
func (s QPState) String() string {
	return [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}[s]
}

// AttrMask selects the fields of a QPAttr that a ModifyQP carries (ibv_qp_attr_mask).
type AttrMask uint32

// Attribute mask bits.
const (
	AttrState            AttrMask = 1 << 0
	AttrCurState         AttrMask = 1 << 1
	AttrEnSQDAsyncNotify AttrMask = 1 << 2
	AttrAccessFlags      AttrMask = 1 << 3
	AttrPKeyIndex        AttrMask = 1 << 4
	AttrPort             AttrMask = 1 << 5
	AttrQKey             AttrMask = 1 << 6
	AttrAV               AttrMask = 1 << 7
	AttrPathMTU          AttrMask = 1 << 8
	AttrTimeout          AttrMask = 1 << 9
	AttrRetryCnt         AttrMask = 1 << 10
	AttrRNRRetry         AttrMask = 1 << 11
	AttrRQPSN            AttrMask = 1 << 12
	AttrMaxQPRdAtomic    AttrMask = 1 << 13
	AttrMinRNRTimer      AttrMask = 1 << 15
	AttrSQPSN            AttrMask = 1 << 16
	AttrMaxDestRdAtomic  AttrMask = 1 << 17
	AttrDestQPN          AttrMask = 1 << 20
)

// AH is the address to which a queue pair sends (ibv_ah_attr).
type AH struct {
	DGID         uint32 // remote address, or the McstID of a group
	FlowLabel    uint32 // of IPv6, 20 bits; it decides the UDP source port. 0: both queue pair numbers decide the port, as in the kernel
	TrafficClass uint8  // DSCP and ECN
	HopLimit     uint8
}

// QPAttr carries the attributes of ModifyQP and QueryQP.
type QPAttr struct {
	State           QPState
	CurState        QPState
	EnSQDAsync      bool
	Access          AccessFlags
	PKeyIndex       uint16
	Port            uint8
	AV              AH
	PathMTU         int   // 256, 512, 1024, 2048 or 4096 payload bytes
	Timeout         uint8 // 4.096 us * 2^Timeout; 0: never
	RetryCnt        uint8 // 0..7
	RNRRetry        uint8 // 0..6; 7: without end
	RQPSN           wire.PSN
	SQPSN           wire.PSN
	MinRNRTimer     uint8 // timer code 0..31
	MaxQPRdAtomic   uint8 // READs and atomics under way as requester, at most MaxRdAtomic
	MaxDestRdAtomic uint8 // remembered as responder, at most MaxRdAtomic; 0: none accepted
	DestQPN         wire.QPN
	QKey            uint32 // UD
}

// QPInit has the parameters of CreateQP (ibv_qp_init_attr).
type QPInit struct {
	Type           QPType
	PD             *PD
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ // takes the place of the receive queue; RC and UD
	MaxSendWR      int
	MaxRecvWR      int
	MaxSendSGE     int  // pieces of a request, at most MaxSGE; 0: 1
	MaxRecvSGE     int  // pieces of a buffer, at most MaxSGE; 0: 1
	MaxInline      int  // bytes of an inline request, at most MaxInlineData
	SQSigAll       bool // every send work request completes with a CQE
	Loopback       Loopback
}

// Loopback selects the datagrams of its own NIC that a queue pair of UD receives from the groups that it is
// attached to.
type Loopback uint8

// Values of Loopback. A device of rdma-core has LoopbackAll, and with IBV_QP_CREATE_BLOCK_SELF_MCAST_LB LoopbackOthers.
const (
	LoopbackNone   Loopback = iota
	LoopbackOthers          // those of other queue pairs
	LoopbackAll             // its own, too
)

// Errors of verbs calls. What happens on the wire is reported by completions.
var (
	ErrInvalid = errors.New("invalid argument")                         // EINVAL
	ErrNoMem   = errors.New("queue or table is full")                   // ENOMEM
	ErrState   = errors.New("operation not allowed in this QP state")   // EINVAL
	ErrBusy    = errors.New("object is in use")                         // EBUSY
	ErrKey     = errors.New("key does not name a memory region")        // EINVAL
	ErrQueue   = errors.New("the send queue still holds work requests") // of SyncPSN
)
