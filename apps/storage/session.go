package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/rank"
)

// session is one job's connections in one epoch, as one rank has them: the client is rank
// 0 of them, the members follow.
type session struct {
	w       *row
	r       *rank.Rank
	members []int // ranks of the job
	group   *rank.Group
	window  *rank.Window
	log     *rank.Buffer // of a replica: where WRITEs land
	conns   []*rank.Conn // of the client to the members; of a replica to the client
	targets []target     // by member: where its log is
}

// target is registered memory of a replica.
type target struct {
	addr uint64
	rkey uint32
}

// open makes the connections, and on a replica the log.
func (w *row) open(e *epoch, job int) (*session, error) {
	s := &session{w: w, members: e.Members}
	var err error
	if s.r, err = w.r.Sub(w.key("%d/%d", e.Number, job), append([]int{w.p.Client}, e.Members...)); err != nil {
		return nil, err
	}
	s.r.Survive() // the client looks at what fails, and decides
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

// ready says that a replica takes WRITEs.
func (s *session) ready() {
	b := binary.BigEndian.AppendUint64(nil, s.log.Addr())
	s.r.Put(fmt.Sprintf("ready/%d", s.r.ID()), binary.BigEndian.AppendUint32(b, s.log.RKey()))
}

// await returns when all replicas are ready.
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

// write starts to write a block of the client's buffer to all replicas: into slot and
// block of their logs if a store follows, else to the block of their volumes.
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

// close lets connections and memory go. The client does so when no replica takes anything
// any more: a WRITE that is still under way has come in part, or not at all. broken says
// that not all replicas may be there.
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

// abandon lets the connections go as a process that dies does.
func (s *session) abandon() {
	if s.group != nil {
		s.group.Abandon()
	}
	s.r.Close()
}

// notice is what a replica says to the client after a group commit, or when it can commit
// no more.
type notice struct {
	through uint64 // the number of the last write that is durable
	failure string
}

// noticeLen is the length of a notice on the wire: a number, and what went wrong.
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
