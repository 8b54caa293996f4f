// SPDX-License-Identifier: Apache-2.0

//go:build linux

package live

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// watcher checks that frames leave a port one after the other and counts them.
type watcher struct {
	t          *testing.T
	sent, lost int
	data       int
	free       vtime.Time
}

// Sent implements machine.Watcher.
func (w *watcher) Sent(port int, start vtime.Time, d vtime.Duration, landed vtime.Time, f *wire.Frame) {
	w.sent++
	if f.Kind() == wire.KindRoCE && f.PayloadLen() > 0 {
		w.data++
	}
	if want := vtime.Duration(f.WireLen()) * 8 * vtime.Nanosecond; port != 0 || d != want || landed.Sub(start) != d+testDelay || start < w.free {
		w.t.Errorf("port %d: a frame of %v bytes from %v for %v, there at %v; the port was free at %v", port, f.WireLen(), start, d, landed, w.free)
	}
	w.free = start.Add(d)
}

// Lost implements machine.Watcher.
func (w *watcher) Lost(_ vtime.Time, port int, f *wire.Frame) {
	w.lost++
	if port != 0 || f.Len() == 0 {
		w.t.Errorf("lost on port %d: %v", port, f)
	}
}

// TestWatch: a watcher sees every frame that leaves, with its times on the link, and every
// one that a fault takes.
func TestWatch(t *testing.T) {
	const size = 200_000
	a, b := pair(t, size, 0)
	var w [2]watcher
	for i, e := range []*endpoint{a, b} {
		w[i].t = t
		e.loop.Call(vtime.Never, func(vtime.Time) {
			e.loop.SetWatch(&w[i])
			e.loop.SetFault(0, &faults.Impairment{Loss: 0.05, Random: prng.New(uint64(i))})
		})
	}
	post := func(e *endpoint, f func(now vtime.Time, s virtrnic.SGE) error) {
		e.loop.Call(vtime.Never, func(now vtime.Time) {
			if err := f(now, virtrnic.SGE{Addr: e.mr.Addr(), Length: size, LKey: e.mr.LKey()}); err != nil {
				t.Error(err)
			}
		})
	}
	post(b, func(now vtime.Time, s virtrnic.SGE) error { return b.nic.PostRecv(now, b.qp, virtrnic.RecvWR{SGE: s}) })
	post(a, func(now vtime.Time, s virtrnic.SGE) error {
		return a.nic.PostSend(now, a.qp, virtrnic.SendWR{Opcode: virtrnic.WRSend, SGE: s})
	})
	b.completion(t)
	a.completion(t)
	for i, e := range []*endpoint{a, b} {
		links, _ := e.loop.Stats()
		e.loop.Call(vtime.Never, func(vtime.Time) {
			if uint64(w[i].sent) < links[0].Sent || uint64(w[i].lost) < links[0].Lost {
				t.Errorf("side %d: %d sent and %d lost were seen of %d and %d", i, w[i].sent, w[i].lost, links[0].Sent, links[0].Lost)
			}
			if i == 0 && (w[i].data <= size/1024 || w[1-i].lost == 0) {
				t.Errorf("%d data packets, %d lost", w[i].data, w[1-i].lost)
			}
		})
	}
}
