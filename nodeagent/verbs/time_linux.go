// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"math"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// ClockRate is the rate of the lab's time from an instant on.
type ClockRate struct {
	Mono     int64      // nanoseconds of CLOCK_MONOTONIC
	Lab      vtime.Time // lab time at that instant
	Dilation float64    // wall time per lab time
}

// timePage is the programs' view of the lab's clock (struct v_time). A generation fills one set of rates while the other
// is valid, so a reader that sees one generation before and after has read one set, and neither side waits for the
// other.
type timePage struct {
	mem []byte
	fd  int
}

// Where the parts of a page are.
const (
	pageRates = 8
	rateLen   = 24
	pageLen   = pageRates + 2*2*rateLen
)

func newTimePage() (*timePage, error) {
	fd, err := unix.MemfdCreate("mcastlab-time", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make the page of the lab's time: %w", err)
	}
	var mem []byte
	if err = unix.Ftruncate(fd, pageLen); err == nil {
		mem, err = unix.Mmap(fd, 0, pageLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil { // only the mapping that exists may be written to
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unmap(mem)
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make the page of the lab's time: %w", err)
	}
	return &timePage{mem, fd}, nil
}

func (p *timePage) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&p.mem[at])) }

// show makes these rates valid: that of now, and perhaps one that has been announced.
func (p *timePage) show(rates []ClockRate) {
	next := atomic.LoadUint64(p.word(0)) + 1
	for i := range 2 {
		var r ClockRate
		if i < len(rates) {
			r = rates[i]
		}
		at := pageRates + (int(next&1)*2+i)*rateLen
		atomic.StoreUint64(p.word(at), uint64(r.Mono))
		atomic.StoreUint64(p.word(at+8), uint64(r.Lab))
		atomic.StoreUint64(p.word(at+16), math.Float64bits(r.Dilation))
	}
	atomic.StoreUint64(p.word(0), next)
}

func (p *timePage) close() {
	unmap(p.mem)
	_ = unix.Close(p.fd) // of memory
}

// ShowClock gives programs the rates of the lab's clock. It has to be called again after each change: rates returns the
// current one, and after it the one that has been announced, if there is one.
func (s *Server) ShowClock(rates func() []ClockRate) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	if s.time == nil {
		if s.time, err = newTimePage(); err != nil {
			return err
		}
	}
	s.time.show(rates()) // with the lock, so that the latest comes last
	return nil
}

// tellTime answers a connection that asks for the lab's time.
func (s *Server) tellTime(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.time == nil || s.closed {
		_, _ = conn.Write(encode(reply{Status: errno(unix.EAGAIN)})) // it is over in any case
		return
	}
	_, _, _ = conn.WriteMsgUnix(encode(reply{}), rights([]int{s.time.fd}), nil)
}
