// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// sparse maps n bytes that take no memory, and returns where they are.
func sparse(t *testing.T, n int) (b []byte, at uint64) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unmap(b) })
	return b, addressOfBytes(b)
}

// restrict gives the programs of a host other quotas, before they come.
func (h *host) restrict(u use, q quota) {
	h.loop.Call(vtime.Never, func(vtime.Time) { h.server.quotas[u] = q })
}

// TestRegionsMax: the images of regions take so much address space and no more, and each program has its share, whatever others have. What
// is deregistered, or belongs to a program that goes, does not count.
func TestRegionsMax(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	h[0].restrict(useAddress, quota{1 << 30, 4 << 30, 6 << 30})
	_, at := sparse(t, 1<<30)
	var c [3]*rawClient
	for i := range c {
		var err error
		if c[i], err = dial(h[0].path); err != nil {
			t.Fatal(err)
		}
		if r, err := c[i].ask(opAllocPD, &byID{}); err != nil || r.ID != 1 {
			t.Fatal(r, err)
		}
	}
	register := func(i int, n uint64) (key uint32, e unix.Errno) {
		t.Helper()
		r, err := c[i].ask(opRegMR, &regMR{PD: 1, Access: 1, Addr: at, Length: n, IOVA: at})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID, unix.Errno(r.Status)
	}
	var keys []uint32
	for i, want := range []unix.Errno{0, 0, 0, 0, unix.ENOMEM} {
		key, e := register(0, 1<<30)
		if keys = append(keys, key); e != want {
			t.Errorf("region %d of the first: %v", i, e)
		}
	}
	for i, want := range []unix.Errno{0, 0, unix.ENOMEM} { // all together have as much as they may
		if _, e := register(1, 1<<30); e != want {
			t.Errorf("region %d of the second: %v", i, e)
		}
	}
	if _, e := register(2, 1<<30-1); e != 0 {
		t.Errorf("the third does not get its share: %v", e)
	}
	if _, e := register(2, 1); e != unix.ENOMEM {
		t.Errorf("a byte more: %v", e)
	}
	for _, key := range keys[:2] {
		if r, err := c[0].ask(opDeregMR, &byID{key}); err != nil || r.Status != 0 {
			t.Error(r, err)
		}
	}
	if _, e := register(2, 1<<30); e != 0 {
		t.Errorf("the third, when others have given back: %v", e)
	}
	for i := range c {
		c[i].close()
	}
	unharmed(t, h, before)
	h[0].accountsEmpty(t)
}

// accountsEmpty waits until no bytes count for programs, which have ended.
func (h *host) accountsEmpty(t *testing.T) {
	t.Helper()
	h.waitFor(t, "nothing counts of programs that have gone", func() bool {
		for u := range uses {
			if h.server.used[u].Load() != 0 {
				return false
			}
		}
		return h.server.backlog.Load() == 0
	})
}

// evil is a program with a queue pair that is connected to itself by another at the same NIC, and sparse memory.
type evil struct {
	*rawClient
	cq     reply
	qp     [2]reply
	sq     ring
	cqRing ring
	other  []byte // rings of the other queue pair
	at     uint64
	key    uint32
	polled uint64

	unsignaled bool // the next request posted
}

func newEvil(t *testing.T, h *host, at, length uint64) *evil {
	t.Helper()
	c, err := dial(h.path)
	if err != nil {
		t.Fatal(err)
	}
	x := &evil{rawClient: c, at: at}
	r := &reader{rawClient: c}
	r.must(t, opAllocPD, &byID{})
	x.key = r.must(t, opRegMR, &regMR{PD: 1, Access: 15, Addr: at, Length: length, IOVA: at}).ID
	x.cq = r.must(t, opCreateCQ, &createCQ{Depth: 200})
	x.cqRing = ring{c.memory(t), uint64(x.cq.Send), completionLen}
	for i := range x.qp {
		x.qp[i] = r.must(t, opCreateQP, &createQP{PD: 1, SendCQ: x.cq.ID, RecvCQ: x.cq.ID, Type: uint32(virtrnic.TypeRC), SendWR: 16, RecvWR: 2, SendSGE: sgesMax, RecvSGE: 1})
		m := c.memory(t)
		if i == 0 {
			x.sq = ring{m, uint64(x.qp[i].Send), sendLen}
		} else {
			x.other = m
		}
	}
	for i := range x.qp {
		r.qpn = x.qp[i].ID
		r.connect(t, h, x.qp[1-i].ID)
	}
	t.Cleanup(x.close)
	return x
}

// close ends the program.
func (x *evil) close() {
	x.rawClient.close()
	unmap(x.cqRing.mem)
	unmap(x.sq.mem)
	unmap(x.other)
	x.cqRing.mem, x.sq.mem, x.other, x.fds = nil, nil, nil, nil
}

// post writes a send of pieces to the ring.
func (x *evil) post(op virtrnic.WROpcode, remote uint64, pieces ...virtrnic.SGE) {
	le, head := binary.LittleEndian, x.sq.head()
	e := x.sq.entry(head)
	clear(e)
	le.PutUint64(e, head)
	le.PutUint64(e[8:], remote)
	le.PutUint32(e[32:], uint32(op))
	if !x.unsignaled {
		le.PutUint32(e[36:], uint32(virtrnic.SendSignaled))
	}
	le.PutUint32(e[40:], uint32(len(pieces)))
	le.PutUint32(e[52:], x.key)
	for i, p := range pieces {
		le.PutUint64(e[sendSGEs+16*i:], p.Addr)
		le.PutUint32(e[sendSGEs+16*i+8:], p.Length)
		le.PutUint32(e[sendSGEs+16*i+12:], p.LKey)
	}
	x.sq.setHead(head + 1)
	_, _ = unix.Write(x.fds[1], []byte{0}) // a full socket says as much
}

// poll takes completions, and returns their statuses.
func (x *evil) poll() (statuses []uint32) {
	for ; x.polled < x.cqRing.head(); x.polled++ {
		statuses = append(statuses, binary.LittleEndian.Uint32(x.cqRing.entry(x.polled)[8:]))
	}
	x.cqRing.setTail(x.polled)
	return statuses
}

// TestRefusedReadsNothing: the rights of a request are checked before the program's memory is read.
func TestRefusedReadsNothing(t *testing.T) {
	const size = 6 << 30
	_, at := sparse(t, size)
	for name, c := range map[string]func(x *evil) []virtrnic.SGE{
		"long": func(x *evil) (l []virtrnic.SGE) { // pieces of 1 GiB, and all of them more than a message may have
			for i := range uint64(5) {
				l = append(l, virtrnic.SGE{Addr: at + i<<30, Length: 1 << 30, LKey: x.key})
			}
			return l
		},
		"key": func(x *evil) []virtrnic.SGE {
			return []virtrnic.SGE{{Addr: at, Length: 1 << 30, LKey: x.key}, {Addr: at, Length: 8, LKey: x.key + 1}}
		},
		"range": func(x *evil) []virtrnic.SGE {
			return []virtrnic.SGE{{Addr: at, Length: 1 << 30, LKey: x.key}, {Addr: at + size - 1, Length: 2, LKey: x.key}}
		},
		"remote": func(x *evil) []virtrnic.SGE { return []virtrnic.SGE{{Addr: at, Length: 1 << 30, LKey: x.key}} }, // a READ of memory that is not the peer's
		"state":  func(x *evil) []virtrnic.SGE { return []virtrnic.SGE{{Addr: at, Length: 1 << 30, LKey: x.key}} },
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := hosts(t)
			x := newEvil(t, h[0], at, size)
			op, remote := virtrnic.WRRDMAWrite, at
			switch name {
			case "remote":
				op, remote = virtrnic.WRRDMARead, at+size-(1<<29)
			case "state":
				if r, err := x.ask(opModifyQP, &modifyQP{QPN: x.qp[0].ID, Mask: uint32(virtrnic.AttrState), Attr: attr{State: uint32(virtrnic.StateErr)}}); err != nil || r.Status != 0 {
					t.Fatal(r, err)
				}
			}
			x.post(op, remote, c(x)...)
			h[0].waitFor(t, "the queue pair ends", func() bool {
				q := h[0].server.qps[wire.QPN(x.qp[0].ID)]
				return q.qp.State() == virtrnic.StateErr && (name == "long" || len(x.poll()) > 0)
			})
			if n := h[0].server.used[useImages].Load(); n != 0 {
				t.Errorf("%d bytes have been read", n)
			}
		})
	}
}

// TestImagesMax: programs move more than the images may take at a time, in pieces, one by WRITEs, of which every
// fourth is signaled, one by READs, and all of it arrives; its memory stays within bounds, which the kernel
// confirms.
func TestImagesMax(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	const own, all = 6 * chunk, 12 * chunk
	h[0].restrict(useImages, quota{chunk, own, all})
	const n, rounds, size = 2*chunk + 100, 32, 66 * chunk
	var x [2]*evil
	var mem [2][]byte
	for i := range x {
		b, at := sparse(t, 2*size)
		mem[i] = b
		for k := range size / 8 {
			binary.LittleEndian.PutUint64(b[8*k:], uint64(k)*0x9e3779b97f4a7c15)
		}
		x[i] = newEvil(t, h[0], at, 2*size)
	}
	done, posted := [2]int{}, [2]int{}
	for done[0] < rounds || done[1] < rounds {
		for i, x := range x {
			for _, status := range x.poll() {
				if done[i] += 4 - 3*i; status != 0 {
					t.Fatalf("program %d: status %d", i, status)
				}
			}
			for posted[i] < rounds && posted[i] < done[i]+8 {
				off := uint64(posted[i] * n)
				from, to := x.at+off, x.at+size+off
				if i == 0 {
					x.unsignaled = posted[i]%4 != 3
					x.post(virtrnic.WRRDMAWrite, to, virtrnic.SGE{Addr: from, Length: 7, LKey: x.key}, virtrnic.SGE{Addr: from + 7, Length: n - 7, LKey: x.key})
				} else {
					x.post(virtrnic.WRRDMARead, from, virtrnic.SGE{Addr: to, Length: n, LKey: x.key})
				}
				posted[i]++
			}
		}
		h[0].loop.Call(vtime.Never, func(vtime.Time) {
			if sum := h[0].server.used[useImages].Load(); sum > all {
				t.Fatalf("images take %d bytes", sum)
			}
		})
	}
	for i, b := range mem {
		if string(b[size:size+rounds*n]) != string(b[:rounds*n]) {
			t.Errorf("program %d: the bytes differ", i)
		}
	}
	h[0].loop.Call(vtime.Never, func(vtime.Time) {
		for _, c := range h[0].server.inOrder() {
			_ = resident(t, c)
		}
	})
	for i := range x {
		x[i].close()
	}
	unharmed(t, h, before)
	h[0].accountsEmpty(t)
}

// resident returns the number of bytes of a program's images in memory, and checks that as many are counted. It is called with the loop's
// lock, when nothing is being read.
func resident(t *testing.T, c *client) (n int64) {
	t.Helper()
	for key, owner := range c.s.owners {
		r := c.s.regions[key]
		if owner != c || len(r.image) == 0 {
			continue
		}
		here := make([]byte, pages(uint64(len(r.image)))/4096)
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&r.image[0])), uintptr(len(r.image)), uintptr(unsafe.Pointer(&here[0]))); e != 0 {
			t.Error(e)
		}
		for _, p := range here {
			n += 4096 * int64(p&1)
		}
	}
	if counted := c.used[useImages].Load(); n > counted {
		t.Errorf("%d bytes of images are in memory, and %d count", n, counted)
	}
	return n
}

// TestHostileMemory: programs that register, post, resize and leave at random get no more than they may have, and the accounts agree with the
// memory in use.
func TestHostileMemory(t *testing.T) {
	h, _ := hosts(t)
	before := take(t)
	quotas := [uses]quota{
		useAddress: {16 << 20, 64 << 20, 96 << 20}, useImages: {2 * chunk, 20 * chunk, 30 * chunk}, useRings: {64 << 10, 400 << 10, 700 << 10},
		useEvents: {1 << 10, 4 << 10, 8 << 10}, useFrames: {8 << 10, 64 << 10, 128 << 10},
	}
	for u, q := range quotas {
		h[0].restrict(use(u), q)
	}
	const size = 32 << 20
	_, at := sparse(t, size)
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 23))
		var all []*evil
		for range 1 + r.IntN(3) {
			all = append(all, newEvil(t, h[0], at, uint64(1+r.IntN(16<<20))))
		}
		s := h[0].server
		for step := range 150 {
			x := all[r.IntN(len(all))]
			if x.fds == nil {
				continue
			}
			if _, err := x.step(r, size); err != nil {
				x.close() // it has lost its connection
				continue
			}
			h[0].loop.Call(vtime.Never, func(vtime.Time) {
				if err := s.sums(); err != nil {
					t.Fatalf("seed %d, step %d: %v (go test ./nodeagent/verbs -run TestHostileMemory draws seeds 0 to %d)", seed, step, err, seeds-1)
				}
			})
		}
		for _, x := range all {
			x.close()
		}
		h[0].emptied(t)
		h[0].accountsEmpty(t)
	}
	unharmed(t, h, before)
}

// step does something at random, and returns the NIC's answer if it asks for something.
func (x *evil) step(r *rand.Rand, size int) (reply, error) {
	some := func() uint32 { return uint32(r.IntN(1 << r.IntN(17))) }
	switch r.IntN(8) {
	case 0:
		n := uint64(r.IntN(1 << (3 + r.IntN(22))))
		a, err := x.ask(opRegMR, &regMR{PD: 1, Access: 15, Addr: x.at, Length: n, IOVA: x.at})
		if err == nil && a.Status == 0 {
			x.key = a.ID
		}
		return a, err
	case 1:
		return x.ask(opDeregMR, &byID{x.key})
	case 2:
		return x.ask(opCreateCQ, &createCQ{Depth: some()})
	case 3:
		return x.ask(opResizeCQ, &resizeCQ{2 + some()%8, some()})
	case 4:
		return x.ask(opCreateSRQ, &createSRQ{PD: 1, WR: some(), SGE: 2})
	case 5:
		return x.ask(opDestroyCQ, &byID{2 + some()%8})
	case 6:
		return x.ask(opCreateQP, &createQP{PD: 1, SendCQ: x.cq.ID, RecvCQ: x.cq.ID, Type: uint32(virtrnic.TypeRC), SendWR: some(), RecvWR: some()})
	}
	x.poll()
	var l []virtrnic.SGE
	for range r.IntN(4) {
		l = append(l, virtrnic.SGE{Addr: x.at + uint64(r.IntN(size)), Length: uint32(r.IntN(1 << (3 + r.IntN(20)))), LKey: x.key})
	}
	if x.sq.head()-x.sq.tail() < x.sq.entries {
		x.post([]virtrnic.WROpcode{virtrnic.WRRDMAWrite, virtrnic.WRSend, virtrnic.WRRDMARead}[r.IntN(3)], x.at+uint64(r.IntN(size)), l...)
	}
	return reply{}, nil
}

// sums returns the difference between the accounts and the memory in use, or the excess over the limits. It is called with
// the loop's lock.
func (s *Server) sums() error {
	var there, all [uses]int64
	for key := range s.regions {
		there[useAddress] += int64(pages(uint64(len(s.regions[key].image))))
	}
	for c := range s.clients {
		for u := range uses {
			n := c.used[u].Load()
			if all[u] += n; n < 0 || n > s.quotas[u].own {
				return fmt.Errorf("a program has %d bytes of %s", n, useNames[u])
			}
		}
		for _, q := range c.qps {
			there[useRings] += int64(len(q.mem))
		}
		for _, q := range c.cqs {
			there[useRings] += int64(len(q.ring.mem))
		}
		for _, q := range c.srqs {
			there[useRings] += int64(len(q.rq.mem))
		}
	}
	for u := range uses {
		if most := s.quotas[u].all + int64(len(s.clients))*s.quotas[u].share; all[u] > most {
			return fmt.Errorf("programs have %d bytes of %s", all[u], useNames[u])
		}
	}
	for _, u := range []use{useAddress, useRings} {
		if there[u] != all[u] {
			return fmt.Errorf("%d bytes of %s count, and there are %d", all[u], useNames[u], there[u])
		}
	}
	return nil
}
