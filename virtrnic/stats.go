// SPDX-License-Identifier: Apache-2.0

package virtrnic

// DropReason is the reason for which a NIC dropped a frame.
type DropReason uint8

// Drop reasons, in the order of Stats.Drops. Their names appear in outputs, so they do not
// change.
const (
	DropNotMine    DropReason = iota // destination address is another host's
	DropForeign                      // neither RoCE nor for the host's stack
	DropVersion                      // transport version other than 0
	DropNoQP                         // no such queue pair
	DropService                      // opcode of another transport service
	DropState                        // queue pair not ready to receive or send
	DropPeer                         // source address is not the connection's
	DropPKey                         // other partition
	DropICRC                         // invariant CRC is wrong
	DropDuplicate                    // packet seen before; acknowledged again if it asks for it
	DropSequence                     // beyond the expected PSN, NAK already sent
	DropResponse                     // acknowledgement or response to nothing outstanding
	DropFlushed                      // response discarded with its queue pair
	DropNoReceive                    // UC, UD: no receive posted
	DropInvalid                      // UC, UD: breaks the rules of a message, or does not fit the receive
	DropAccess                       // UC: the WRITE's key, range or rights
	DropQKey                         // UD: not the queue pair's Q_Key
	DropNoGroup                      // multicast to a group that no queue pair is attached to
	DropIntakeFull                   // the NIC is stalled or slow, and its receive buffer is full
	DropRestart                      // the NIC restarted while it held the frame
	dropReasons
)

var dropNames = [dropReasons]string{
	"not-mine", "foreign", "version", "no-qp", "service", "state", "peer", "pkey", "icrc",
	"duplicate", "sequence", "stale-response", "flushed",
	"no-receive", "invalid-request", "remote-access", "qkey", "no-group", "intake-full", "restart",
}

// String returns the reason's name.
func (r DropReason) String() string { return dropNames[r] }

// DropReasons lists all reasons in order.
func DropReasons() []DropReason {
	all := make([]DropReason, dropReasons)
	for i := range all {
		all[i] = DropReason(i)
	}
	return all
}

// Stats counts the actions of a NIC. A counter that Linux's rxe has, too, has its name.
type Stats struct {
	// What most packets count comes first, in a cache line.
	SentPkts, RcvdPkts uint64
	Made               uint64 // frames the NIC created: requests, responses, pauses
	Delivered          uint64 // frames that ended here as intended
	DataPackets        uint64 // requests sent, repeats included
	AcksSent, AcksRcvd uint64
	BytesReceived      uint64 // payload accepted in order

	Loopback uint64 // frames to the NIC itself, which SentPkts and RcvdPkts do not count
	Drops    [dropReasons]uint64

	Retransmitted       uint64 // of DataPackets, repeats
	DuplicateRequest    uint64
	OutOfSeqRequest     uint64
	SendRNR, RcvdRNR    uint64
	SendNAK, RcvdNAK    uint64
	CompleterRetry      uint64 // go-backs after a NAK
	Timeouts            uint64
	RetryExceeded       uint64
	RNRRetryExceeded    uint64
	ImpliedNAK          uint64 // acknowledgements beyond a READ or atomic whose own response is missing
	ResponsesSent       uint64 // responses to READs and atomics, repeats included
	ResponsesRcvd       uint64
	Replayed            uint64 // READs and atomics answered again
	AtomicsExecuted     uint64
	ECNMarked           uint64 // requests received with the ECN mark of a switch
	CNPSent             uint64
	CNPHandled          uint64
	PausesSent          uint64
	PausesReceived      uint64
	PausesIgnored       uint64 // of those, for a priority without PFC
	MessagesSent        uint64 // completed at the requester
	MessagesReceived    uint64 // completed at the responder
	CompletionsOverflow uint64
	Waited              uint64 // frames that waited in the receive buffer
}

// Dropped returns the frames dropped for any reason.
func (s *Stats) Dropped() (n uint64) {
	for _, d := range s.Drops {
		n += d
	}
	return n
}
