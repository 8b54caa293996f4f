// SPDX-License-Identifier: Apache-2.0

package simlab

import "github.com/mcastlab/mcastlab/core/wire"

// IsData reports whether a frame is a request of RoCE. A congestion notification is none.
func IsData(f *wire.Frame) bool {
	return f.Kind() == wire.KindRoCE && !f.OpCode().Is(wire.OpResponse) && f.OpCode() != wire.OpCNP
}

// IsAck reports whether a frame is a positive acknowledgement without data.
func IsAck(f *wire.Frame) bool {
	return f.Kind() == wire.KindRoCE && f.OpCode() == wire.OpAcknowledge && f.AETH().Syndrome.IsACK()
}

// IsNak reports whether a frame is a negative acknowledgement, receiver not ready included.
func IsNak(f *wire.Frame) bool {
	return f.Kind() == wire.KindRoCE && f.OpCode() == wire.OpAcknowledge && !f.AETH().Syndrome.IsACK()
}

// IsMRP reports whether a frame is one of registration.
func IsMRP(f *wire.Frame) bool { return f.Kind() == wire.KindMRP }
