// SPDX-License-Identifier: Apache-2.0

package virtrnic

// Settings holds the parameters that all NICs of a lab share. Package lab fills it from the lab file,
// and package fabric passes it on. With an IRN.Cap of 0 fabric sets the cap to the bandwidth-delay
// product of its longest path.
type Settings struct {
	// AckEvery makes the requester ask for an acknowledgement on every n-th packet of
	// a message and on its last; 0 and 1 mean every packet.
	AckEvery int
	// Window is the number of packets of a queue pair that may be unacknowledged; 0: as many as PSNs
	// allow.
	Window int
	// Congestion is the DCQCN of both directions; nil: no congestion control, CNPs are dropped.
	Congestion *DCQCN
	// IRN is selective repeat; nil: go-back-N.
	IRN *IRN
	// Weights holds the share of each priority in the weighted round, which is served below the strict
	// priorities; 0: the priority is strict. Of two strict priorities the one with the higher number goes first.
	Weights [8]uint8
	// Credits stops a priority with PFC after each frame, until the switch resumes it (virtswitch.InputConfig). A NIC sends
	// no credits: a host takes packets at any time, so its neighbour needs none.
	Credits bool
}
