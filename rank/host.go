// Package rank is what a distributed program sees of the lab: one Rank per process,
// blocking verbs, connections to other ranks, groups, the lab's clock, workers. The same
// program runs on the event clock and in containers.
//
// A program is an ordinary function. It blocks only through this package: a bare
// channel operation or time.Sleep would stop the event loop.
package rank

import (
	"errors"

	"github.com/mcastlab/mcastlab/mrp"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// Host is what a runtime gives to a rank: the host it sits on. Its methods are called
// from the rank's tasks only.
type Host interface {
	// Now returns the lab time.
	Now() vtime.Time
	// Do runs f with the host's NIC and registration agent for itself.
	Do(f func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent))
	// Park blocks the calling task until something may have changed on the host (a
	// completion, an agent's news, a Kick) or the time has come. why ends the sentence
	// "waiting on ...". When the run is over it does not return.
	Park(until vtime.Time, why string)
	// Kick lets the host's other tasks look again at what they wait on.
	Kick()
	// Spawn starts another task on the host.
	Spawn(name string, f func())
}

// Board is the out-of-band channel between the ranks of a job: what a launcher's key
// and value service is to MPI. It costs no lab time on the event clock.
type Board interface {
	// Put publishes a value. A key is written once; a rank that alone reads it may write it,
	// too, to end its own wait.
	Put(key string, value []byte)
	// Get blocks until the key has a value. why ends "waiting on ...". Whenever a work request
	// of the host has failed it asks over, and returns false once that does not want to wait on.
	Get(key, why string, over func() bool) (value []byte, ok bool)
	// Barrier blocks until all ranks of the job have called it, or over as in Get.
	Barrier(over func() bool) bool
	// Report says what the job is at.
	Report(what string)
	// Emit hands over a record of what the rank measured.
	Emit(record []byte)
	// LeaseGroup returns a McstID that no group of the lab has or had lately.
	LeaseGroup() (uint32, error)
	// Multicast has the switches pass on what is sent to a plain IPv4 multicast group, by
	// any of the hosts with the given addresses to all others of them, and returns its
	// address, which no group of the lab has or had.
	Multicast(hosts []uint32) (uint32, error)
	// EndMulticast takes such a group out of the switches.
	EndMulticast(group uint32) error
}

// HostCost models what software on a host costs in lab time (all zero by default).
type HostCost struct {
	Post       vtime.Duration // posting a work request
	Poll       vtime.Duration // taking a completion
	Stack      vtime.Duration // per message, at sender and receiver
	Connection vtime.Duration // per message sent over a connection, not to a group
	Jitter     vtime.Duration // each of the above takes up to this much longer, uniformly
}

// Params are the settings of a rank's queue pairs.
type Params struct {
	MTU          int // path MTU: payload bytes per packet
	TrafficClass uint8
	Timeout      uint8 // code: 4.096 us * 2^n
	RetryCnt     uint8
	RNRRetry     uint8
	MinRNRTimer  uint8
	Cost         HostCost
	// Activate says that the fabric's rules have MRP ACTIVATE; without it groups start
	// at PSN 0.
	Activate bool
	// RTT is the round trip of the longest path while nothing else is under way; 0: not known.
	RTT vtime.Duration
	// LowClass is a traffic class whose packets wait for those of TrafficClass.
	LowClass uint8
	// FirstPSN, if set, is where every connection starts, in place of a random PSN.
	FirstPSN *wire.PSN
}

// Errors of this package; those of work requests carry the verbs' status as text.
var (
	ErrGroup = errors.New("group cannot be used")
	// ErrBroken is of connections after Break.
	ErrBroken = errors.New("the connections were broken off")
	// ErrDeadlock says that ranks wait for something that cannot come.
	ErrDeadlock = errors.New("deadlock")
)
