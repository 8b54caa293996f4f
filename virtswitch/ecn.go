// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math"
	"strconv"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/wire"
)

// ECNConfig configures the marking of packets: RED on the instantaneous queue length, as at
// the congestion point of DCQCN (Zhu et al., SIGCOMM 2015, §3.1).
type ECNConfig struct {
	Classes    uint8 // bit i: packets of priority i are marked; 0: none
	OnArrival  bool  // a packet is marked by the queue that it finds as it arrives; false: by the one that it leaves behind as it starts
	Kmin, Kmax []int // by port: bytes in that queue from which on, and above which always, a packet is marked
	Pmax       float64
	Random     prng.Stream
}

// ECNThresholds returns the queue lengths in bytes between which a port of the given rate
// in bit/s marks with growing probability: 100 kB and 400 kB per 25 Gb/s (HPCC, as its
// authors' simulation of DCQCN is set up; the DCQCN paper has them for 40 Gb/s only).
func ECNThresholds(rate int64) (kmin, kmax int) {
	return int(float64(rate) / 25e9 * 100e3), int(float64(rate) / 25e9 * 400e3)
}

// ecnState is the marking of all ports. Each port draws from a random stream of its own, so
// that results do not depend on the order in which ports are settled.
type ecnState struct {
	ECNConfig
	random []prng.Stream
}

func (s *Switch) setECN(c ECNConfig) {
	s.ecnFrom = math.MaxInt
	if c.Classes == 0 {
		return
	}
	s.ecn = &ecnState{ECNConfig: c, random: make([]prng.Stream, len(s.ports))}
	for p := range s.ports {
		s.ecnFrom = min(s.ecnFrom, c.Kmin[p])
		s.ecn.random[p] = c.Random.Derive("port/" + strconv.Itoa(p))
	}
}

// mark sets congestion experienced in a packet that starts while queued bytes wait behind it, or
// has found them in its queue, with the probability that follows from them. Packets that are not ECN-capable are neither
// marked nor dropped: to drop them would break the lossless classes.
func (s *Switch) mark(port int, prio uint8, f *wire.Frame, queued int) {
	e := s.ecn
	if e.Classes>>prio&1 == 0 || queued <= e.Kmin[port] {
		return
	}
	if ecn := f.ECN(); ecn == wire.ECNNotECT || ecn == wire.ECNCE {
		return
	}
	if queued <= e.Kmax[port] &&
		!e.random[port].Chance(e.Pmax*float64(queued-e.Kmin[port])/float64(e.Kmax[port]-e.Kmin[port])) {
		return
	}
	f.SetECN(wire.ECNCE)
	s.stats.Marked++
}
