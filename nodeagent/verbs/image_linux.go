// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// chunk is the unit in which the memory of images is counted, in bytes.
const chunk = 64 << 10

// part is a part of an image.
type part struct {
	r      *region
	off, n uint64 // n > 0
}

// chunks calls f with the number of each chunk of a part.
func (p part) chunks(f func(i uint64)) {
	for i := p.off / chunk; i <= (p.off+p.n-1)/chunk; i++ {
		f(i)
	}
}

// errFull: the images of programs take as much memory as they may.
var errFull = errors.New("images of programs have no memory left")

// chunkBytes returns the memory that a chunk may take, in bytes.
func (r *region) chunkBytes(i uint64) uint64 { return min(chunk, pages(uint64(len(r.image)))-i*chunk) }

// pages returns the bytes of the pages that n bytes take.
func pages(n uint64) uint64 { return (n + 4095) &^ 4095 }

// loadedBytes returns the memory that an image may take, in bytes.
func (r *region) loadedBytes() (n int64) {
	for i := range r.loaded { // a sum
		n += int64(r.chunkBytes(i))
	}
	return n
}

// reserve counts the memory that parts of images take, and reports whether they may have it. If there is none, parts that no request
// needs any more are released first. It is the worker's.
func (c *client) reserve(parts []part) bool {
	if c.tryReserve(parts) {
		return true
	}
	c.reclaim(parts)
	if c.tryReserve(parts) {
		return true
	}
	if c.used[useImages].Load() <= c.s.quotas[useImages].own { // others have it
		c.begging = true
		c.s.starving.Store(true)
		c.s.call(func(vtime.Time) {
			for o := range c.s.clients { // independent of each other
				o.work.wake()
			}
		})
	}
	return false
}

func (c *client) tryReserve(parts []part) bool {
	var fresh []part
	n := int64(0)
	for _, p := range parts {
		p.chunks(func(i uint64) {
			if _, have := p.r.loaded[i]; !have {
				if p.r.loaded == nil {
					p.r.loaded = map[uint64]struct{}{}
				}
				p.r.loaded[i] = struct{}{}
				fresh = append(fresh, part{p.r, i, 0})
				n += int64(p.r.chunkBytes(i))
			}
		})
	}
	if n == 0 || c.take(useImages, n) == nil {
		return true
	}
	for _, p := range fresh {
		delete(p.r.loaded, p.off)
	}
	return false
}

// reclaim releases the memory of images that no request needs, except for some parts. It is the worker's.
func (c *client) reclaim(keep []part) {
	needed := map[*region]map[uint64]struct{}{}
	need := func(p part) {
		if needed[p.r] == nil {
			needed[p.r] = map[uint64]struct{}{}
		}
		p.chunks(func(i uint64) { needed[p.r][i] = struct{}{} })
	}
	for _, p := range keep {
		need(p)
	}
	var all []*region
	c.s.call(func(vtime.Time) {
		if c.s.nic.InIntake() > 0 {
			return // among them may be READs whose memory has been read
		}
		for key, owner := range c.s.owners { // independent of each other
			if owner == c {
				all = append(all, c.s.regions[key])
			}
		}
		for _, q := range c.qps { // independent of each other
			q.qp.EachLoad(func(e virtrnic.SGE) {
				if r := c.s.regions[e.LKey]; r != nil && c.s.owners[e.LKey] == c && e.Length > 0 {
					if off, ok := r.span(e.Addr, uint64(e.Length)); ok {
						need(part{r, off, uint64(e.Length)})
					}
				}
			})
		}
	})
	given := int64(0)
	for _, r := range all {
		for i := range r.loaded { // independent of each other
			if _, yes := needed[r][i]; yes {
				continue
			}
			if unix.Madvise(r.image[i*chunk:min((i+1)*chunk, uint64(len(r.image)))], unix.MADV_DONTNEED) == nil {
				delete(r.loaded, i)
				given += int64(r.chunkBytes(i))
			}
		}
	}
	c.give(useImages, given)
	c.left = c.used[useImages].Load()
	if given > 0 && c.s.starving.Swap(false) {
		c.s.call(func(now vtime.Time) {
			for _, o := range c.s.inOrder() {
				o.collect(now) // which has it try again
			}
		})
	}
}

// outstanding returns the number of requests of a program that have not completed. It is called with the
// loop's lock.
func (c *client) outstanding() (n int) {
	for _, q := range c.qps { // a sum
		n += q.qp.Outstanding()
	}
	return n
}

// starve has a queue pair wait for memory of images until one of the requests has completed that were outstanding when it was refused, or
// another program has given some back. It returns false if that has happened. It is the worker's, and called with the loop's lock.
func (c *client) starve(q *qp, outstanding int) bool {
	begging := c.begging
	c.begging = false
	if c.outstanding() < outstanding || begging && !c.s.starving.Load() {
		return false
	}
	q.stalled.Store(true)
	c.hungry, c.s.hungry = outstanding, c.s.hungry || outstanding > 0
	return true
}

// feed has programs try again that wait for memory of images. Unsignaled completions do not show otherwise. It is called with the loop's
// lock, after each input.
func (s *Server) feed(now vtime.Time) {
	if !s.hungry {
		return
	}
	s.hungry = false
	for _, c := range s.inOrder() {
		if c.hungry > c.outstanding() {
			c.hungry = 0
			c.collect(now)
		}
		s.hungry = s.hungry || c.hungry > 0
	}
}

// relieve releases unused images while memory is short. It is the worker's, when it has nothing else to do.
func (c *client) relieve() {
	l, own := &c.s.quotas[useImages], c.used[useImages].Load()
	if own > l.share && own != c.left && c.s.used[useImages].Load() > l.all/2 {
		c.reclaim(nil)
	}
}

// load brings parts of images up to date. Without room it returns errFull, and has read nothing. failed is called for a part that cannot be
// read. It is the worker's.
func (c *client) load(parts []part, failed func(i int)) error {
	if !c.reserve(parts) {
		return errFull
	}
	for i, p := range parts {
		if fetch(c.mem, p.r.image[p.off:p.off+p.n], p.r.addr+p.off) != nil {
			failed(i)
		}
	}
	return nil
}
