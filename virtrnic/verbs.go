package virtrnic

import (
	"errors"

	"github.com/mcastlab/mcastlab/wire"
)

// The verbs' vocabulary, named and numbered as in libibverbs.

// WROpcode says what a send work request does (ibv_wr_opcode).
type WROpcode uint8

// Work request opcodes.
const (
	WRRDMAWrite        WROpcode = 0
	WRRDMAWriteWithImm WROpcode = 1
	WRSend             WROpcode = 2
	WRSendWithImm      WROpcode = 3
)

// SendFlags qualify a send work request (ibv_send_flags).
type SendFlags uint8

// Send flags.
const (
	SendSignaled  SendFlags = 2 // completes with a CQE even if the QP does not signal all
	SendSolicited SendFlags = 4 // raises an event at the receiver
)

// AccessFlags say what may be done with a memory region or through a queue pair
// (ibv_access_flags). Local read is always allowed.
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

// SendWR is a request posted to the send queue.
type SendWR struct {
	WRID       uint64
	Opcode     WROpcode
	Flags      SendFlags
	SGE        SGE
	RemoteAddr uint64 // RDMA only
	RKey       uint32 // RDMA only
	Imm        uint32 // with immediate only
}

// RecvWR is a buffer posted to the receive queue.
type RecvWR struct {
	WRID uint64
	SGE  SGE
}

// WCStatus is how a work request ended (ibv_wc_status).
type WCStatus uint8

// Completion statuses in use; the numbers are libibverbs'.
const (
	WCSuccess        WCStatus = 0
	WCLocLenErr      WCStatus = 1
	WCLocQPOpErr     WCStatus = 2
	WCLocProtErr     WCStatus = 4
	WCWRFlushErr     WCStatus = 5
	WCBadRespErr     WCStatus = 7
	WCLocAccessErr   WCStatus = 8
	WCRemInvReqErr   WCStatus = 9
	WCRemAccessErr   WCStatus = 10
	WCRemOpErr       WCStatus = 11
	WCRetryExcErr    WCStatus = 12
	WCRNRRetryExcErr WCStatus = 13
	WCFatalErr       WCStatus = 19
	WCGeneralErr     WCStatus = 21
)

// String returns what ibv_wc_status_str does.
func (s WCStatus) String() string {
	switch s {
	case WCSuccess:
		return "success"
	case WCLocLenErr:
		return "local length error"
	case WCLocQPOpErr:
		return "local QP operation error"
	case WCLocProtErr:
		return "local protection error"
	case WCWRFlushErr:
		return "Work Request Flushed Error"
	case WCBadRespErr:
		return "bad response error"
	case WCLocAccessErr:
		return "local access error"
	case WCRemInvReqErr:
		return "remote invalid request error"
	case WCRemAccessErr:
		return "remote access error"
	case WCRemOpErr:
		return "remote operation error"
	case WCRetryExcErr:
		return "transport retry counter exceeded"
	case WCRNRRetryExcErr:
		return "RNR retry counter exceeded"
	case WCFatalErr:
		return "fatal error"
	}
	return "general error"
}

// WCOpcode says what completed (ibv_wc_opcode).
type WCOpcode uint8

// Completion opcodes.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// WC is a work completion. After an error only WRID, Status and QPN count.
type WC struct {
	WRID    uint64
	Status  WCStatus
	Opcode  WCOpcode
	WithImm bool
	ByteLen uint32
	Imm     uint32
	QPN     wire.QPN
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

// AttrMask says which fields of a QPAttr a ModifyQP carries (ibv_qp_attr_mask).
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

// AH is where a queue pair's packets go (ibv_ah_attr).
type AH struct {
	DGID         uint32 // remote address, or the McstID of a group
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
	MaxQPRdAtomic   uint8
	MaxDestRdAtomic uint8
	DestQPN         wire.QPN
}

// QPInit is what CreateQP needs (ibv_qp_init_attr).
type QPInit struct {
	PD             *PD
	SendCQ, RecvCQ *CQ
	MaxSendWR      int
	MaxRecvWR      int
	SQSigAll       bool // every send work request completes with a CQE
}

// Errors of verbs calls. What happens on the wire is reported by completions.
var (
	ErrInvalid = errors.New("invalid argument")                         // EINVAL
	ErrNoMem   = errors.New("queue or table is full")                   // ENOMEM
	ErrState   = errors.New("operation not allowed in this QP state")   // EINVAL
	ErrBusy    = errors.New("object is in use")                         // EBUSY
	ErrKey     = errors.New("key does not name a memory region")        // EINVAL
	ErrQueue   = errors.New("the send queue still holds work requests") // of SyncPSN
)
