package hpl

// How a matrix lies on a grid of processes: blocks of NB by NB, dealt out in turn to the
// process rows and to the process columns (block-cyclic).

// share returns how many of the first n rows (or columns) a process has among procs.
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

// globalOf returns the number in the matrix of a process's own row (or column).
func globalOf(local, nb, me, procs int) int { return (local/nb*procs+me)*nb + local%nb }

// localOf undoes globalOf, on the process that owns the row.
func localOf(global, nb, procs int) int { return global/(nb*procs)*nb + global%nb }

// ownerOf returns the process that has a row (or column).
func ownerOf(global, nb, procs int) int { return global / nb % procs }
