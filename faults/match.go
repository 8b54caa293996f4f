// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
)

// Class is the purpose of a frame. Classes are bits, so that a set of classes is a Class too.
type Class uint8

// Classes of frames.
const (
	Data     Class = 1 << iota // requests: SEND, WRITE, READ, atomics, datagrams
	ACK                        // positive acknowledgements
	NAK                        // negative acknowledgements, RNR NAKs included
	Response                   // responses to READs and atomics
	CNP                        // congestion notification packets
	MRP                        // multicast registration packets
	PFC                        // pause frames
	Other                      // all other frames
)

// classNames holds the names of the classes, in order of their bits.
var classNames = [...]string{"data", "ack", "nak", "response", "cnp", "mrp", "pfc", "other"}

// Classes returns the names of all classes.
func Classes() []string { return classNames[:] }

// ClassOf returns the class with the given name, and whether there is one.
func ClassOf(name string) (Class, bool) {
	i := slices.Index(classNames[:], name)
	return 1 << max(i, 0), i >= 0
}

// classify returns the class of a frame.
func classify(f *wire.Frame) Class {
	switch f.Kind() {
	case wire.KindPFC:
		return PFC
	case wire.KindMRP:
		return MRP
	case wire.KindRoCE:
	default:
		return Other
	}
	switch op := f.OpCode(); {
	case op == wire.OpCNP:
		return CNP
	case op == wire.OpAcknowledge && f.AETH().Syndrome.IsACK():
		return ACK
	case op == wire.OpAcknowledge:
		return NAK
	case op.Is(wire.OpResponse):
		return Response
	}
	return Data
}

// Matcher selects frames.
type Matcher interface {
	// Frame reports whether the frame is selected.
	Frame(f *wire.Frame) bool
}

// MatchFunc selects frames by a function. Encode refuses a fault that has one.
type MatchFunc func(f *wire.Frame) bool

// Frame implements Matcher.
func (m MatchFunc) Frame(f *wire.Frame) bool { return m(f) }

// Match selects the frames that meet all given conditions. Without a class it selects all but
// pause frames, because a link that loses pause frames breaks the promise of lossless classes.
type Match struct {
	Classes  Class           // set of classes; 0 selects all but PFC
	OpCodes  []wire.OpCode   // nil selects all
	Src, Dst []uint32        // addresses; nil selects all
	Group    bool            // Dst includes all McstIDs
	Groups   wire.GroupRange // that McstIDs come from
	QP       wire.QPN        // destination queue pair; 0 selects all
	PSN      bool            // only PSNs from First to Last, a range that may wrap around
	First    wire.PSN
	Last     wire.PSN
}

// Frame implements Matcher.
func (m *Match) Frame(f *wire.Frame) bool {
	class := classify(f)
	if m.Classes == 0 && class == PFC || m.Classes != 0 && m.Classes&class == 0 {
		return false
	}
	roce := f.Kind() == wire.KindRoCE
	if !roce && (m.OpCodes != nil || m.QP != 0 || m.PSN) {
		return false
	}
	if class == PFC || class == Other {
		return m.Src == nil && m.Dst == nil && !m.Group
	}
	switch {
	case m.OpCodes != nil && !slices.Contains(m.OpCodes, f.OpCode()):
	case m.Src != nil && !slices.Contains(m.Src, f.SrcIP()):
	case (m.Dst != nil || m.Group) && !slices.Contains(m.Dst, f.DstIP()) && !(m.Group && m.Groups.Has(f.DstIP())):
	case m.QP != 0 && f.DestQP() != m.QP:
	case m.PSN && (m.First.After(f.PSN()) || f.PSN().After(m.Last)):
	default:
		return true
	}
	return false
}
