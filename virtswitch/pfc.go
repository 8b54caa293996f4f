package virtswitch

import (
	"github.com/mcastlab/mcastlab/machine"
	"github.com/mcastlab/mcastlab/vtime"
	"github.com/mcastlab/mcastlab/wire"
)

// PFCConfig sets priority-based flow control up (802.1Qbb).
type PFCConfig struct {
	Lossless uint8 // bit i: priority i is lossless
	// XOFF and XON are thresholds in bytes per (ingress, priority). 0 chooses: XOFF
	// shares half of the buffer among the lossless queues after their headroom, XON is
	// three quarters of it.
	XOFF, XON int
	// Headroom is, per port, what may still arrive after XOFF was decided (Headroom
	// computes it).
	Headroom []int
}

// Headroom returns the bytes a lossless queue must be able to take after XOFF was
// decided: the pause frame waits for the frame being sent, is sent and takes effect;
// a frame the neighbour has just begun still goes out; and what is under way still
// comes. rate is the link's in bit/s, delay the sum of both directions' propagation,
// own and peer the pipeline latencies of this switch and of its neighbour.
func Headroom(rate int64, delay, own, peer vtime.Duration) int {
	wait := (delay + own + peer + pauseGap).Seconds() * float64(rate) / 8
	return 2*maxFrameWire + pfcWire + int(wait) + 1
}

// pfcState is the flow control of all ports.
type pfcState struct {
	lossless  uint8
	xoffBytes int
	xonBytes  int
	headroom  []int
	xoffs     int             // (ingress, priority) pairs paused now
	until     [][8]vtime.Time // per port and class, when a received pause runs out
}

type pauseFrame struct {
	at vtime.Time // not before
	f  *wire.Frame
}

func newPFCState(c PFCConfig, ports, limit int) pfcState {
	p := pfcState{lossless: c.Lossless, xoffBytes: c.XOFF, xonBytes: c.XON, headroom: c.Headroom}
	if p.headroom == nil {
		p.headroom = make([]int, ports)
	}
	p.until = make([][8]vtime.Time, ports)
	classes := 0
	for i := range 8 {
		classes += int(c.Lossless >> i & 1)
	}
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
// so many ports: thresholds and headroom of every lossless queue.
func Reserved(c PFCConfig, ports, buffer int) int {
	p := newPFCState(c, ports, buffer)
	return p.reserved()
}

// reserved returns the bytes set aside for lossless classes.
func (p *pfcState) reserved() (n int) {
	for i := range 8 {
		if p.lossless>>i&1 == 0 {
			continue
		}
		for _, h := range p.headroom {
			n += p.xoffBytes + h
		}
	}
	return n
}

// checkXOFF pauses the neighbour if its arrivals hold more than the threshold.
func (s *Switch) checkXOFF(now vtime.Time, in int, prio uint8) {
	g := &s.in[in]
	if int(g.bytes[prio]) <= s.pfc.xoffBytes || g.xoff>>prio&1 != 0 {
		return
	}
	s.settleAll(now - 1) // R4
	if int(g.bytes[prio]) <= s.pfc.xoffBytes {
		return
	}
	g.xoff |= 1 << prio
	s.pfc.xoffs++
	s.sendPause(now, in, 1<<prio, pauseQuanta)
	s.timers.Set(s.timerRefresh(in), now.Add(s.quanta(in, pauseQuanta)/2))
}

// checkXON lets the neighbour go on once its arrivals have drained.
func (s *Switch) checkXON(now vtime.Time, in int, prio uint8) {
	g := &s.in[in]
	if g.xoff>>prio&1 == 0 || int(g.bytes[prio]) > s.pfc.xonBytes {
		return
	}
	g.xoff &^= 1 << prio
	s.pfc.xoffs--
	s.sendPause(now, in, 1<<prio, 0)
	if g.xoff == 0 {
		s.timers.Stop(s.timerRefresh(in))
	}
}

// refreshPause repeats XOFF before the neighbour's pause runs out.
func (s *Switch) refreshPause(now vtime.Time, port int) {
	if x := s.in[port].xoff; x != 0 {
		s.sendPause(now, port, x, pauseQuanta)
		s.timers.Set(s.timerRefresh(port), now.Add(s.quanta(port, pauseQuanta)/2))
	}
}

// quanta returns how long n pause quanta last on the port's link.
func (s *Switch) quanta(port, n int) vtime.Duration {
	return s.ports[port].Serialize(n * wire.PauseQuantumBits / 8)
}

// sendPause queues a pause frame a moment after its cause, so that the order in
// which ports start frames at one instant does not show.
func (s *Switch) sendPause(now vtime.Time, port int, classes uint8, quanta uint16) {
	e := &s.eg[port]
	if len(e.pauses) >= pausesQueuedMax {
		panic("virtswitch: more pause frames queued than there are causes")
	}
	p := wire.PFC{Src: wire.HostMAC(s.ip), Enable: classes}
	for i := range p.Quanta {
		if classes>>i&1 != 0 {
			p.Quanta[i] = quanta
		}
	}
	f := s.pool.Get()
	f.BuildPFC(p)
	s.stats.Made++
	s.stats.PausesSent++
	e.pauses = append(e.pauses, pauseFrame{now.Add(pauseGap), f})
	s.setNext(port)
	if s.trace != nil {
		s.trace.Trace(now, machine.Event{Kind: machine.EventPauseSent, Port: port, Priority: classes, Value: int64(quanta)})
	}
}

func (e *egress) popPause() *wire.Frame {
	f := e.pauses[0].f
	e.pauses = append(e.pauses[:0], e.pauses[1:]...)
	return f
}

// handlePause obeys a pause frame: each class it names stops for its quanta, or goes
// on if they are zero.
func (s *Switch) handlePause(now vtime.Time, port int, f *wire.Frame) {
	h := f.PFC()
	s.absorb(f)
	s.stats.PausesReceived++
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
		} else {
			e.paused |= 1 << i
		}
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}

// resume lets classes of a port go on at now.
func (s *Switch) resume(now vtime.Time, port int, classes uint8) {
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
		if s.eg[port].paused>>i&1 != 0 {
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
		if s.eg[port].paused>>i&1 != 0 && t <= now {
			s.resume(now, port, 1<<i)
		}
	}
	s.armPause(port)
	s.setNext(port)
	s.settle(now, port)
}
