package virtswitch

import (
	"math/bits"

	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// PFCConfig sets priority-based flow control up (802.1Qbb).
type PFCConfig struct {
	Lossless uint8 // bit i: priority i is lossless
	// Obey are priorities that neighbours may pause although they are not lossless here
	// (asymmetric PFC).
	Obey uint8
	// XOFF and XON are thresholds in bytes per (ingress, priority). 0 chooses: XOFF
	// shares half of the buffer among the lossless queues after their headroom, XON is
	// three quarters of it.
	XOFF, XON int
	// Alpha makes thresholds dynamic instead (Choudhury and Hahne, 1998): a queue may hold
	// Alpha times what is free of the buffer that all queues share, lossy ones too. A
	// lossless queue beyond it is paused and goes on at three quarters of it. 0: static.
	Alpha float64
	// Headroom is, per port, what may still arrive after XOFF was decided (Headroom
	// computes it).
	Headroom []int
	// Quanta is what an XOFF asks for, in units of 512 bit times, PauseQuantaMin to 65535;
	// 0: 65535. It is repeated after half of that.
	Quanta int
}

// Headroom returns the bytes a lossless queue must be able to take after XOFF was
// decided: the pause frame waits for the frame being sent, is sent and takes effect;
// a frame the neighbour has just begun still goes out; and what is under way still
// comes. rate is the link's in bit/s, delay the sum of both directions' propagation,
// own and peer the pipeline latencies of this switch and of its neighbour, mtu the RoCE
// path MTU. The frame that made XOFF necessary is not in it: a queue has room for that
// of its own.
func Headroom(rate int64, delay, own, peer vtime.Duration, mtu int) int {
	frame := max(mtu, mrpBytesMax) + maxFrameWire - mtuMax
	wait := (delay + own + peer + pauseGap).Seconds() * float64(rate) / 8
	return 2*frame + pfcWire + int(wait) + 1
}

// pfcState is the flow control of all ports.
type pfcState struct {
	lossless  uint8
	obeys     uint8 // priorities that neighbours may pause
	xoffBytes int
	xonBytes  int
	alpha     float64
	headroom  []int
	quanta    uint16
	xoffs     int             // (ingress, priority) pairs paused now
	stopped   bitset          // ingresses with a paused priority
	until     [][8]vtime.Time // per port and class, when a received pause runs out
}

type pauseFrame struct {
	at vtime.Time // not before
	f  *wire.Frame
}

func newPFCState(c PFCConfig, ports, limit int) pfcState {
	p := pfcState{
		lossless: c.Lossless, obeys: c.Lossless | c.Obey, xoffBytes: c.XOFF, xonBytes: c.XON, alpha: c.Alpha, headroom: c.Headroom,
		quanta: uint16(c.Quanta), stopped: newBitset(ports), until: make([][8]vtime.Time, ports),
	}
	if p.quanta == 0 {
		p.quanta = pauseQuanta
	}
	if p.headroom == nil {
		p.headroom = make([]int, ports)
	}
	classes := bits.OnesCount8(c.Lossless)
	if classes > 0 && p.xoffBytes == 0 {
		room := limit / 2
		for _, h := range p.headroom {
			room -= h * classes
		}
		p.xoffBytes = max(maxFrameWire, room/(ports*classes))
	}
	if p.xonBytes == 0 {
		p.xonBytes = p.xoffBytes / 4 * 3
	}
	return p
}

// Reserved returns the bytes that PFC sets aside of the given buffer in a switch of
// so many ports: static thresholds, headroom and room for the frame that crosses the
// threshold, for every lossless queue.
func Reserved(c PFCConfig, ports, buffer int) int {
	p := newPFCState(c, ports, buffer)
	return p.reserved()
}

// XOFF returns the static threshold, in bytes, of a switch of so many ports with the given
// buffer: the one that was asked for, or the one chosen.
func XOFF(c PFCConfig, ports, buffer int) int { return newPFCState(c, ports, buffer).xoffBytes }

// reserved returns the bytes set aside for lossless classes.
func (p *pfcState) reserved() (n int) {
	for in := range p.headroom {
		n += p.own(in)
		if p.alpha == 0 {
			n += p.xoffBytes
		}
	}
	return n * bits.OnesCount8(p.lossless)
}

// own returns what a lossless queue has beyond its threshold: the frame that crosses it,
// and headroom.
func (p *pfcState) own(in int) int { return maxFrameWire + p.headroom[in] }

// checkXOFF pauses the neighbour if its arrivals hold more than the static threshold.
func (s *Switch) checkXOFF(now vtime.Time, in int, prio uint8) {
	g := &s.in[in]
	if int(g.bytes[prio]) <= s.pfc.xoffBytes || g.xoff>>prio&1 != 0 {
		return
	}
	s.settleAll(now - 1) // R4
	if int(g.bytes[prio]) <= s.pfc.xoffBytes {
		return
	}
	s.xoff(now, in, prio)
}

// xoff pauses the neighbour.
func (s *Switch) xoff(now vtime.Time, in int, prio uint8) {
	s.in[in].xoff |= 1 << prio
	s.pfc.xoffs++
	s.pfc.stopped.set(in)
	s.sendPause(now, in, 1<<prio, s.pfc.quanta)
	s.timers.Set(s.timerRefresh(in), now.Add(s.quanta(in, int(s.pfc.quanta))/2))
}

// checkXON lets the neighbour, which is paused, go on once its arrivals have drained.
func (s *Switch) checkXON(now vtime.Time, in int, prio uint8) {
	g := &s.in[in]
	if s.pfc.alpha > 0 {
		if g.own[prio] > 0 || int(g.bytes[prio]) > s.threshold()/4*3 {
			return
		}
	} else if int(g.bytes[prio]) > s.pfc.xonBytes {
		return
	}
	g.xoff &^= 1 << prio
	s.pfc.xoffs--
	s.sendPause(now, in, 1<<prio, 0)
	if g.xoff == 0 {
		s.pfc.stopped.clear(in)
		s.timers.Stop(s.timerRefresh(in))
	}
}

// checkAllXON looks at every paused queue: with dynamic thresholds room that one gives
// back may be what another waits for.
func (s *Switch) checkAllXON(now vtime.Time) {
	for in := s.pfc.stopped.next(0); in >= 0; in = s.pfc.stopped.next(in + 1) {
		for x := s.in[in].xoff; x != 0; x &= x - 1 {
			s.checkXON(now, in, uint8(bits.TrailingZeros8(x)))
		}
	}
}

// refreshPause repeats XOFF before the neighbour's pause runs out.
func (s *Switch) refreshPause(now vtime.Time, port int) {
	if x := s.in[port].xoff; x != 0 {
		s.sendPause(now, port, x, s.pfc.quanta)
		s.timers.Set(s.timerRefresh(port), now.Add(s.quanta(port, int(s.pfc.quanta))/2))
	}
}

// quanta returns how long n pause quanta last on the port's link.
func (s *Switch) quanta(port, n int) vtime.Duration {
	return s.ports[port].Serialize(n * wire.PauseQuantumBits / 8)
}

// sendPause queues a pause frame a moment after its cause, so that the order in
// which ports start frames at one instant does not show. A frame that still waits
// behind the one being sent says the latest instead of being followed by another, so an
// XOFF waits for one frame and no more: Headroom counts on it.
func (s *Switch) sendPause(now vtime.Time, port int, classes uint8, quanta uint16) {
	e := &s.eg[port]
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseSent, Port: port, Priority: classes, Value: int64(quanta)})
	}
	p := wire.PFC{Src: wire.HostMAC(s.ip)}
	var f *wire.Frame
	if k := len(e.pauses) - 1; k >= 0 && max(e.pauses[k].at, s.ports[port].Free) > now {
		f = e.pauses[k].f
		p = f.PFC()
	} else {
		f = s.pool.Get()
		s.stats.Made++
		s.stats.PausesSent++
		e.pauses = append(e.pauses, pauseFrame{now.Add(pauseGap), f})
	}
	p.Enable |= classes
	for i := range p.Quanta {
		if classes>>i&1 != 0 {
			p.Quanta[i] = quanta
		}
	}
	f.BuildPFC(p)
	s.setNext(port)
}

func (e *egress) popPause() *wire.Frame {
	f := e.pauses[0].f
	e.pauses = append(e.pauses[:0], e.pauses[1:]...)
	return f
}

// handlePause obeys a pause frame: each class it names stops for its quanta, or goes
// on if they are zero. Priorities without PFC do neither, as 802.1Qbb has it: who may lose
// frames is not to stop others.
func (s *Switch) handlePause(now vtime.Time, port int, f *wire.Frame) {
	h := f.PFC()
	s.absorb(f)
	s.stats.PausesReceived++
	if h.Enable&^s.pfc.obeys != 0 {
		s.stats.PausesIgnored++
		h.Enable &= s.pfc.obeys
	}
	e, p := &s.eg[port], &s.ports[port]
	if p.Next < now {
		s.settle(now-1, port)
	}
	for i, q := range h.Quanta {
		if h.Enable>>i&1 == 0 {
			continue
		}
		s.pfc.until[port][i] = now.Add(s.quanta(port, int(q)))
		if s.trace != nil {
			s.trace.Trace(now, machine.Event{Kind: machine.EventPauseReceived, Port: port, Priority: 1 << i, Value: int64(q)})
		}
		if q == 0 {
			s.resume(now, port, 1<<i)
			continue
		}
		e.stopped |= 1 << i
		if !s.stormPaused(port, uint8(i)) && e.paused>>i&1 == 0 {
			e.paused |= 1 << i
			if e.ready>>i&1 != 0 {
				s.watch(now, port, uint8(i))
			}
		}
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}

// resume obeys an XON, or the end of a pause, for classes of a port. Those that the
// watchdog has taken over must stay free for a while first.
func (s *Switch) resume(now vtime.Time, port int, classes uint8) {
	e := &s.eg[port]
	freed := e.stopped & classes
	e.stopped &^= classes
	if s.dog != nil {
		for x := freed; x != 0; x &= x - 1 {
			prio := uint8(bits.TrailingZeros8(x))
			s.dog.due[port][prio] = vtime.Never
			if e.storm>>prio&1 != 0 {
				s.setDue(port, prio, now.Add(s.dog.Restore))
			}
		}
	}
	s.unpause(now, port, classes&^e.storm)
}

// unpause lets classes of a port start from now on.
func (s *Switch) unpause(now vtime.Time, port int, classes uint8) {
	e := &s.eg[port]
	if e.ready&^e.paused == 0 {
		e.elig = max(e.elig, now)
	}
	e.paused &^= classes
}

// armPause sets the timer for the first class whose pause runs out.
func (s *Switch) armPause(port int) {
	first := vtime.Never
	for i, t := range s.pfc.until[port] {
		if s.eg[port].stopped>>i&1 != 0 {
			first = min(first, t)
		}
	}
	if first == vtime.Never {
		s.timers.Stop(s.timerPause(port))
	} else {
		s.timers.Set(s.timerPause(port), first)
	}
}

// pauseExpired resumes the classes whose quanta have passed.
func (s *Switch) pauseExpired(now vtime.Time, port int) {
	s.settle(now, port) // R2: what starts at now goes before timers
	for i, t := range s.pfc.until[port] {
		if s.eg[port].stopped>>i&1 != 0 && t <= now {
			s.resume(now, port, 1<<i)
		}
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}
