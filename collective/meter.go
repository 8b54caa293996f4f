package collective

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Thresholds of CEP-46, as parts of normal throughput. Coming back asks for more than
// leaving does: at what is between the two a group stays where it is.
const (
	leaveBelow  = 0.5
	returnAbove = 0.8
)

// windowRTTs is how many round trips throughput is measured over (CEP-46).
const windowRTTs = 100

// rttDefault stands in for a round trip that is not known.
const rttDefault = 10 * vtime.Microsecond

// packetOverhead is what surrounds the payload of a packet on the wire: preamble, gap,
// Ethernet, IPv6, UDP, BTH, ICRC and FCS.
const packetOverhead = 8 + 12 + 14 + 40 + 8 + 12 + 4 + 4

// meter compares what a group has moved with what it normally would, over windows of time
// in which something was under way. Normal is the moving average of the messages of similar
// size that went well or, as long as there is none, the line rate and one round trip.
type meter struct {
	window vtime.Duration
	rtt    vtime.Duration
	rate   uint64 // bit/s
	mtu    int
	host   vtime.Duration // what host software takes for a message

	slow [33]float64 // by bits of the size: time over that at line rate, 0: not known

	spent, worth float64 // in this window: time, and time it would have taken normally

	n     int        // bytes of the message under way
	begun vtime.Time // when it began
	mark  vtime.Time // when it was last looked at
	share float64    // of it, that was there then
}

// newMeter returns the meter of a rank's messages.
func newMeter(r *rank.Rank) *meter {
	p := r.Params()
	m := &meter{rtt: p.RTT, rate: r.LinkRate(), mtu: p.MTU}
	if m.rtt == 0 {
		m.rtt = rttDefault
	}
	m.window = windowRTTs * m.rtt
	c := p.Cost
	m.host = c.Post + c.Poll + 2*c.Stack + 4*c.Jitter
	return m
}

// onWire returns how long the packets of a message of n bytes are on a link.
func (m *meter) onWire(n int) vtime.Duration {
	packets := max(1, (n+m.mtu-1)/m.mtu)
	return vtime.Picoseconds(float64(n+packets*packetOverhead) * 8 / float64(m.rate) * float64(vtime.Second))
}

// atLineRate returns what a message of n bytes takes with nothing in its way.
func (m *meter) atLineRate(n int) vtime.Duration { return m.onWire(n) + m.rtt + m.host }

// class returns what sizes are similar: those with one number of bits.
func class(n int) int { return min(bits.Len(uint(n)), 32) }

// normal returns what a message of n bytes normally takes: never less than its packets on a
// link, even if messages of such sizes have taken no time at all.
func (m *meter) normal(n int) vtime.Duration {
	d := m.atLineRate(n)
	if k := m.slow[class(n)]; k > 0 {
		d = max(m.onWire(n), vtime.Picoseconds(float64(d)*k))
	}
	return d
}

// begin says that a message of n bytes begins.
func (m *meter) begin(now vtime.Time, n int) {
	m.n, m.begun, m.mark, m.share = n, now, now, 0
}

// due returns when the window is full.
func (m *meter) due() vtime.Time {
	return m.mark.Add(m.window - vtime.Duration(m.spent) + vtime.Picosecond) // of rounding
}

// look says that so much of the message is there, 0 to 1. When the window is full it returns
// the part of normal throughput in it, and begins the next.
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

// end is look for a message that has ended, which changes what is normal unless it was
// slower than what makes a group leave: it was not normal then.
func (m *meter) end(now vtime.Time) (ratio float64, full bool) {
	took, c := float64(now.Sub(m.begun)), class(m.n)
	ratio, full = m.look(now, 1)
	if took*leaveBelow > float64(m.normal(m.n)) {
		return ratio, full
	}
	// Many messages that are each a little slower do not make anything normal.
	k := min(took/float64(m.atLineRate(m.n)), 1/leaveBelow)
	if m.slow[c] > 0 {
		k = m.slow[c] + (k-m.slow[c])/8
	}
	m.slow[c] = k
	return ratio, full
}

// forget begins a new window.
func (m *meter) forget() { m.spent, m.worth = 0, 0 }
