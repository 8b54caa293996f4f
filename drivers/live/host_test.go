// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// TestParkUntil: a task that waits for a time only, and does not look at news that came
// before, wakes for it once and then at its time: not again and again without the time
// ever coming, and not later because the news is later.
func TestParkUntil(t *testing.T) {
	l, h, end := testHost(t)
	const most = 10
	parks, late := 0, vtime.Duration(0)
	done := make(chan struct{})
	h.Go(l.Now(), "task", func() {
		defer close(done)
		until := h.Now().Add(5 * vtime.Millisecond)
		h.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { // it makes news, and has not seen it
			if err := a.Register(now, mrp.Group{McstID: wire.GroupNet | 1, LeaderQPN: 2, Members: []mrp.Member{{IP: 0x0a000002, QPN: 2}}}); err != nil {
				t.Error(err)
			}
		})
		for ; h.Now() < until && parks < most; parks++ {
			h.Park(until, "its time")
		}
		late = h.Now().Sub(until)
	})
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Error("the task does not end")
	}
	end()
	if parks >= most || late != 0 {
		t.Errorf("it parked %d times and went on %v after its time", parks, late)
	}
}

// testHost returns a host whose loop runs until end is called.
func testHost(t *testing.T) (l *Loop, h *Host, end func()) {
	t.Helper()
	mono, err := NewMonotonic()
	if err != nil {
		t.Fatal(err)
	}
	l, err = New(Config{
		Mono: mono, IO: []IO{wirePair(t)[0]}, Delays: []vtime.Duration{testDelay}, Rate: Rate{Mono: mono.Now(), Dilation: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	ports := l.Ports([]machine.PortConfig{{BitsPerSec: 1e9, Delay: testDelay}})
	nic := virtrnic.New(virtrnic.Config{IP: 0x0a000001, Port: &ports[0], Pool: l.Pool(), Keys: prng.New(1)})
	agent := mrp.New(mrp.Config{IP: 0x0a000001, Pool: l.Pool(), Sender: nic})
	nic.SetStack(agent)
	h = NewHost(l, nic, agent, func(p any) { t.Errorf("the task panicked: %v", p) })
	l.Start(nic, h.News)
	ended := make(chan error, 1)
	go func() { ended <- l.Run() }()
	return l, h, func() {
		t.Helper()
		if !h.Stop() {
			t.Error("the host does not stop")
		}
		l.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestParkBeside: a task that waits for a message from outside the lab resumes when it arrives, also if
// that was before it parked, and when a request of the host fails; other news leave it alone. Meanwhile
// the host is idle, and lists the waits of its tasks.
func TestParkBeside(t *testing.T) {
	l, h, end := testHost(t)
	defer end()
	came, parked, done := make(chan struct{}), make(chan struct{}), make(chan int, 1)
	h.Go(l.Now(), "rank 1", func() {
		early := make(chan struct{})
		close(early)
		h.ParkBeside("nothing", early)
		close(parked)
		parks := 0
		for over := false; !over; parks++ {
			h.ParkBeside("a word", came)
			select {
			case <-came:
				over = true
			default:
			}
		}
		done <- parks
	})
	<-parked
	var who []string
	for resting := false; !resting || len(who) == 0; who, resting = h.Resting() {
		<-time.After(time.Millisecond)
	}
	if who[0] != "rank 1 on a word" {
		t.Errorf("%v waits", who)
	}
	h.Go(l.Now(), "rank 2", func() {
		h.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) { // news, but no failure
			if err := a.Register(now, mrp.Group{McstID: wire.GroupNet | 1, LeaderQPN: 2, Members: []mrp.Member{{IP: 0x0a000002, QPN: 2}}}); err != nil {
				t.Error(err)
			}
		})
		close(came)
	})
	select {
	case parks := <-done:
		if parks != 1 {
			t.Errorf("it woke up %d times", parks)
		}
	case <-time.After(2 * time.Minute):
		t.Error("the task does not end")
	}
}

// TestStopBlocked: a task that does not come back to package rank is named, and Stop does not
// wait for it without end.
func TestStopBlocked(t *testing.T) {
	l, h, end := testHost(t)
	block, left := make(chan struct{}), make(chan struct{})
	h.Go(l.Now(), "rank 3", func() {
		close(left)
		<-block
		h.Park(vtime.Never, "the end") // where it unwinds
	})
	<-left
	stopped := make(chan bool, 1)
	go func() { stopped <- h.Stop() }()
	select {
	case ended := <-stopped:
		if ended {
			t.Error("it has stopped")
		}
	case <-time.After(2 * time.Minute):
		t.Error("Stop waits for it")
	}
	if name, since := h.Outside(); name != "rank 3" || since <= 0 {
		t.Errorf("%q is outside for %v", name, since)
	}
	close(block)
	end()
}

// TestSideBySide: the times that workers of a host spend on chunks pass side by side in lab time, as on the
// event clock (AG-23, AG-30): four that begin together with steps of their own end each after their own steps,
// and not after all of them.
func TestSideBySide(t *testing.T) {
	l, h, end := testHost(t)
	defer end()
	const workers, steps = 4, 5
	type span struct {
		worker int
		took   vtime.Duration
	}
	done := make(chan span, workers)
	begin := l.Now()
	for w := range workers {
		h.Go(begin, "worker", func() {
			for range steps {
				for until := h.Now().Add(vtime.Duration(w+1) * vtime.Millisecond); h.Now() < until; {
					h.Park(until, "its chunk")
				}
			}
			done <- span{w, h.Now().Sub(begin)}
		})
	}
	for range workers {
		select {
		case s := <-done:
			if want := vtime.Duration(s.worker+1) * steps * vtime.Millisecond; s.took != want {
				t.Errorf("worker %d: %v, want %v", s.worker, s.took, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("the workers do not end")
		}
	}
}
