// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/cm"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// client is a connection: a device that a program has open.
type client struct {
	s      *Server
	conn   *net.UnixConn
	number uint64 // in the order in which programs came
	mem    int    // descriptor of the program's memory
	work   *worker
	page   []byte
	bell   *os.File
	pipe   *pipe // of asynchronous events

	// With the loop's lock.
	gone     bool
	held     []held // in front of the NIC
	fetching bool   // memory is being read for the first of them
	pds      map[uint32]*virtrnic.PD
	cqs      map[uint32]*cq
	qps      map[wire.QPN]*qp
	srqs     map[uint32]*srq
	ahs      map[uint32]*virtrnic.AddressHandle
	channels map[uint32]*channel
	lastID   uint32
	wrecked  bool     // the NIC has been started again under the program
	mapped   [][]byte // rest after takeBack
	program  *Program // whose it is in virtual time, or nil
	failures map[wire.QPN]failure

	puts    uint64        // pieces of memory that the NIC has written; with the loop's lock
	placed  atomic.Uint64 // number of them that are in the program's memory
	fenced  []*qp         // whose answers wait for others; with the loop's lock
	fencing bool          // the worker is to report when they are there; with the loop's lock

	backlog atomic.Int64 // bytes to be written to the program's memory
	used    [uses]atomic.Int64
	begging bool  // there was no memory of images, since others have it; the worker's
	hungry  int   // outstanding requests when there was none; 0: it does not wait; with the loop's lock
	left    int64 // of useImages, when some was last given back; the worker's
	torn    bool  // some of them could not be; the worker's
}

// channel is a completion channel.
type channel struct {
	id    uint32
	pipe  *pipe
	users int // completion queues
}

// serve carries out a program's requests until it closes the connection or sends an invalid one.
func (s *Server) serve(conn *net.UnixConn) {
	defer conn.Close() //nolint:errcheck // nothing more is written to it
	var c *client
	for {
		b, fds, err := receive(conn)
		if err != nil {
			break
		}
		o, m, err := decode(b)
		if o == opTime && c == nil && err == nil && len(fds) == 0 {
			s.tellTime(conn)
			break
		}
		if s.turns != nil && c == nil && err == nil && o.inTurns() {
			s.turns.serve(conn, m, fds)
			break
		}
		if o.operates() && c == nil && err == nil && len(fds) == 0 {
			s.operate(conn, o, m)
			break
		}
		if (o == opHello) != (c == nil) || o == opTime || o.inTurns() || o.operates() || err != nil || (len(fds) > 0) != (o == opHello) {
			closeAll(fds)
			break
		}
		var answer []byte
		var out []int
		s.turns.do(func() {
			if o == opHello {
				c, answer, out = s.greet(conn, m.(*hello), fds)
			} else {
				answer, out = c.do(o, m)
			}
		})
		_, _, err = conn.WriteMsgUnix(answer, rights(out), nil)
		closeAll(out)
		if err != nil || c == nil {
			break
		}
	}
	if c != nil {
		s.turns.do(c.close)
	}
}

func rights(fds []int) []byte {
	if len(fds) == 0 {
		return nil
	}
	return unix.UnixRights(fds...)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// receive returns the next message and the descriptors that came with it.
func receive(conn *net.UnixConn) (b []byte, fds []int, err error) {
	b = make([]byte, requestMax)
	oob := make([]byte, unix.CmsgSpace(4*4))
	n, k, _, _, err := conn.ReadMsgUnix(b, oob)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:k])
	if err != nil {
		return nil, nil, err
	}
	for i := range messages {
		if some, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, some...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	if n == 0 && len(fds) == 0 {
		return nil, nil, net.ErrClosed
	}
	return b[:n], fds, nil
}

// greet begins a connection. Without success there is no client, and the answer has the reason.
func (s *Server) greet(conn *net.UnixConn, m *hello, fds []int) (*client, []byte, []int) {
	refuse := func(err error) (*client, []byte, []int) {
		closeAll(fds)
		return nil, encode(reply{Status: errno(err)}), nil
	}
	if len(fds) != 1 || m.Version != version {
		return refuse(unix.EPROTO)
	}
	if err := checkMem(fds[0]); err != nil {
		return refuse(err)
	}
	page, pageFD, err := share(os.Getpagesize())
	if err != nil {
		return refuse(err)
	}
	// A socket pair and no eventfd: the program's changes of its end do not affect this end.
	bell, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return refuse(errors.Join(err, unix.Close(pageFD), unix.Munmap(page)))
	}
	c := &client{
		s: s, conn: conn, mem: fds[0], work: newWorker(page), page: page, bell: os.NewFile(uintptr(bell[0]), "bell"),
		pds: map[uint32]*virtrnic.PD{}, cqs: map[uint32]*cq{}, qps: map[wire.QPN]*qp{}, srqs: map[uint32]*srq{}, ahs: map[uint32]*virtrnic.AddressHandle{},
		channels: map[uint32]*channel{},
	}
	var far int
	if c.pipe, far, err = c.newPipe(); err != nil {
		return refuse(errors.Join(err, unix.Close(pageFD), unix.Munmap(page), c.bell.Close(), unix.Close(bell[1])))
	}
	d := device{
		Version: version, MTU: uint32(s.mtu), MaxQPWR: virtrnic.MaxQPWR, MaxCQE: cqesMax, MaxSGE: sgesMax,
		MaxInline: inlineMax, MaxRdAtomic: virtrnic.MaxRdAtomic, MaxMcastQP: virtrnic.MaxMcastQPs,
		MaxMcastGroups: virtrnic.MaxMcastGroups, MaxMRSize: imageMax,
	}
	s.call(func(vtime.Time) {
		s.lastID++
		c.number = s.lastID
		s.clients[c] = true
		d.MaxQP, d.MaxCQ, d.MaxSRQ = uint32(s.most[ofQP]), uint32(s.most[ofCQ]), uint32(s.most[ofSRQ])
		d.MaxMR, d.MaxPD, d.MaxAH = uint32(s.most[ofMR]), uint32(s.most[ofPD]), uint32(s.most[ofAH])
		if s.turns != nil {
			c.program = s.turns.runs
		}
		d.Mbps = uint32(s.nic.LineRate() / 1e6)
		d.GID = s.nic.Addr(s.nic.IP()).As16()
	})
	if s.turns == nil {
		go c.work.run(c)
		go c.work.listen(c.bell)
	}
	return c, encode(d), []int{pageFD, bell[1], far}
}

// errno returns the number that a program gets for an error.
func errno(err error) uint32 {
	var e unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return uint32(e)
	case errors.Is(err, virtrnic.ErrNoMem):
		return uint32(unix.ENOMEM)
	case errors.Is(err, virtrnic.ErrBusy):
		return uint32(unix.EBUSY)
	case errors.Is(err, cm.ErrNoEndpoint):
		return uint32(unix.ENOENT)
	case errors.Is(err, cm.ErrPortInUse):
		return uint32(unix.EADDRINUSE)
	case errors.Is(err, cm.ErrTooMany):
		return uint32(unix.ENOMEM)
	}
	return uint32(unix.EINVAL)
}

// close takes back all that was made over the connection. The NIC lets go of it at once; the memory
// goes when the worker has ended, which a copy may hold up.
func (c *client) close() {
	c.s.call(func(now vtime.Time) {
		c.takeBack(now)
		c.tellFailures()
		c.gone = true
		delete(c.s.clients, c)
	})
	c.work.stop()
	if c.s.turns != nil {
		close(c.work.ended) // there is no goroutine
	}
	c.pipe.close()
	for _, h := range c.channels { // independent of each other
		h.pipe.close()
	}
	_ = c.bell.Close()
	go func() {
		<-c.work.ended
		for _, b := range c.mapped {
			unmap(b)
		}
		unmap(c.page)
		_ = unix.Close(c.mem)
		c.s.backlog.Add(-c.backlog.Load()) // of jobs that were not done any more
		c.giveAll()
	}()
}

// hungUp reports whether the program has closed the connection.
func (c *client) hungUp() (over bool) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return false // we have
	}
	_ = raw.Control(func(fd uintptr) { // an error is of a connection that we have closed
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		over = n > 0 && err == nil && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) != 0
	})
	return over
}

// takeBack has the NIC let go of all that the program has made. What is mapped for it is left. It is called
// with the loop's lock.
func (c *client) takeBack(now vtime.Time) {
	c.forgetEnds(now, func(*end) bool { return true })
	for _, q := range sorted(c.qps) {
		c.destroyQP(now, q)
		c.mapped = append(c.mapped, q.mem)
	}
	for key, owner := range c.s.owners { // independent of each other
		if owner == c {
			c.mapped = append(c.mapped, c.s.regions[key].image)
			c.forgetMR(key)
		}
	}
	for _, a := range c.ahs { // independent of each other
		_ = c.s.nic.DestroyAH(a) // it is the NIC's
	}
	for _, q := range c.srqs { // independent of each other
		_ = c.s.nic.DestroySRQ(q.srq) // no queue pair uses it any more
		c.mapped = append(c.mapped, q.rq.mem)
	}
	for _, q := range c.cqs { // independent of each other
		_ = c.s.nic.DestroyCQ(q.cq) // no queue pair uses it any more
		c.mapped = append(c.mapped, q.ring.mem)
	}
	for _, p := range c.pds { // independent of each other
		_ = c.s.nic.DeallocPD(p) // nothing is in it any more
	}
	for len(c.held) > 0 { // for queue pairs that do not exist any more
		h := c.next()
		c.s.deliver(now, h.port, h.f)
	}
	clear(c.ahs)
	clear(c.srqs)
	clear(c.cqs)
	clear(c.pds)
}

func unmap(b []byte) {
	if len(b) > 0 {
		_ = unix.Munmap(b) // it was mapped here
	}
}

// sorted returns the values of a map in the order of their keys, since completions may show that order.
func sorted[K cmp.Ordered, V any](m map[K]V) (all []V) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// put takes the NIC's writes to a region: the worker writes them to the program's memory.
func (c *client) put(r *region, off uint64, b []byte) {
	own, _ := c.s.pieces.Get().(*[]byte)
	if own == nil {
		own = new([]byte)
	}
	*own = append((*own)[:0], b...)
	c.backlog.Add(int64(len(b)))
	c.s.backlog.Add(int64(len(b)))
	c.s.puts++
	c.puts++
	c.work.add(func() {
		err := put(c.mem, *own, r.addr+off)
		c.backlog.Add(-int64(len(*own)))
		c.s.backlog.Add(-int64(len(*own)))
		c.s.pieces.Put(own)
		switch {
		case c.torn:
		case err != nil:
			c.torn = true // so that nothing is acknowledged any more
			c.s.call(func(now vtime.Time) { c.breakDown(now) })
		default:
			c.placed.Add(1)
		}
	})
}

// fence returns the number of the last write that an answer of a queue pair has to wait for (virtrnic.NIC.SetFence): the NIC's writes to
// its program's memory are on their way there. It is called with the loop's lock.
func (s *Server) fence(nq *virtrnic.QP) uint64 {
	q := s.qps[nq.Num()]
	if q == nil || q.client.placed.Load() == q.client.puts {
		return 0
	}
	c := q.client
	if !q.fenced {
		q.fenced = true
		c.fenced = append(c.fenced, q)
	}
	c.awaitPlaced()
	return c.puts
}

// awaitPlaced has answers sent when the worker has done its present work. It is called with the loop's lock.
func (c *client) awaitPlaced() {
	if c.fencing {
		return
	}
	c.fencing = true
	c.work.add(func() { c.s.call(c.answer) })
}

// answer sends the answers that do not have to wait any more. It is called with the loop's lock.
func (c *client) answer(now vtime.Time) {
	c.fencing = false
	done := c.placed.Load()
	all := c.fenced
	c.fenced = nil
	for _, q := range all {
		q.fenced = c.qps[q.qp.Num()] == q && c.s.nic.Placed(now, q.qp, done)
		if q.fenced {
			c.fenced = append(c.fenced, q)
		}
	}
	if len(c.fenced) > 0 && !c.gone {
		c.awaitPlaced()
	}
}

// breakDown ends a program's queue pairs after bytes could not be written that the NIC has acknowledged.
func (c *client) breakDown(now vtime.Time) {
	if c.gone || c.wrecked {
		return
	}
	for _, q := range sorted(c.qps) {
		if q.qp.State() != virtrnic.StateReset {
			_ = c.s.nic.ModifyQP(now, q.qp, virtrnic.QPAttr{State: virtrnic.StateErr}, virtrnic.AttrState) // any state but RESET may go there
		}
	}
	c.tell(event{deviceFatal, 0})
}

// deviceFatal is IBV_EVENT_DEVICE_FATAL.
const deviceFatal = 8

func idBytes(id uint32) []byte { return binary.LittleEndian.AppendUint32(nil, id) }
