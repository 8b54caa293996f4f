// SPDX-License-Identifier: Apache-2.0

package wire

// OpCode is the first byte of the BTH: the transport service in bits 7..5, the
// operation in bits 4..0 (InfiniBand specification, chapter 9.2.1).
type OpCode uint8

// Service is the transport service of an opcode or queue pair.
type Service uint8

// Services, as they stand in bits 7..5 of the opcode.
const (
	RC          Service = 0
	UC          Service = 1
	RD          Service = 2 // never used
	UD          Service = 3
	ServiceCNP  Service = 4
	ServiceNone Service = 7
)

// String names the service.
func (s Service) String() string {
	switch s {
	case RC:
		return "RC"
	case UC:
		return "UC"
	case UD:
		return "UD"
	case ServiceCNP:
		return "CNP"
	case RD:
		return "RD"
	}
	return "none"
}

// RC opcodes; OpUC and OpUD turn those the other services share into theirs.
const (
	OpSendFirst      OpCode = 0x00
	OpSendMiddle     OpCode = 0x01
	OpSendLast       OpCode = 0x02
	OpSendLastImm    OpCode = 0x03
	OpSendOnly       OpCode = 0x04
	OpSendOnlyImm    OpCode = 0x05
	OpWriteFirst     OpCode = 0x06
	OpWriteMiddle    OpCode = 0x07
	OpWriteLast      OpCode = 0x08
	OpWriteLastImm   OpCode = 0x09
	OpWriteOnly      OpCode = 0x0a
	OpWriteOnlyImm   OpCode = 0x0b
	OpReadRequest    OpCode = 0x0c
	OpReadRespFirst  OpCode = 0x0d
	OpReadRespMiddle OpCode = 0x0e
	OpReadRespLast   OpCode = 0x0f
	OpReadRespOnly   OpCode = 0x10
	OpAcknowledge    OpCode = 0x11
	OpAtomicAck      OpCode = 0x12
	OpCompareSwap    OpCode = 0x13
	OpFetchAdd       OpCode = 0x14
	OpSendLastInv    OpCode = 0x16
	OpSendOnlyInv    OpCode = 0x17
	OpUC             OpCode = 0x20 // added to an RC opcode
	OpUDSendOnly     OpCode = 0x64
	OpUDSendOnlyImm  OpCode = 0x65
	OpCNP            OpCode = 0x81
)

// OpFlags are an opcode's place in its message and its needs.
type OpFlags uint8

// Meanings of an opcode; the names follow the opcode table of docs/wire.md.
const (
	OpBegin    OpFlags = 1 << iota // begins a message
	OpEnd                          // ends a message
	OpRecvWQE                      // consumes a receive work request
	OpRecvCQE                      // completes at the receiver
	OpResponse                     // travels from responder to requester
	OpPayload                      // may carry payload
	OpFull                         // payload is exactly the path MTU
	OpAssigned                     // the opcode exists
)

// OpInfo is one row of the opcode table.
type OpInfo struct {
	Name   string
	Flags  OpFlags
	Header uint8 // bytes from the start of the BTH to the payload
	RETH   bool
	AETH   bool
	Imm    bool
	IETH   bool
	DETH   bool
	Atomic bool // AtomicETH
}

// Info returns the opcode's row. An unassigned opcode has no flags and only a BTH.
func (o OpCode) Info() *OpInfo { return &opTable[o] }

// Service returns the transport service.
func (o OpCode) Service() Service { return Service(o >> 5) }

// Operation returns the opcode without its service: the part that RC, UC and UD share.
func (o OpCode) Operation() OpCode { return o & 0x1f }

// String names the opcode as Wireshark does, without the service's blanks.
func (o OpCode) String() string {
	if i := &opTable[o]; i.Flags&OpAssigned != 0 {
		return i.Name
	}
	return "UNASSIGNED"
}

// Is reports whether all of the given flags are set for the opcode.
func (o OpCode) Is(f OpFlags) bool { return opTable[o].Flags&f == f }

var opTable = buildOpTable()

func buildOpTable() (t [256]OpInfo) {
	for i := range t {
		t[i].Header = BTHLen
	}
	const send, write, imm = OpPayload, OpPayload, OpRecvWQE | OpRecvCQE
	// Operations UC shares with RC are entered once and copied below.
	t[OpSendFirst] = OpInfo{Name: "SEND_FIRST", Flags: send | OpBegin | OpFull | OpRecvWQE}
	t[OpSendMiddle] = OpInfo{Name: "SEND_MIDDLE", Flags: send | OpFull}
	t[OpSendLast] = OpInfo{Name: "SEND_LAST", Flags: send | OpEnd | OpRecvCQE}
	t[OpSendLastImm] = OpInfo{Name: "SEND_LAST_WITH_IMM", Flags: send | OpEnd | OpRecvCQE, Imm: true}
	t[OpSendOnly] = OpInfo{Name: "SEND_ONLY", Flags: send | OpBegin | OpEnd | imm}
	t[OpSendOnlyImm] = OpInfo{Name: "SEND_ONLY_WITH_IMM", Flags: send | OpBegin | OpEnd | imm, Imm: true}
	t[OpWriteFirst] = OpInfo{Name: "WRITE_FIRST", Flags: write | OpBegin | OpFull, RETH: true}
	t[OpWriteMiddle] = OpInfo{Name: "WRITE_MIDDLE", Flags: write | OpFull}
	t[OpWriteLast] = OpInfo{Name: "WRITE_LAST", Flags: write | OpEnd}
	t[OpWriteLastImm] = OpInfo{Name: "WRITE_LAST_WITH_IMM", Flags: write | OpEnd | imm, Imm: true}
	t[OpWriteOnly] = OpInfo{Name: "WRITE_ONLY", Flags: write | OpBegin | OpEnd, RETH: true}
	t[OpWriteOnlyImm] = OpInfo{Name: "WRITE_ONLY_WITH_IMM", Flags: write | OpBegin | OpEnd | imm, RETH: true, Imm: true}
	t[OpReadRequest] = OpInfo{Name: "READ_REQUEST", Flags: OpBegin | OpEnd, RETH: true}
	t[OpReadRespFirst] = OpInfo{Name: "READ_RESPONSE_FIRST", Flags: OpPayload | OpResponse | OpFull | OpBegin, AETH: true}
	t[OpReadRespMiddle] = OpInfo{Name: "READ_RESPONSE_MIDDLE", Flags: OpPayload | OpResponse | OpFull}
	t[OpReadRespLast] = OpInfo{Name: "READ_RESPONSE_LAST", Flags: OpPayload | OpResponse | OpEnd, AETH: true}
	t[OpReadRespOnly] = OpInfo{Name: "READ_RESPONSE_ONLY", Flags: OpPayload | OpResponse | OpBegin | OpEnd, AETH: true}
	t[OpAcknowledge] = OpInfo{Name: "ACKNOWLEDGE", Flags: OpResponse | OpBegin | OpEnd, AETH: true}
	t[OpAtomicAck] = OpInfo{Name: "ATOMIC_ACKNOWLEDGE", Flags: OpResponse | OpBegin | OpEnd, AETH: true, Header: AtomicAckETHLen}
	t[OpCompareSwap] = OpInfo{Name: "COMPARE_SWAP", Flags: OpBegin | OpEnd, Atomic: true}
	t[OpFetchAdd] = OpInfo{Name: "FETCH_ADD", Flags: OpBegin | OpEnd, Atomic: true}
	t[OpSendLastInv] = OpInfo{Name: "SEND_LAST_WITH_INVALIDATE", Flags: send | OpEnd | OpRecvCQE, IETH: true}
	t[OpSendOnlyInv] = OpInfo{Name: "SEND_ONLY_WITH_INVALIDATE", Flags: send | OpBegin | OpEnd | imm, IETH: true}
	for o := OpSendFirst; o <= OpSendOnlyInv; o++ {
		i := &t[o]
		if i.Name == "" {
			continue
		}
		i.Flags |= OpAssigned
		i.Header += BTHLen
		if i.RETH {
			i.Header += RETHLen
		}
		if i.AETH {
			i.Header += AETHLen
		}
		if i.Imm || i.IETH {
			i.Header += ImmDtLen
		}
		if i.Atomic {
			i.Header += AtomicETHLen
		}
		if o <= OpWriteOnlyImm {
			uc := *i
			uc.Name = "UC_" + i.Name
			t[o+OpUC] = uc
		}
		i.Name = "RC_" + i.Name
	}
	for _, o := range []OpCode{OpUDSendOnly, OpUDSendOnlyImm} {
		ud := t[o.Operation()+OpUC]
		ud.Name = "UD_" + ud.Name[len("UC_"):]
		ud.DETH = true
		ud.Header += DETHLen
		t[o] = ud
	}
	t[OpCNP] = OpInfo{Name: "CNP", Flags: OpAssigned | OpBegin | OpEnd, Header: BTHLen + CNPReservedLen}
	return t
}
