// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// The messages of the socket; verbs/protocol.h has the same in C. All numbers are little-endian.

// version is the version of the protocol, which V_HELLO carries in both directions.
const version = 5

// op is the first field of a request.
type op uint32

// Requests.
const (
	opHello op = 1 + iota
	opAllocPD
	opDeallocPD
	opRegMR
	opDeregMR
	opCreateChannel
	opDestroyChannel
	opCreateCQ
	opDestroyCQ
	opCreateQP
	opDestroyQP
	opModifyQP
	opQueryQP
	opCreateAH
	opDestroyAH
	opAttachMcast
	opDetachMcast
	opCreateSRQ
	opDestroySRQ
	opModifySRQ
	opQuerySRQ
	opResizeCQ
	opClock
	opUnsent
	opReregMR
	opEnd
)

// opTime is the only message of a connection of the library of lab time. The library gets a page, which it can only read,
// and uses its rates.
const opTime op = 48

// Requests about in-network groups. Those from opGroupOffer on are an operator's, and begin its connection.
const (
	opGroupWant op = 96 + iota
	opGroupMember
	opGroupRegister
	opGroupStatus
	opGroupSource
	opGroupOffer
	opGroupRun
	opGroupServe
	opGroupGrant
	opGroupEnd
)

// groupID names a group by its address: opGroupRegister, opGroupStatus and opGroupRun.
type groupID struct{ GID [16]byte }

// groupOffer is an operator's: programs at this NIC may take part in the group. If Bound is not 0, the operator registers it,
// requests of its source wait for opGroupRun, and it is there until the operator goes.
type groupOffer struct {
	GID   [16]byte
	Bound uint32
}

// groupMember names a member of a group to the host that is to register it.
type groupMember struct {
	Group, GID [16]byte
	QPN        uint32
}

// groupSource has a queue pair become the source of its group, or follow one that does.
type groupSource struct{ QPN, New uint32 }

// groupGrant is the answer of a lessor, and the answer to opGroupWant.
type groupGrant struct {
	Reply reply
	GID   [16]byte
}

// Roles of connections of programs whose time is virtual (Turns).
const (
	opProgram op = 49 + iota // of a program's guardian; it stays open for as long as the program runs
	opThread                 // of a thread; it stays open as long as that lives
	opPark                   // the thread waits
	opBye                    // the thread ends
	opExpect                 // the thread has started a process
	opDies                   // a process dies of a signal that the thread has sent
	opTurnsEnd
)

type programHello struct{ Rank uint32 }

type threadHello struct{ Rank, PID, Announced uint32 }

// What opExpect announces in place of a process.
const (
	expectThread = 0          // a thread
	expectNone   = ^uint32(0) // none, after all
)

// park is the wait of a thread. Times are lab time in picoseconds.
type park struct {
	Kind, Flags, Zero uint32
	Until, Grid       uint64
}

// Kinds of waits.
const (
	parkSleep   = 1 + iota // until the instant
	parkPoll               // for news of the NIC, as if it looked every Grid
	parkOutside            // for something outside the lab
	parkBeside             // for another thread of the process
	parkMemory             // for bytes that come into the process's memory
	parkKernel             // in the kernel, in a call that was not announced: no thread reports this, the node sees it
)

// Flags of a wait.
const (
	parkTouched = 1  // the thread has done something that others may wait for outside the lab
	parkEvents  = 2  // an event of the NIC ends the wait, too
	parkReady   = 4  // its condition holds (whyCheck)
	parkAgain   = 8  // since its last turn the thread has only looked, and found nothing
	parkBack    = 16 // the thread asks for a turn after it was asleep in the kernel
)

// Where a thread's page (v_seat) has its fields.
const (
	seatBusy   = 0
	seatAsleep = 4
	seatServed = 8
	seatSaid   = 24
	seatLen    = 32
)

// turn resumes a thread.
type turn struct {
	Status, Why uint32
	Now         uint64 // lab time in picoseconds
}

// Reasons for which a thread resumes.
const (
	whyTime    = 1 + iota // its instant has come, or there is news
	whyOutside            // it may look outside the lab
	whyEvent              // the NIC has raised an event
	whyCheck              // it is to check its condition outside the lab, and to report whether it could resume
)

type hello struct{ Version uint32 }

type byID struct{ ID uint32 }

type regMR struct {
	PD, Access, Zero   uint32
	Addr, Length, IOVA uint64
}

type reregMR struct {
	ID, Flags, PD, Access, Zero uint32
	Addr, Length                uint64
}

// Flags of reregMR: those of enum ibv_rereg_mr_flags.
const (
	reregMemory = 1 << iota
	reregPD
	reregAccess
	reregEnd
)

type createCQ struct{ Channel, Depth, Zero uint32 }

type resizeCQ struct{ ID, Depth uint32 }

type createQP struct {
	PD, SendCQ, RecvCQ, Type, SigAll              uint32
	SendWR, RecvWR, SendSGE, RecvSGE, Inline, SRQ uint32
	Flags                                         uint32
}

// blockSelfMulticast in Flags is IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.
const blockSelfMulticast = 1 << 1

type createSRQ struct{ PD, WR, SGE uint32 }

type modifySRQ struct{ ID, Limit uint32 }

// path is the destination of a queue pair or an address handle.
type path struct {
	GID                      [16]byte
	Flow, TrafficClass, Hops uint32
}

type attr struct {
	State, CurState, SQDAsync, Access, PKeyIndex, Port, PathMTU uint32
	Timeout, RetryCnt, RNRRetry, RQPSN, SQPSN, MinRNRTimer      uint32
	RdAtomic, DestRdAtomic, DestQPN, QKey                       uint32
	Path                                                        path
}

type modifyQP struct {
	QPN, Mask uint32
	Attr      attr
}

type createAH struct {
	PD   uint32
	Path path
}

type mcast struct {
	QPN uint32
	GID [16]byte
}

// reply is the answer to a request, and the beginning of the longer answers.
type reply struct{ Status, ID, Send, Recv uint32 }

type device struct {
	Reply                                                                      reply
	Version, MTU, Mbps, MaxQP, MaxQPWR, MaxCQE, MaxSGE, MaxInline, MaxRdAtomic uint32
	MaxMcastQP, MaxMcastGroups, MaxCQ, MaxSRQ, MaxMR, MaxPD, MaxAH             uint32
	MaxMRSize                                                                  uint64
	GID                                                                        [16]byte
}

type queried struct {
	Reply reply
	Attr  attr
}

// clock is the NIC's time in nanoseconds.
type clock struct {
	Reply reply
	Now   uint64
}

// event is a message of the asynchronous events' socket.
type event struct{ Type, ID uint32 }

// requestMax is longer than any request, so that a longer one is noticed.
const requestMax = 256

var errMalformed = errors.New("malformed request")

// body returns an empty body of a request.
func body(o op) any {
	switch {
	case o >= opGroupWant:
		return groupBody(o)
	case o >= opCMCreate:
		return cmBody(o)
	}
	switch o {
	case opHello:
		return new(hello)
	case opProgram:
		return new(programHello)
	case opThread:
		return new(threadHello)
	case opPark:
		return new(park)
	case opRegMR:
		return new(regMR)
	case opReregMR:
		return new(reregMR)
	case opCreateCQ:
		return new(createCQ)
	case opResizeCQ:
		return new(resizeCQ)
	case opCreateQP:
		return new(createQP)
	case opModifyQP:
		return new(modifyQP)
	case opCreateAH:
		return new(createAH)
	case opAttachMcast, opDetachMcast:
		return new(mcast)
	case opCreateSRQ:
		return new(createSRQ)
	case opModifySRQ:
		return new(modifySRQ)
	}
	return new(byID)
}

func groupBody(o op) any {
	switch o {
	case opGroupMember:
		return new(groupMember)
	case opGroupRegister, opGroupStatus, opGroupRun:
		return new(groupID)
	case opGroupSource:
		return new(groupSource)
	case opGroupOffer:
		return new(groupOffer)
	case opGroupGrant:
		return new(groupGrant)
	}
	return new(byID)
}

// known reports whether there is such a request.
func (o op) known() bool {
	return o >= opTime && o < opTurnsEnd || o >= opHello && o < opEnd || o >= opCMCreate && o < opCMEnd || o >= opGroupWant && o < opGroupEnd
}

// inTurns reports whether a request is of a connection of programs whose time is virtual.
func (o op) inTurns() bool { return o > opTime && o < opTurnsEnd }

// decode returns a request's body: a pointer to one of the structs above. The request must have
// exactly the length of its kind.
func decode(b []byte) (op, any, error) {
	if len(b) < 4 {
		return 0, nil, fmt.Errorf("read a request of %d bytes: %w", len(b), errMalformed)
	}
	o := op(binary.LittleEndian.Uint32(b))
	if !o.known() {
		return 0, nil, fmt.Errorf("read a request of kind %d: %w", o, errMalformed)
	}
	m := body(o)
	if want := binary.Size(m) + 4; len(b) != want {
		return 0, nil, fmt.Errorf("read a request of kind %d: %d bytes and not %d: %w", o, len(b), want, errMalformed)
	}
	if _, err := binary.Decode(b[4:], binary.LittleEndian, m); err != nil {
		return 0, nil, fmt.Errorf("read a request of kind %d: %w", o, err)
	}
	return o, m, nil
}

// encode returns the bytes of a reply or an event, all of whose fields have a size.
func encode(m any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, m); err != nil {
		panic(err) // a field without a size, which a test would have shown
	}
	return b.Bytes()
}
