// SPDX-License-Identifier: Apache-2.0

// Package rankhost is the layer beneath package rank: the host and the out-of-band channel that a
// runtime provides for a rank, the settings of its queue pairs, and the records that ranks write for
// the runtime. User programs do not see it. Package rank/rankrun, above package rank, makes ranks from
// it.
package rankhost

import (
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Config has the parameters from which a runtime makes a rank.
type Config struct {
	ID       int
	Size     int
	HostName string
	Names    []string // of the ranks' hosts, by rank
	IPs      []uint32 // of the ranks' hosts, by rank
	Host     Host
	Board    Board
	Params   *Params // shared by all ranks of a process: not to be changed
	Random   prng.Stream
	Peers    []*Peer // external hosts by rank; nil if there are none
}

// HostCost models the lab time that software on a host takes (all zero by default).
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
	// Activate is set if the fabric's rules have MRP ACTIVATE; without it groups start at PSN 0.
	Activate bool
	// RTT is the round trip of the longest path while nothing else is under way; 0: not known.
	RTT vtime.Duration
	// LowClass is a traffic class whose packets wait for those of TrafficClass.
	LowClass uint8
	// FirstPSN, if set, is the initial PSN of every connection, in place of a random one.
	FirstPSN *wire.PSN
}

// Host is the host that a rank runs on, as the runtime provides it. Its methods may be called
// only from the rank's tasks.
type Host interface {
	// Now returns the lab time.
	Now() vtime.Time
	// Do runs f with exclusive access to the host's NIC and registration agent.
	Do(f func(now vtime.Time, nic *virtrnic.NIC, agent *mrp.Agent))
	// Park blocks the calling task until something may have changed on the host (a completion,
	// news of the agent, a Kick) or the time until has come. why completes the sentence
	// "waiting on ...". Once the run is over Park does not return.
	Park(until vtime.Time, why string)
	// Kick wakes the host's other tasks, so that they check their conditions again.
	Kick()
	// Spawn starts another task on the host.
	Spawn(name string, f func())
}

// Board is the out-of-band channel between the ranks of a job, like the key-value service of an MPI
// launcher. A message takes runtime.channel-delay of lab time, except in dilated labs, where it takes real
// time.
type Board interface {
	// Put publishes a value. A key is written once. The only reader of a key may write it too,
	// to end its own wait.
	Put(key string, value []byte)
	// Get blocks until the key has a value. why completes the sentence "waiting on ...".
	// Whenever a work request of the host has failed, Get calls over, and returns ok false if
	// over reports that the caller no longer waits.
	Get(key, why string, over func() bool) (value []byte, ok bool)
	// Take is Get for the only reader of a key, which asks for it once: the value need not be kept.
	Take(key, why string, over func() bool) (value []byte, ok bool)
	// Barrier blocks until all ranks of the job have called it. It reports whether they have:
	// it returns false if over ended the wait, as in Get.
	Barrier(over func() bool) bool
	// Report sets the text of the progress line.
	Report(what string)
	// Emit hands a record of the rank's measurements to the runtime.
	Emit(record []byte)
	// LeaseGroup returns a McstID that no group of the lab has or had recently.
	LeaseGroup() (uint32, error)
	// Multicast makes the switches forward a new plain IPv4 multicast group among the hosts with the
	// given addresses: a message of one of them reaches all others. It returns the group's address,
	// which no other group of the lab has or had.
	Multicast(hosts []uint32) (uint32, error)
	// EndMulticast removes such a group from the switches.
	EndMulticast(group uint32) error
}

// Subnet is a Board whose runtime can fill the switches' multicast tables, as a subnet manager
// does. Filling them takes no lab time.
type Subnet interface {
	// SetBranches replaces all entries of the previous call.
	SetBranches(entries []wire.MulticastEntry)
}
