// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// copier stands for a NIC and a wire: it moves a program's writes to the memory of another at the same server, without a frame. A write has
// completed when it is in that memory.
type copier struct{ s *Server }

// PostSend implements the server's requester, for writes of one piece. It is called with the loop's lock.
func (w copier) PostSend(now vtime.Time, q *virtrnic.QP, wr virtrnic.SendWR) error {
	s := w.s
	from, to := s.qps[q.Num()], s.qps[s.nic.QueryQP(q).DestQPN]
	if wr.Opcode != virtrnic.WRRDMAWrite || len(wr.SGL) != 1 || to == nil {
		return virtrnic.ErrInvalid
	}
	src, dst, n := s.regions[wr.SGL[0].LKey], s.regions[wr.RKey], uint64(wr.SGL[0].Length)
	if src == nil || dst == nil {
		return virtrnic.ErrKey
	}
	at, ok := src.span(wr.SGL[0].Addr, n)
	there, fits := dst.span(wr.RemoteAddr, n)
	if !ok || !fits {
		return virtrnic.ErrKey
	}
	to.client.put(dst, there, src.image[at:at+n])
	if wr.Flags&virtrnic.SendSignaled == 0 {
		return nil
	}
	done := []virtrnic.WC{{WRID: wr.WRID, Opcode: virtrnic.WCRDMAWrite, ByteLen: wr.SGL[0].Length, QPN: q.Num()}}
	from.scq.queued++
	to.client.work.add(func() { from.client.work.add(func() { from.scq.write(done, false, now) }) })
	return nil
}

// writeBandwidth runs perftest's ib_write_bw between hosts, and returns the gigabytes that it says it moves in a second.
func writeBandwidth(b testing.TB, h [2]*host, lib string, messages, depth int) (float64, error) {
	out := both(b, h, lib, "ib_write_bw", "-F", "-u", "20", "-t", strconv.Itoa(depth), "-s", "65536", "-n", strconv.Itoa(messages))
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "65536" {
			mb, err := strconv.ParseFloat(f[3], 64)
			return mb * (1 << 20) / 1e9, err
		}
	}
	return 0, fmt.Errorf("it says nothing of 65536 bytes: %s", out)
}

// BenchmarkWrites: the rate of perftest's writes of 64 KiB by the library and its rings alone, with a stub that copies for a NIC; through two
// NICs, with frames and ICRC; and by eight programs at each of these at once. The bare NICs' figure is that of BenchmarkMessage in virtrnic.
func BenchmarkWrites(b *testing.B) {
	tools(b, "ib_write_bw")
	lib := library(b)
	for _, c := range []struct {
		name                  string
		alone                 bool
		pairs, atLeast, depth int
	}{{"rings", true, 1, 5000, 64}, {"nic", false, 1, 1000, 4}, {"nic-8-programs", false, 8, 200, 4}} {
		b.Run(c.name, func(b *testing.B) {
			h, _ := hosts(b)
			if c.alone {
				h[1] = h[0]
				h[0].loop.Call(vtime.Never, func(vtime.Time) { h[0].server.requester = copier{h[0].server} })
			}
			var (
				running sync.WaitGroup
				mu      sync.Mutex
				sum     float64
			)
			for range c.pairs {
				running.Go(func() {
					gb, err := writeBandwidth(b, h, lib, max(b.N, c.atLeast), c.depth)
					mu.Lock()
					defer mu.Unlock()
					if sum += gb; err != nil {
						b.Error(err)
					}
				})
			}
			running.Wait()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(sum, "GB/s")
		})
	}
}
