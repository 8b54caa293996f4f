// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// PFCConfig configures priority-based flow control (802.1Qbb).
type PFCConfig struct {
	Lossless uint8 // bit i: priority i is lossless
	// Obey are priorities that neighbours may pause although they are not lossless here
	// (asymmetric PFC).
	Obey uint8
	// XOFF and XON are thresholds in bytes per (ingress, priority). With 0 the switch chooses:
	// XOFF shares half of the buffer among the lossless queues after their headroom, and XON
	// is three quarters of XOFF.
	XOFF, XON int
	// Alpha makes thresholds dynamic (Choudhury and Hahne, 1998): a queue, lossy or lossless, may hold
	// Alpha times the free part of the buffer that all queues share. A lossless queue beyond that is
	// paused, and resumed at three quarters of it. 0: thresholds are static.
	Alpha float64
	// ResumeOffset is the number of bytes below its threshold, static or dynamic, at which a queue's neighbour is
	// resumed; the neighbour of an empty queue is resumed whatever the threshold is. 0: three quarters of the
	// threshold, or XON.
	ResumeOffset int
	// Headroom is, by port, the number of bytes that may still arrive after XOFF was decided; the
	// function Headroom computes it.
	Headroom []int
	// Quanta is the pause that an XOFF asks for, in units of 512 bit times, PauseQuantaMin to
	// 65535; 0: 65535. The XOFF is repeated after half of that time.
	Quanta int
}

// Headroom returns the bytes a lossless queue must be able to take after XOFF was decided: the pause
// frame waits for the frame being sent, is sent and takes effect; a frame that the neighbour has begun
// already is still sent; and the frames under way still arrive. rate is the link's in bit/s, delay the
// sum of both directions' propagation, own and peer the pipeline latencies of this switch and of its
// neighbour, mtu the RoCE path MTU. The frame that made XOFF necessary is not included: a queue has
// separate room for it.
func Headroom(rate int64, delay, own, peer vtime.Duration, mtu int) int {
	frame := max(mtu, mrpBytesMax) + maxFrameWire - mtuMax
	wait := (delay + own + peer + pauseGap).Seconds() * float64(rate) / 8
	return 2*frame + pfcWire + int(wait) + 1
}

// thresholds are the rules by which neighbours are paused. They do not change after New.
type thresholds struct {
	// lossless has a bit for each priority whose frames are not dropped for lack of room.
	lossless uint8

	// xoffBytes is the number of bytes of the buffer beyond which the neighbour of one port is paused
	// for one lossless priority, and xonBytes the most with which it is resumed. They are used with
	// static thresholds only (alpha is 0). Invariant: in a lab xonBytes <= xoffBytes.
	xoffBytes, xonBytes int

	// alpha makes thresholds dynamic: it is the share of the free pool that a queue may hold.
	alpha float64

	// resumeOffset is the number of bytes below the dynamic threshold at which a neighbour is resumed; 0: at
	// three quarters of it.
	resumeOffset int

	// headroom is, by port, the number of bytes that may still arrive after XOFF was decided.
	headroom []int
}

func newThresholds(c PFCConfig, ports, limit int) thresholds {
	t := thresholds{lossless: c.Lossless, xoffBytes: c.XOFF, xonBytes: c.XON, alpha: c.Alpha, resumeOffset: c.ResumeOffset, headroom: c.Headroom}
	if t.headroom == nil {
		t.headroom = make([]int, ports)
	}
	classes := bits.OnesCount8(c.Lossless)
	if classes > 0 && t.xoffBytes == 0 {
		room := limit / 2
		for _, h := range t.headroom {
			room -= h * classes
		}
		t.xoffBytes = max(maxFrameWire, room/(ports*classes))
	}
	switch {
	case c.ResumeOffset > 0:
		t.xonBytes = max(0, t.xoffBytes-c.ResumeOffset)
	case t.xonBytes == 0:
		t.xonBytes = t.xoffBytes / 4 * 3
	}
	return t
}

// Reserved returns the bytes that PFC sets aside of the given buffer in a switch with that many ports:
// static thresholds, headroom and room for the frame that crosses the threshold, for every lossless
// queue.
func Reserved(c PFCConfig, ports, buffer int) int {
	t := newThresholds(c, ports, buffer)
	return t.reserved()
}

// XOFF returns the static threshold, in bytes, of a switch with that many ports and the given buffer:
// c.XOFF, or the one that the switch chooses if that is 0.
func XOFF(c PFCConfig, ports, buffer int) int { return newThresholds(c, ports, buffer).xoffBytes }

// reserved returns the bytes set aside for lossless classes.
func (t *thresholds) reserved() (n int) {
	for in := range t.headroom {
		n += t.ownPart(in)
		if t.alpha == 0 {
			n += t.xoffBytes
		}
	}
	return n * bits.OnesCount8(t.lossless)
}

// ownPart returns the room that a lossless queue of a port has beyond its threshold: for the
// frame that crosses it, and headroom.
func (t *thresholds) ownPart(in int) int { return maxFrameWire + t.headroom[in] }
