// SPDX-License-Identifier: Apache-2.0

// Package verbs is the NIC's side of programs that use libibverbs: it carries out the requests of the library in the folder verbs,
// which come by a unix socket and by rings in shared memory, at the node's NIC.
//
// What a program can do to the NIC goes through three doors. Requests over the socket (client) are verbs that make and change
// objects. Rings (ring) hold posted requests and completions; their memory is made here and sealed, so that no program can take it
// away, and an entry is copied before it is read. The program's memory is read and written through the descriptor of its own
// /proc/self/mem, by a goroutine of each program (worker) and never by the NIC's loop: such a copy may take as long as the program
// likes. So the NIC works on an image of the memory (virtrnic.Guest), and requests that read it wait at a gate in front of the NIC
// until the image is up to date. The NIC acknowledges a write when the goroutine has put it into the memory (client.fence).
//
// Nothing here waits for a program with a lock: events that it does not read wait in a queue (pipe). A program's use of this
// process's memory is counted in bytes (use), and bounded.
//
// When the connection ends, all objects made over it are destroyed.
package verbs
