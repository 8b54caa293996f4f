// Package verbs is the NIC's side of programs that use libibverbs: what the library in the folder
// verbs asks for by a unix socket and by rings in shared memory, it does at the node's NIC.
//
// What a program can do to the NIC goes through three doors. Requests over the socket (client)
// are verbs that make and change objects. Rings (ring) hold what is posted and what completes;
// their memory is made here and sealed, so that no program can take it away, and an entry is
// copied before it is looked at. The program's memory is read and written through the
// descriptor of its own /proc/self/mem, by a goroutine of each program (worker) and never by the
// NIC's loop: such a copy may take as long as the program likes. So the NIC works on an image
// of the memory (virtrnic.Guest), and requests that read it wait at a gate in front of the NIC until
// the image is up to date. What the NIC writes it acknowledges when the goroutine has put it into the memory (client.fence).
//
// Nothing here waits for a program with a lock: events that it does not read wait in a queue (pipe). What it takes of this process is
// counted in bytes (use), and bounded.
//
// When the connection ends, all that was made over it goes.
package verbs
