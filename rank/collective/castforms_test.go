// SPDX-License-Identifier: Apache-2.0

package collective_test

import "github.com/mcastlab/mcastlab/internal/test/simlab"

// The closed forms of Broadcast and Allgather over plain multicast (F-12, F-13).

// castWire returns the bytes of n bytes of chunks on the wire: a datagram's headers are 12
// bytes longer than those of a SEND, a WRITE's with immediate 20.
func (f *forms) castWire(scheme string, n int) float64 {
	more := 12
	if scheme == "uc-multicast" {
		more = 20
	}
	return f.wire(n) + float64((n+f.mtu-1)/f.mtu*more)
}

// castSend is the time of a block over L links, none if it is empty.
func (f *forms) castSend(scheme string, n, links int) float64 {
	if n == 0 {
		return 0
	}
	packet := f.castWire(scheme, min(n, f.mtu))
	if last := f.castWire(scheme, (n-1)%f.mtu+1); n > f.mtu && last < packet {
		// A short last packet catches up with the full one before it.
		short := f.castWire(scheme, n)/f.rate + float64(links-1)*(last/f.rate+f.latency)
		full := (f.castWire(scheme, n)-last)/f.rate + float64(links-1)*(packet/f.rate+f.latency) + last/f.rate
		return max(short, full) + float64(links)*f.delay
	}
	return f.castWire(scheme, n)/f.rate + float64(links-1)*(packet/f.rate+f.latency) + float64(links)*f.delay
}

// barrier returns the times at which the ranks leave a barrier that all enter at 0.
func (f *forms) barrier() []float64 {
	n := len(f.hosts)
	at := make([]float64, n)
	for d := 1; d < n; d *= 2 {
		next := make([]float64, n)
		for me := range n {
			from := (me - d + n) % n
			next[me] = max(at[me], at[from]+f.send(0, f.links(from, me)))
		}
		at = next
	}
	return at
}

// handshake returns the time at which the last rank is done, if the ranks have everything at the given
// times; leave is the root of a broadcast, whose rank is left out, or -1.
func (f *forms) handshake(at []float64, leave int) (last float64) {
	for me := range at {
		if right := (me + 1) % len(at); me != leave {
			last = max(last, at[me], at[right]+f.control(f.links(right, me)))
		}
	}
	return last
}

// cast is F-12, for rank 0 as root.
func (f *forms) cast(scheme string, m int) float64 {
	at := f.barrier()
	start := at[0]
	for i := 1; i < len(at); i++ {
		at[i] = max(at[i], start+f.castSend(scheme, m, f.links(0, i)))
	}
	return f.handshake(at, 0)
}

// castGather is F-13 around one switch. A step brings every receiver the blocks of all
// chains, one each; with as many chains as ranks, all but its own. The activation of the
// next rank comes right behind a block's last packet. Nobody waits for empty blocks, only
// for the turns.
func (f *forms) castGather(scheme string, n, parallel int) float64 {
	ranks := len(f.hosts)
	l := f.links(0, 1)
	steps := float64((ranks + parallel - 1) / parallel)
	start := f.barrier()[0]
	if n == 0 {
		return start + max(1, steps-1)*f.control(l)
	}
	block := f.castWire(scheme, n) / f.rate
	path := f.castSend(scheme, n, l) - block
	sigma := path + controlWire/f.rate
	step := float64(min(parallel, ranks-1)) * block
	return start + steps*step + (steps-1)*sigma + path + f.control(l)
}

// controlWire is the bytes of a control message of a cast: an empty SEND with immediate.
const controlWire = simlab.SendOverhead + 4

// control is the time of a control message over L links.
func (f *forms) control(links int) float64 {
	return float64(links)*(controlWire/f.rate+f.delay) + float64(links-1)*f.latency
}
