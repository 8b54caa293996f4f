// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// session holds one rank's connections of one job in one epoch. In the job's own rank numbers the
// client is rank 0, and the members follow.
type session struct {
	w       *row
	r       *rank.Rank
	members []int // ranks of the job
	group   *rank.Group
	window  *rank.Window
	log     *rank.Buffer // replica: the memory to which the client writes
	conns   []*rank.Conn // client: connections to the members; replica: connection to the client
	targets []target     // client: by member, the address of its log
}

// target is registered memory of a replica.
type target struct {
	addr uint64
	rkey uint32
}

// open makes the connections and, on a replica, the log.
func (w *row) open(e *epoch, job int) (*session, error) {
	s := &session{w: w, members: e.Members}
	var err error
	if s.r, err = w.r.Sub(w.key("%d/%d", e.Number, job), append([]int{w.p.Client}, e.Members...)); err != nil {
		return nil, err
	}
	s.r.Survive() // failed requests do not end the program: the client handles them
	size := w.p.logBytes(w.bs)
	if mode, ok := mrMode(w.scheme); ok {
		if s.group, s.window, err = s.r.NewWriteGroup("log", 0, mode, size, rank.MemoryBytes); err != nil {
			return nil, err
		}
		s.log = s.window.Buffer
	} else if s.r.ID() > 0 {
		if s.log, err = s.r.Alloc(size, rank.MemoryBytes); err != nil {
			return nil, err
		}
	}
	if s.r.ID() > 0 {
		c, err := s.r.Connect(0)
		s.conns = []*rank.Conn{c}
		return s, err
	}
	for i := range e.Members {
		c, err := s.r.Connect(i + 1)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, c)
	}
	return s, nil
}

// ready publishes that a replica takes WRITEs, and the address of its log.
func (s *session) ready() {
	b := binary.BigEndian.AppendUint64(nil, s.log.Addr())
	s.r.Put(fmt.Sprintf("ready/%d", s.r.ID()), binary.BigEndian.AppendUint32(b, s.log.RKey()))
}

// await waits until all members are ready.
func (s *session) await() error {
	for i := range s.members {
		b := s.r.Get(fmt.Sprintf("ready/%d", i+1))
		if len(b) != 12 {
			return fmt.Errorf("replica %s does not say where its log is", s.nameOf(i))
		}
		s.targets = append(s.targets, target{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])})
	}
	return nil
}

func (s *session) nameOf(member int) string { return s.w.r.NameOf(s.members[member]) }

// recv posts a receive for the immediate data of a WRITE of the client.
func (s *session) recv(none *rank.Buffer) (*rank.Request, error) {
	if s.group != nil {
		return s.group.Recv(none, 0, 0)
	}
	return s.conns[0].Recv(none, 0, 0)
}

// write posts the WRITEs of a block to all members, from a slot of the client's buffer. With
// durability fsync they go to the same slot of the logs and carry slot and block as immediate data;
// with durability memory they go to the block of the volumes.
func (s *session) write(b *rank.Buffer, slot, block int) (reqs []*rank.Request, err error) {
	bs, imm := s.w.bs, s.w.p.Durability == Fsync
	from, to := slot*bs, block*bs
	if imm {
		to = slot * bs
	}
	one := func(q *rank.Request, err error) error {
		reqs = append(reqs, q)
		return err
	}
	if s.group != nil {
		if imm {
			err = one(s.group.WriteImm(s.window, to, b, from, bs, immOf(slot, block)))
		} else {
			err = one(s.group.Write(s.window, to, b, from, bs))
		}
		return reqs, err
	}
	for i, c := range s.conns {
		t := s.targets[i]
		if imm {
			err = one(c.WriteImm(b, from, bs, t.addr+uint64(to), t.rkey, immOf(slot, block)))
		} else {
			err = one(c.Write(b, from, bs, t.addr+uint64(to), t.rkey))
		}
		if err != nil {
			return reqs, err
		}
	}
	return reqs, nil
}

// close releases the connections and the memory. The client does so after all replicas have left the
// epoch, so that a WRITE in flight can still arrive in part or not at all. broken is set if some
// replicas may have failed.
func (s *session) close(broken bool) error {
	if s.group != nil {
		end := s.group.Delete
		if broken {
			end = s.group.Drop
		}
		if err := end(); err != nil {
			return err
		}
	} else if s.log != nil {
		if err := s.log.Free(); err != nil {
			return err
		}
	}
	s.r.Close()
	return nil
}

// abandon releases the connections as the crash of a process does, without telling the peers.
func (s *session) abandon() {
	if s.group != nil {
		s.group.Abandon()
	}
	s.r.Close()
}

// notice is a replica's message to the client after a group commit, or when it cannot commit any
// more.
type notice struct {
	through uint64 // number of the last durable write
	failure string // why the replica cannot commit, or empty
}

// noticeLen is the length of a notice in bytes: 8 for through, and 120 for failure.
const noticeLen = 8 + 120

func (n notice) put(b []byte) {
	clear(b[:noticeLen])
	binary.BigEndian.PutUint64(b, n.through)
	copy(b[8:noticeLen], n.failure)
}

func noticeOf(b []byte) notice {
	text := b[8:noticeLen]
	for i, c := range text {
		if c == 0 {
			text = text[:i]
			break
		}
	}
	return notice{binary.BigEndian.Uint64(b), string(text)}
}
