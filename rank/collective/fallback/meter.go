// SPDX-License-Identifier: Apache-2.0

package fallback

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Thresholds of CEP-46, as parts of normal throughput. A return needs more than staying does,
// so between the two thresholds nothing changes.
const (
	leaveBelow  = 0.5
	returnAbove = 0.8
)

// windowRTTs is the number of round trips over which throughput is measured (CEP-46).
const windowRTTs = 100

// rttDefault stands in for a round trip that is not known.
const rttDefault = 10 * vtime.Microsecond

// packetOverhead is the number of bytes around the payload of a packet on the wire, over IPv6.
const packetOverhead = wire.EthernetLen + wire.IPv6Len + wire.UDPLen + wire.BTHLen + wire.ICRCLen + wire.LinkOverhead

// meter compares a group's throughput with its normal throughput, over windows of time in which a
// message was under way. The normal time is the moving average of the good messages of similar size or,
// as long as there was none, that at line rate plus one round trip.
type meter struct {
	window vtime.Duration
	rtt    vtime.Duration
	rate   uint64 // bit/s
	mtu    int
	host   vtime.Duration // time of host software per message

	slow [33]float64 // by bits of the size: normal time divided by that at line rate; 0: not known

	spent, worth float64 // in this window: elapsed time, and the time that the same data normally take

	n     int        // bytes of the current message
	begun vtime.Time // when it began
	mark  vtime.Time // last call of look
	share float64    // part of it that had arrived by then
}

// newMeter returns the meter of a rank's messages.
func newMeter(r *rank.Rank) *meter {
	p := rankrun.Of(r).Params()
	m := &meter{rtt: p.RTT, rate: r.LinkRate(), mtu: p.MTU}
	if m.rtt == 0 {
		m.rtt = rttDefault
	}
	m.window = windowRTTs * m.rtt
	c := p.Cost
	m.host = c.Post + c.Poll + 2*c.Stack + 4*c.Jitter
	return m
}

// onWire returns how long the packets of a message of n bytes occupy a link.
func (m *meter) onWire(n int) vtime.Duration {
	packets := max(1, (n+m.mtu-1)/m.mtu)
	return vtime.Picoseconds(float64(n+packets*packetOverhead) * 8 / float64(m.rate) * float64(vtime.Second))
}

// atLineRate returns the time of a message of n bytes if nothing delays it.
func (m *meter) atLineRate(n int) vtime.Duration { return m.onWire(n) + m.rtt + m.host }

// class returns the class of similar sizes that n is in: those with the same number of bits.
func class(n int) int { return min(bits.Len(uint(n)), 32) }

// normal returns the normal time of a message of n bytes. It is never less than the time of
// its packets on a link, however fast such messages have been.
func (m *meter) normal(n int) vtime.Duration {
	d := m.atLineRate(n)
	if k := m.slow[class(n)]; k > 0 {
		d = max(m.onWire(n), vtime.Picoseconds(float64(d)*k))
	}
	return d
}

// begin records that a message of n bytes begins.
func (m *meter) begin(now vtime.Time, n int) {
	m.n, m.begun, m.mark, m.share = n, now, now, 0
}

// due returns when the window is full.
func (m *meter) due() vtime.Time {
	return m.mark.Add(m.window - vtime.Duration(m.spent) + vtime.Picosecond) // one picosecond more, against rounding
}

// look records that the given share of the message, 0 to 1, has arrived. If the window is full
// it returns the window's part of normal throughput, and begins the next window.
func (m *meter) look(now vtime.Time, share float64) (ratio float64, full bool) {
	share = min(max(share, m.share), 1)
	m.spent += float64(now.Sub(m.mark))
	m.worth += (share - m.share) * float64(m.normal(m.n))
	m.mark, m.share = now, share
	if m.spent < float64(m.window) {
		return 0, false
	}
	ratio = m.worth / m.spent
	m.spent, m.worth = 0, 0
	return ratio, true
}

// end is look for a message that has ended. It also updates the normal time with that of the message,
// limited to the slowest that does not make the group leave.
func (m *meter) end(now vtime.Time) (ratio float64, full bool) {
	took, c := float64(now.Sub(m.begun)), class(m.n)
	ratio, full = m.look(now, 1)
	if took*leaveBelow > float64(m.normal(m.n)) {
		return ratio, full
	}
	// The limit keeps many slow messages from becoming normal.
	k := min(took/float64(m.atLineRate(m.n)), 1/leaveBelow)
	if m.slow[c] > 0 {
		k = m.slow[c] + (k-m.slow[c])/8
	}
	m.slow[c] = k
	return ratio, full
}

// forget begins a new window.
func (m *meter) forget() { m.spent, m.worth = 0, 0 }
