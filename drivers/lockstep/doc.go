// SPDX-License-Identifier: Apache-2.0

// Package lockstep runs a lab in virtual time whose nodes are processes. Frames cross veth pairs as
// real RoCEv2; time does not come from the wall clock but from bounds (package window), so that the
// run is the simulation, bit for bit, on any server and under any load.
//
// Each node's process drives its part of the lab (sim.Net), which holds one node. The orchestrator's
// process is the coordinator. It grants each node an instant up to which the node handles its events; a
// node then reports the instant of its next event. Beside each link direction runs a ring in shared
// memory that announces every frame with the instant of its arrival: a node takes from its socket
// exactly the frames that are announced, in order, and hands them to its part at those instants.
//
// Rare messages go over a stream between the two: orders to a node (begin a job, a reply of the
// out-of-band channel), and words of a node (a request, a record). They are counted in shared memory,
// so that each is handled in the round in which it was sent.
//
// No process trusts a neighbour's values: an arrival in the past, a ring that runs over or a frame that
// is not the announced one ends the run with an error that names the node.
package lockstep
