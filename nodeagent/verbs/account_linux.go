// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What programs use of the NIC's process is counted in bytes. A program has a share that the others cannot take from it; beyond
// that it may have up to its own limit, as long as all programs together stay below theirs.

// use is something that is counted.
type use int

const (
	useAddress use = iota // address space of regions' images
	useImages             // memory of images, as far as it has been read
	useRings              // rings, and the NIC's own queues, which are no larger
	useEvents             // events that have not been read, beyond the buffers of sockets
	useFrames             // frames that wait for programs
	uses
)

// quota bounds a use, in bytes: a program's own share, the most that it may have, and the most of all
// together.
type quota struct{ share, own, all int64 }

// quotas leave half of the 128 TiB of address space that a process of x86-64 has.
var quotas = [uses]quota{
	useAddress: {8 << 30, 8 << 40, 48 << 40},
	useImages:  {64 << 20, 2<<30 + 256<<20, 4 << 30},
	useRings:   {16 << 20, 4 << 30, 16 << 30},
	useEvents:  {64 << 10, 4 << 20, 64 << 20},
	useFrames:  {1 << 20, 32 << 20, 256 << 20},
}

var useNames = [uses]string{"address space of regions", "memory of regions that is read", "rings", "events that have not been read", "frames"}

// take counts n bytes more for a program. It returns an error, and counts nothing, if they would be too many. Any goroutine may call it.
func (c *client) take(u use, n int64) error {
	s, l := c.s, &c.s.quotas[u]
	s.accounts.Lock() // so that refusals are not visible
	defer s.accounts.Unlock()
	own, all := c.used[u].Load(), s.used[u].Load()
	if own+n > l.own || all+n > l.all && own+n > l.share {
		return fmt.Errorf("%s: %d bytes on top of %d, of %d in all programs: %w", useNames[u], n, own, all, unix.ENOMEM)
	}
	c.used[u].Add(n)
	s.used[u].Add(n)
	return nil
}

// give counts n bytes less.
func (c *client) give(u use, n int64) {
	c.used[u].Add(-n)
	c.s.used[u].Add(-n)
}

// giveAll removes all uses of a program that has ended.
func (c *client) giveAll() {
	for u := range uses {
		c.s.used[u].Add(-c.used[u].Swap(0))
	}
}

// share is share for a ring of the program, which is counted.
func (c *client) share(n int) (mem []byte, fd int, err error) {
	if err := c.take(useRings, int64(n)); err != nil {
		return nil, 0, err
	}
	if mem, fd, err = share(n); err != nil {
		c.give(useRings, int64(n))
	}
	return mem, fd, err
}

// unshare undoes share.
func (c *client) unshare(mem []byte) {
	unmap(mem)
	c.give(useRings, int64(len(mem)))
}

// takeImage maps memory for the image of n bytes, whose address space is counted.
func (c *client) takeImage(n uint64) (image []byte, err error) {
	if n > imageMax {
		return mapImage(n)
	}
	if err := c.take(useAddress, int64(pages(n))); err != nil {
		return nil, err
	}
	if image, err = mapImage(n); err != nil {
		c.give(useAddress, int64(pages(n)))
	}
	return image, err
}

// dropImage undoes takeImage, when the worker no longer has the region.
func (c *client) dropImage(r *region) {
	unmap(r.image)
	c.give(useAddress, int64(pages(uint64(len(r.image)))))
	c.give(useImages, r.loadedBytes())
	r.loaded = nil
}
