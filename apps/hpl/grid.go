// SPDX-License-Identifier: Apache-2.0

package hpl

// A matrix is distributed over the grid of processes in blocks of NB by NB, which are assigned in
// turn to the process rows and to the process columns (block-cyclic distribution).

// share returns the number of the first n rows (or columns) that belong to process me of procs.
func share(n, nb, me, procs int) int {
	blocks := n / nb
	c := blocks / procs * nb
	switch extra := blocks % procs; {
	case me < extra:
		c += nb
	case me == extra:
		c += n % nb
	}
	return c
}

// globalOf returns the number in the matrix of a process's local row (or column).
func globalOf(local, nb, me, procs int) int { return (local/nb*procs+me)*nb + local%nb }

// localOf is the inverse of globalOf on the process that owns the row.
func localOf(global, nb, procs int) int { return global/(nb*procs)*nb + global%nb }

// ownerOf returns the process that owns a row (or column).
func ownerOf(global, nb, procs int) int { return global / nb % procs }
