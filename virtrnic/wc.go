// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "github.com/mcastlab/mcastlab/core/wire"

// WCStatus is the completion status of a work request (ibv_wc_status).
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

// String returns the text that ibv_wc_status_str returns.
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

// WCOpcode is the operation that completed (ibv_wc_opcode).
type WCOpcode uint8

// Completion opcodes.
const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

// WC is a work completion (ibv_wc). After an error only WRID, Status and QPN are valid.
type WC struct {
	WRID    uint64
	Status  WCStatus
	Opcode  WCOpcode
	WithImm bool
	WithInv bool     // the sender has invalidated a key, which Imm holds
	GRH     bool     // the buffer begins with 40 bytes of global route header
	ByteLen uint32   // bytes of the message; UD receive: the 40 of the header included
	Imm     uint32   // immediate data, or the invalidated key
	QPN     wire.QPN // the queue pair that completed
	SrcQP   wire.QPN // UD receive: the sender
}

// wcOpcode returns the opcode of the completion of a send request.
func wcOpcode(o WROpcode) WCOpcode {
	switch o {
	case WRRDMAWrite, WRRDMAWriteWithImm:
		return WCRDMAWrite
	case WRRDMARead:
		return WCRDMARead
	case WRAtomicCmpAndSwp:
		return WCCompSwap
	case WRAtomicFetchAdd:
		return WCFetchAdd
	}
	return WCSend
}
