// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestBufferSteps: XOFF and XON of one port's neighbour, byte by byte. Steps are "+n" and "-n" bytes of
// priority 3, and want is the pause frame after each.
func TestBufferSteps(t *testing.T) {
	static := PFCConfig{Lossless: 1 << 3, XOFF: 5000, XON: 3000, Headroom: []int{2000, 0}}
	dynamic := PFCConfig{Lossless: 1 << 3, Alpha: 1, Headroom: []int{2000, 0}}
	for _, c := range []struct {
		name  string
		pfc   PFCConfig
		limit int
		steps string
	}{
		{"static", static, 100_000, "+5000: +1: XOFF +500: -2500: -1: XON +2001: XOFF"},
		{"static, the queue is full", static, 100_000, "+5001: XOFF +4236: +1999: +1: none -1: +1:"},
		{"static, the memory is full", static, 9000, "+9000: XOFF +1: none -6000: XON"},
		// The pool is the rest beside both ports' own parts: 100000 - 2*4236 - 2000.
		{"dynamic", dynamic, 100_000, "+44764: +1: XOFF -1: -6395: -1: XON"},
		// With an offset: 3072 bytes below the threshold, which grows by a byte for each that goes; or with nothing left.
		{"static, offset", PFCConfig{Lossless: 1 << 3, XOFF: 5000, ResumeOffset: 3072, Headroom: []int{2000, 0}}, 100_000, "+5001: XOFF -3072: -1: XON"},
		{"static, offset above the threshold", PFCConfig{Lossless: 1 << 3, XOFF: 5000, ResumeOffset: 6000, Headroom: []int{2000, 0}}, 100_000, "+5001: XOFF -5000: -1: XON"},
		{"dynamic, offset", PFCConfig{Lossless: 1 << 3, Alpha: 1, ResumeOffset: 3072, Headroom: []int{2000, 0}}, 100_000, "+44764: +1: XOFF -1: -1535: -1: XON"},
		{"dynamic, offset above the threshold", PFCConfig{Lossless: 1 << 3, Alpha: 1. / 64, ResumeOffset: 3072, Headroom: []int{2000, 0}}, 100_000, "+1377: +1: XOFF -1: -1376: -1: XON"},
		{"dynamic, the queue is full", dynamic, 100_000, "+44764: +4236: XOFF +2000: +1: none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBuffer(c.pfc, 2, c.limit)
			steps := strings.Fields(c.steps)
			for len(steps) > 0 {
				step, want := strings.TrimSuffix(steps[0], ":"), ""
				steps = steps[1:]
				if len(steps) > 0 && !strings.HasSuffix(steps[0], ":") {
					want, steps = steps[0], steps[1:]
				}
				var n int
				if _, err := fmt.Sscan(step, &n); err != nil {
					t.Fatalf("step %q: %v", step, err)
				}
				got := ""
				if n < 0 {
					b.give(0, 3, int32(-n))
				} else if where := b.place(0, 3, n); where == placeNone {
					got = "none"
				} else {
					b.take(0, 3, n, where)
				}
				switch {
				case b.mustPause(0, 3):
					b.pause(0, 3)
					got += "XOFF"
				case b.paused[0] != 0 && b.mayResume(0, 3):
					b.resume(0, 3)
					got += "XON"
				}
				if got != want {
					t.Errorf("after %s the port holds %d bytes: %q, want %q", step, b.in[0].bytes[3], got, want)
				}
			}
		})
	}
}

// checkBuffer holds a buffer to the invariants that are said at its fields.
func checkBuffer(t *testing.T, b *buffer) {
	t.Helper()
	var lossy, lossless, used, pauses int
	for in, g := range b.in {
		for prio := range g.bytes {
			bytes, own := int(g.bytes[prio]), int(g.own[prio])
			if b.lossless>>prio&1 != 0 {
				lossless += bytes
			} else {
				lossy += bytes
				if own != 0 {
					t.Fatalf("lossy priority %d of port %d has %d bytes of its own", prio, in, own)
				}
			}
			used += bytes - own
			if own < 0 || own > bytes || own > b.ownPart(in) {
				t.Fatalf("priority %d of port %d has %d bytes of its own, %d in all", prio, in, own, bytes)
			}
			if b.paused[in]>>prio&1 != 0 {
				pauses++
			}
		}
		if b.pausedPorts.has(in) != (b.paused[in] != 0) {
			t.Fatalf("port %d is paused for %08b, and counts as paused: %v", in, b.paused[in], b.pausedPorts.has(in))
		}
	}
	if b.alpha == 0 {
		used = 0
		if lossy > b.lossyMax || lossy+lossless > b.limit {
			t.Fatalf("%d lossy bytes of %d, %d of %d in all", lossy, b.lossyMax, lossy+lossless, b.limit)
		}
	}
	if lossy != b.lossyBytes || lossless != b.losslessBytes || used != b.used || used > b.pool || pauses != b.pauses {
		t.Fatalf("the account says %d, %d, %d, %d; the ingresses %d, %d, %d, %d", b.lossyBytes, b.losslessBytes, b.used, b.pauses, lossy, lossless, used, pauses)
	}
}

// TestBufferModel: whatever comes and goes, the invariants of the buffer hold, and no lossless
// frame is without room as long as neighbours that are paused send no more than headroom.
func TestBufferModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0xb0f))
		const ports = 4
		c := PFCConfig{Lossless: 3 << 3, XOFF: 5000 + r.IntN(5000), Headroom: slices.Repeat([]int{3000 + r.IntN(3000)}, ports)}
		if seed%2 == 1 {
			c.Alpha = 0.25 * float64(1+r.IntN(8))
			c.ResumeOffset = r.IntN(2) * 3072
		}
		b := newBuffer(c, ports, Reserved(c, ports, 1<<20)+r.IntN(60_000))
		type frame struct {
			in, size int
			prio     uint8
		}
		var waiting []frame
		var late [ports][8]int // bytes that a neighbour has sent since it was paused
		told, refused := 0, 0
		for step := range 2000 {
			f := frame{r.IntN(ports), 100 + r.IntN(maxFrameWire-100), oneOf(r, uint8(0), 3, 4)}
			paused := b.paused[f.in]>>f.prio&1 != 0
			if r.IntN(100) < 48 && len(waiting) > 0 {
				k := r.IntN(len(waiting))
				f = waiting[k]
				waiting = slices.Delete(waiting, k, k+1)
				b.give(f.in, f.prio, int32(f.size))
				for in := range ports {
					for prio := range uint8(8) {
						if b.paused[in]>>prio&1 != 0 && b.mayResume(in, prio) {
							b.resume(in, prio)
							late[in][prio] = 0
						}
					}
				}
			} else if !paused || late[f.in][f.prio]+f.size <= c.Headroom[f.in] {
				if paused {
					late[f.in][f.prio] += f.size
				}
				where := b.place(f.in, f.prio, f.size)
				if where == placeNone {
					if refused++; b.lossless>>f.prio&1 != 0 {
						t.Fatalf("seed %d, step %d: a lossless frame of %d bytes has no room: %+v", seed, step, f.size, b)
					}
					continue
				}
				b.take(f.in, f.prio, f.size, where)
				waiting = append(waiting, f)
				if b.mustPause(f.in, f.prio) {
					told++
					b.pause(f.in, f.prio)
				}
			}
			checkBuffer(t, &b)
		}
		if told == 0 {
			t.Errorf("seed %d: nobody was paused; %d frames were refused", seed, refused)
		}
	}
}
