// SPDX-License-Identifier: Apache-2.0

package virtrnic

import (
	"bytes"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
)

// TestStall: a NIC that is stalled sends nothing and takes nothing, and continues from its state; the
// sender and the receiver are stalled in turn. Everything completes.
func TestStall(t *testing.T) {
	const n = 100 * 1024
	from, to := vtime.Time(3*vtime.Microsecond), vtime.Time(50*vtime.Microsecond)
	for side := range 2 {
		p := newPair(t, pairOptions{timeout: 10, retry: 7})
		src, sm := p.region(0, n, 3)
		dst, dm := p.region(1, n, 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
		p.net.Fate = func(now vtime.Time, port int, f *wire.Frame) faults.Verdict {
			// What started before the stall comes within a frame's time and the link's delay.
			if port == side && now > from.Add(2*vtime.Microsecond) && now < to {
				t.Errorf("side %d is stalled and sends a frame at %v", side, now)
			}
			return faults.Verdict{}
		}
		p.net.At(from, func(now vtime.Time) { p.nic[side].Stall(now, true) })
		p.net.At(to, func(now vtime.Time) { p.nic[side].Stall(now, false) })
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: n})
		p.want(1, WC{WRID: 2, Opcode: WCRecv, ByteLen: n})
		if !bytes.Equal(src, dst) {
			t.Errorf("side %d: wrong bytes", side)
		}
		if w := p.nic[side].Stats().Waited; w == 0 {
			t.Errorf("side %d: no frame waited", side)
		}
		if p.nic[side].intake != nil {
			t.Errorf("side %d: the intake is still there", side)
		}
	}
}

// TestStallOverflow: frames that arrive at a stalled NIC beyond its buffer are dropped for that reason,
// and sent again.
func TestStallOverflow(t *testing.T) {
	const n = 2 << 20
	p := newPair(t, pairOptions{timeout: 8, retry: 7})
	src, sm := p.region(0, n, 3)
	dst, dm := p.region(1, n, 0)
	p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
	p.net.At(1, func(now vtime.Time) { p.nic[1].Stall(now, true) })
	p.net.At(vtime.Time(300*vtime.Microsecond), func(now vtime.Time) { p.nic[1].Stall(now, false) })
	p.run()
	p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: n})
	if s := p.nic[1].Stats(); s.Drops[DropIntakeFull] == 0 || !bytes.Equal(src, dst) {
		t.Errorf("%d frames beyond the buffer, or wrong bytes", s.Drops[DropIntakeFull])
	}
}

// TestSlowIntake: a NIC that takes a tenth of the line rate takes ten times as long,
// pauses its peer so that nothing is lost, and is as fast as before afterwards.
func TestSlowIntake(t *testing.T) {
	const n = 2 << 20
	took := func(rate int64) vtime.Time {
		p := newPair(t, pairOptions{timeout: 14, retry: 7})
		src, sm := p.region(0, n, 3)
		dst, dm := p.region(1, n, 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
		p.nic[1].SetIntake(0, rate)
		var end vtime.Time
		p.net.After = func() {
			if end == 0 && p.nic[0].Stats().MessagesSent == 1 {
				end = p.net.Now
			}
		}
		p.run()
		s := p.nic[1].Stats()
		if !bytes.Equal(src, dst) || s.Drops[DropIntakeFull] != 0 || p.nic[0].Stats().Retransmitted != 0 {
			t.Errorf("rate %d: wrong bytes, or drops %v", rate, s.Drops)
		}
		if rate > 0 && (s.PausesSent < 2 || s.Waited == 0) {
			t.Errorf("rate %d: %d pauses, %d frames waited", rate, s.PausesSent, s.Waited)
		}
		p.nic[1].SetIntake(p.net.Now, 0)
		if p.nic[1].intake != nil {
			t.Error("the intake is still there")
		}
		return end
	}
	fast, slow := took(0), took(10e9)
	if r := float64(slow) / float64(fast); r < 9 || r > 11 {
		t.Errorf("2 MiB took %v, and %v at a tenth of the rate", fast, slow)
	}
}

// TestNICRestart: a NIC that restarts has no queue pair and holds no frame; its peer's request fails in
// bounded time, and later requests find no queue pair.
func TestNICRestart(t *testing.T) {
	const n = 100 * 1024
	p := newPair(t, pairOptions{timeout: 4, retry: 2})
	_, sm := p.region(0, n, 3)
	_, dm := p.region(1, n, 0)
	p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
	p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
	lost := 0
	p.net.At(vtime.Time(3*vtime.Microsecond), func(now vtime.Time) { p.nic[1].Stall(now, true) })
	p.net.At(vtime.Time(5*vtime.Microsecond), func(now vtime.Time) {
		if lost = p.nic[1].Restart(now); p.nic[1].Queued() != 0 {
			t.Errorf("after the restart %d frames are held", p.nic[1].Queued())
		}
	})
	p.net.At(vtime.Time(6*vtime.Microsecond), func(now vtime.Time) { p.nic[1].Stall(now, false) })
	p.run()
	if lost == 0 || p.nic[1].Stats().Drops[DropRestart] != uint64(lost) {
		t.Errorf("%d frames were lost, %d are counted", lost, p.nic[1].Stats().Drops[DropRestart])
	}
	if p.nic[1].Stats().Drops[DropNoQP] == 0 {
		t.Error("nothing found its queue pair gone")
	}
	if got := p.completions(0); len(got) != 1 || got[0].Status != WCRetryExcErr {
		t.Errorf("completions %+v, want one that says that retries are used up", got)
	}
	p.nic[1].QPs(func(q *QP) { t.Errorf("queue pair %d is still there", q.Num()) })
}

// TestPauseOfLossyClass: a NIC stops for a pause of its data's class if that has PFC, and asks for one
// if it is slow; without PFC it does neither, and loses frames for which it has no room.
func TestPauseOfLossyClass(t *testing.T) {
	const n = 4 << 20
	for _, lossy := range []bool{false, true} {
		o := pairOptions{mtu: 4096, timeout: 17, retry: 7}
		if lossy {
			o.lossy = 1 << 3
		}
		p := newPair(t, o)
		_, sm := p.region(0, n, 3)
		_, dm := p.region(1, n, 0)
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
		p.nic[1].SendPause(0, 1<<3|1<<6, 0xffff) // 335 us
		p.net.At(100*us, func(now vtime.Time) {
			if sent := p.nic[0].Stats().DataPackets; lossy == (sent < 100) {
				t.Errorf("lossy %v: %d requests are sent while the class is paused", lossy, sent)
			}
			p.nic[1].SetIntake(now, 10e9)
		})
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: n})
		s, r := p.nic[0].Stats(), p.nic[1].Stats()
		if s.PausesReceived == 0 || (s.PausesIgnored != 0) != lossy || (r.PausesSent > 1) == lossy || (r.Drops[DropIntakeFull] != 0) != lossy {
			t.Errorf("lossy %v: of %d pauses %d were ignored; the slow NIC has sent %d and dropped %d frames",
				lossy, s.PausesReceived, s.PausesIgnored, r.PausesSent, r.Drops[DropIntakeFull])
		}
	}
}

// TestPausesWait: pause frames that come faster than the link takes them wait in a bounded
// number, and the last one of all that were asked for is the last that is sent.
func TestPausesWait(t *testing.T) {
	p := newPair(t, pairOptions{})
	for i := range 5000 {
		p.nic[0].SendPause(0, 1<<3, uint16(i+1))
	}
	if k := p.nic[0].Queued(); k < 1000 || k > 1100 {
		t.Errorf("%d frames wait", k)
	}
	var last uint16
	p.net.Fate = func(_ vtime.Time, _ int, f *wire.Frame) faults.Verdict {
		last = f.PFC().Quanta[3]
		return faults.Verdict{}
	}
	p.run()
	if last != 5000 {
		t.Errorf("the last pause is of %d quanta", last)
	}
}

// TestPausePassesIntake: a pause is obeyed when it arrives, however much waits in front of
// it in a NIC that is slow or stalled: the port does that by itself.
func TestPausePassesIntake(t *testing.T) {
	const n = 50 * 1024
	for _, stalled := range []bool{false, true} {
		p := newPair(t, pairOptions{timeout: 16, retry: 7})
		_, sm := p.region(0, n, 3)
		_, dm := p.region(1, n, 0)
		p.nic[1].SetIntake(0, 1e9) // 400 us for the frames of 5
		if stalled {
			p.net.At(us, func(now vtime.Time) { p.nic[1].Stall(now, true) })
			p.net.At(30*us, func(now vtime.Time) { p.nic[1].Stall(now, false) })
		}
		p.recv(1, RecvWR{WRID: 2, SGE: whole(dm, n)})
		p.post(0, SendWR{WRID: 1, Opcode: WRSend, SGE: whole(sm, n)})
		p.net.At(20*us, func(now vtime.Time) { p.nic[0].SendPause(now, 1<<3, 1000) })
		p.net.At(22*us, func(vtime.Time) {
			if waiting := p.nic[1].intake.fifo.Len(); p.nic[1].Stats().PausesReceived != 1 || p.nic[1].tx.paused != 1<<3 || waiting == 0 {
				t.Errorf("stalled %v: with %d frames waiting %d pauses are received and classes %#x paused", stalled, waiting, p.nic[1].Stats().PausesReceived, p.nic[1].tx.paused)
			}
		})
		p.run()
		p.want(0, WC{WRID: 1, Opcode: WCSend, ByteLen: n})
	}
}
