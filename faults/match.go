package faults

import (
	"slices"

	"github.com/mcastlab/mcastlab/wire"
)

// Class is what a frame is for.
type Class uint8

// Classes of frames; a set of them is their sum.
const (
	Data     Class = 1 << iota // requests: SEND, WRITE, READ, atomics, datagrams
	ACK                        // acknowledgements that acknowledge
	NAK                        // those that ask again, RNR included
	Response                   // answers to READs and atomics
	CNP                        // congestion notifications
	MRP                        // registration of groups
	PFC                        // pause frames
	Other                      // what else there is
)

// classNames are the classes' names, in order.
var classNames = [...]string{"data", "ack", "nak", "response", "cnp", "mrp", "pfc", "other"}

// Classes returns the names of all classes.
func Classes() []string { return classNames[:] }

// ClassOf returns the class with a name.
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

// Matcher picks frames.
type Matcher interface {
	// Frame reports whether the frame is picked.
	Frame(f *wire.Frame) bool
}

// MatchFunc picks frames by a function, which no message can say.
type MatchFunc func(f *wire.Frame) bool

// Frame implements Matcher.
func (m MatchFunc) Frame(f *wire.Frame) bool { return m(f) }

// Match picks frames: those of which all that is given holds. Without a class it picks
// all but pause frames: a link that loses those is not lossy but broken.
type Match struct {
	Classes  Class         // a sum; 0: any but PFC
	OpCodes  []wire.OpCode // nil: any
	Src, Dst []uint32      // addresses; nil: any
	Group    bool          // Dst includes all McstIDs
	QP       wire.QPN      // destination; 0: any
	PSN      bool          // from First to Last, which may be beyond the wrap
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
	case (m.Dst != nil || m.Group) && !slices.Contains(m.Dst, f.DstIP()) && !(m.Group && wire.IsGroup(f.DstIP())):
	case m.QP != 0 && f.DestQP() != m.QP:
	case m.PSN && (m.First.After(f.PSN()) || f.PSN().After(m.Last)):
	default:
		return true
	}
	return false
}
