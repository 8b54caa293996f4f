// SPDX-License-Identifier: Apache-2.0

package collective

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Data path accelerator of BlueField-3 (Khalilov et al. §II-C and §III-D, AG-20, AG-28): cores of 16
// threads each, and a cache that holds the bitmaps and the contexts of all communicators.
const (
	dpaCores   = 16
	dpaThreads = 16
	dpaCache   = 3 << 19 // 1.5 MB
	dpaContext = 16 << 10
)

// smartNIC is the data path accelerator of a host. The communicators of the host's rank share it (§V-C,
// AG-26): each has threads of its own. The sets of threads are given to cores in turn, and a set fills a core
// before it takes threads of the next one.
type smartNIC struct {
	busy   [dpaCores]vtime.Time // when each core has issued the instructions that it was given
	used   [dpaCores]int        // threads in use, by core
	next   int                  // core that the next set of threads begins at
	sets   int                  // communicators
	memory int                  // bytes of the cache in use
}

// smartNICOf returns the accelerator of a rank's host, which all views of the rank share.
func smartNICOf(r *rank.Rank) *smartNIC {
	return rankrun.Of(r).Common("smartnic", func() any { return &smartNIC{} }).(*smartNIC)
}

// take gives threads to a communicator and returns the core of each.
func (s *smartNIC) take(threads int) (cores []int, err error) {
	const all = dpaCores * dpaThreads
	in := 0
	for _, n := range s.used {
		in += n
	}
	switch {
	case in == 0 && threads > all:
		return nil, fmt.Errorf("%d receive workers are more than the %d threads of engine %s", threads, all, EngineDPA)
	case in+threads > all:
		return nil, fmt.Errorf("%d receive workers beside the %d of other communicators are more than the %d threads of engine %s: use fewer workers",
			threads, in, all, EngineDPA)
	}
	if err := s.hold(dpaContext); err != nil {
		return nil, err
	}
	s.sets++
	for core := s.next; len(cores) < threads; core = (core + 1) % dpaCores {
		for s.used[core] < dpaThreads && len(cores) < threads {
			s.used[core]++
			cores = append(cores, core)
		}
	}
	s.next = (cores[threads-1] + 1) % dpaCores
	return cores, nil
}

// hold occupies bytes of the cache.
func (s *smartNIC) hold(bytes int) error {
	if s.memory+bytes > dpaCache {
		return fmt.Errorf("%d bytes of bitmap or context beside %d of %d communicators do not fit "+
			"the cache of engine %s, %d bytes: use fewer communicators, longer chunks or smaller buffers",
			bytes, s.memory, s.sets, EngineDPA, dpaCache)
	}
	s.memory += bytes
	return nil
}

// release returns the cores of take, and the bytes held beside them.
func (s *smartNIC) release(cores []int, bytes int) {
	for _, core := range cores {
		s.used[core]--
	}
	s.sets--
	s.memory -= dpaContext + bytes
	if s.sets == 0 {
		s.next = 0 // as at first, so that a scheme's times do not depend on those that came before
	}
}

// share returns the part of the accelerator's instructions that a set of threads has, in cores, if all
// threads in use have work.
func (s *smartNIC) share(cores []int) (part float64) {
	for _, core := range cores {
		part += 1 / float64(s.used[core])
	}
	return part
}
