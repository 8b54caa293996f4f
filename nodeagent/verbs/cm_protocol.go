// SPDX-License-Identifier: Apache-2.0

package verbs

// The part of the protocol that librdmacm uses: endpoints of connections, of the communication manager (package cm).
// Their events come by a channel of opCreateChannel, as cmEvent.

// Requests of librdmacm; verbs/rdmacm_protocol.h has the same in C.
const (
	opCMCreate op = 64 + iota
	opCMDestroy
	opCMCloseChannel
	opCMBind
	opCMResolve
	opCMRoute
	opCMListen
	opCMConnect
	opCMAccept
	opCMReject
	opCMDisconnect
	opCMEstablish
	opCMJoin
	opCMQuery
	opCMMigrate
	opCMTraffic
	opCMTimeout
	opCMEnd
)

type cmCreate struct{ Channel, Space, Zero uint32 }

// cmAddr is an address of the fabric and a port.
type cmAddr struct {
	GID        [16]byte
	Port, Zero uint16
}

// cmAddress is the body of opCMBind, whose flag 1 lets others have the port, too, and of opCMResolve.
type cmAddress struct {
	ID, Flags, Zero uint32
	Addr            cmAddr
}

// cmValue is the body of opCMListen: the backlog, opCMMigrate: the channel, opCMTraffic: the class and opCMTimeout: the
// exponent.
type cmValue struct{ ID, Value uint32 }

// cmPrivate is the room for private data; none of a message is longer.
const cmPrivate = 224

// cmParams are a side's parameters of a connection.
type cmParams struct {
	QPN, QKey                                   uint32
	Responder, Initiator, Flow, Retry, RNR, SRQ uint8
	Length                                      uint16
	Data                                        [cmPrivate]byte
}

// cmConn is the body of opCMConnect, opCMAccept and opCMReject.
type cmConn struct {
	ID     uint32
	Params cmParams
}

type cmJoin struct {
	ID, Flags, Zero uint32
	Context         uint64
	GID             [16]byte
}

// cmQuery is the answer to opCMQuery.
type cmQuery struct {
	Reply                                                               reply
	Local, Remote                                                       cmAddr
	QPN, QKey, SQPSN, RQPSN, MTU, Space                                 uint32
	Timeout, Retry, RNR, Responder, Initiator, Traffic, Known, ZeroTail uint8
}

// cmEvent is an event of an endpoint, as a channel carries it. Context is opCMJoin's.
type cmEvent struct {
	Type, ID, Listener uint32
	Status             int32
	Local, Remote      cmAddr
	Context            uint64
	Params             cmParams
}

// Events that do not come of the communication manager (enum rdma_cm_event_type).
const (
	cmAddrResolved  = 0
	cmRouteResolved = 2
	cmDeviceRemoval = 11
	cmMulticastJoin = 12
)

func cmBody(o op) any {
	switch o {
	case opCMCreate:
		return new(cmCreate)
	case opCMBind, opCMResolve:
		return new(cmAddress)
	case opCMListen, opCMMigrate, opCMTraffic, opCMTimeout:
		return new(cmValue)
	case opCMConnect, opCMAccept, opCMReject:
		return new(cmConn)
	case opCMJoin:
		return new(cmJoin)
	}
	return new(byID)
}
