// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/rank"
)

// A recovery makes replicas equal. Each replica publishes which writes it has, the client plans the
// transfers, and the replicas send each other the blocks.

// transfer lists the blocks that one replica sends to another.
type transfer struct {
	From   int      `json:"from"` // ranks
	To     int      `json:"to"`
	Blocks []uint32 `json:"blocks"`
}

// plan is the client's plan of a recovery.
type plan struct {
	Present   []int      `json:"present"` // ranks that can be compared
	Transfers []transfer `json:"transfers"`
}

// cannotRead returns the value that a replica publishes, in place of its list, if it cannot read its
// store. Its length is that of no list.
func cannotRead(err error) []byte {
	b := []byte(err.Error())
	if len(b)%recordHead == 0 {
		b = append(b, '.')
	}
	return b
}

// chunk is the number of blocks of a transfer that are made durable together.
const chunk = 16

// recordHead is the head of a block in a transfer: block and number.
const recordHead = 4 + 8

func appendHave(b []byte, block uint32, number uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, block), number)
}

// haveOf decodes a replica's list into the numbers of its writes by block.
func haveOf(b []byte, blocks int) ([]uint64, error) {
	have := make([]uint64, blocks)
	if len(b)%recordHead != 0 {
		return nil, fmt.Errorf("%d bytes are not a list of blocks", len(b))
	}
	for ; len(b) > 0; b = b[recordHead:] {
		block := binary.BigEndian.Uint32(b)
		if int(block) >= blocks {
			return nil, fmt.Errorf("block %d is beyond a volume of %d blocks", block, blocks)
		}
		have[block] = binary.BigEndian.Uint64(b[4:])
	}
	return have, nil
}

// list returns the blocks of the replica's store with the numbers of their writes.
func (p *replica) list() (b []byte, err error) {
	err = p.store.Each(func(r Record) error {
		b = appendHave(b, r.Block, r.Number)
		return nil
	})
	return b, err
}

// recover is a replica's part of a recovery. here reports whether the replica can be compared with
// others.
func (p *replica) recover(round string) (here bool, err error) {
	if p.store != nil {
		have, err := p.list()
		if err != nil {
			have = cannotRead(err)
		}
		p.r.Put(p.key("have/%s/%d", round, p.r.ID()), have)
	}
	var d plan
	if err := json.Unmarshal(p.r.Get(p.key("plan/%s", round)), &d); err != nil {
		return false, fmt.Errorf("read the plan of the recovery: %w", err)
	}
	if !slices.Contains(d.Present, p.r.ID()) {
		return false, nil
	}
	if len(d.Transfers) == 0 {
		return true, nil
	}
	return true, p.exchange(round, d)
}

// exchange is a replica's part of the transfers of a recovery.
func (p *replica) exchange(round string, d plan) error {
	present := d.Present
	sub, err := p.r.Sub(p.key("recover/%s", round), present)
	if err != nil {
		return err
	}
	for _, t := range d.Transfers {
		switch p.r.ID() {
		case t.From:
			err = p.give(sub, slices.Index(present, t.To), t.Blocks)
		case t.To:
			err = p.take(sub, slices.Index(present, t.From), t.Blocks)
		}
		if err != nil {
			return fmt.Errorf("recovery of %s from %s: %w", p.r.NameOf(t.To), p.r.NameOf(t.From), err)
		}
	}
	sub.Sync() // until then a peer may still retransmit
	sub.Close()
	return nil
}

// read returns a block of the replica.
func (p *replica) read(block uint32) (Record, error) {
	if p.store != nil {
		return p.store.Get(block)
	}
	n := p.p.blocks(p.bs)
	at := int(block) % n * p.bs
	return Record{Block: block, Data: p.volume[int(block)/n][at : at+p.bs]}, nil
}

// give sends blocks to another replica, a chunk at a time. It waits until the other has posted
// receives for the chunk, because each receiver-not-ready NAK would cost the time of an RNR timer.
func (p *replica) give(sub *rank.Rank, to int, blocks []uint32) error {
	c, err := sub.Connect(to)
	if err != nil {
		return err
	}
	buf, err := sub.Alloc((recordHead+p.bs)*chunk, rank.MemoryBytes)
	if err != nil {
		return err
	}
	none, err := sub.Alloc(1, rank.MemoryBytes)
	if err != nil {
		return err
	}
	ready, err := c.Recv(none, 0, 1)
	for len(blocks) > 0 && err == nil {
		n := min(chunk, len(blocks))
		if err = sub.Wait(ready); err != nil {
			return err
		}
		if ready, err = c.Recv(none, 0, 1); err != nil {
			return err
		}
		err = p.giveChunk(sub, c, buf, blocks[:n])
		blocks = blocks[n:]
	}
	if err != nil {
		return err
	}
	return errors.Join(buf.Free(), none.Free())
}

// giveChunk sends one chunk of blocks.
func (p *replica) giveChunk(sub *rank.Rank, c *rank.Conn, buf *rank.Buffer, blocks []uint32) error {
	size := recordHead + p.bs
	var reqs []*rank.Request
	for i, block := range blocks {
		r, err := p.read(block)
		if err != nil {
			return err
		}
		b := appendHave(buf.Bytes()[i*size:i*size], block, r.Number)
		copy(buf.Bytes()[i*size+len(b):], r.Data)
		q, err := c.Send(buf, i*size, size)
		if err != nil {
			return err
		}
		reqs = append(reqs, q)
	}
	return sub.Wait(reqs...)
}

// take receives blocks of another replica and makes them durable.
func (p *replica) take(sub *rank.Rank, from int, blocks []uint32) error {
	c, err := sub.Connect(from)
	if err != nil {
		return err
	}
	size := recordHead + p.bs
	buf, err := sub.Alloc(size*chunk, rank.MemoryBytes)
	if err != nil {
		return err
	}
	none, err := sub.Alloc(1, rank.MemoryBytes)
	if err != nil {
		return err
	}
	for len(blocks) > 0 {
		n := min(chunk, len(blocks))
		var reqs []*rank.Request
		for i := range n {
			q, err := c.Recv(buf, i*size, size)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		ready, err := c.Send(none, 0, 1)
		if err != nil {
			return err
		}
		if err := sub.Wait(append(reqs, ready)...); err != nil {
			return err
		}
		var records []Record
		for i := range n {
			b := buf.Bytes()[i*size : (i+1)*size]
			r := Record{Block: binary.BigEndian.Uint32(b), Number: binary.BigEndian.Uint64(b[4:]), Data: b[recordHead:]}
			if r.Block != blocks[i] {
				return fmt.Errorf("block %d came, not %d", r.Block, blocks[i])
			}
			records = append(records, r)
		}
		if err := p.keep(records); err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	return errors.Join(buf.Free(), none.Free())
}

// keep stores blocks of another replica.
func (p *replica) keep(records []Record) error {
	if p.store != nil {
		return p.durably(records, func() bool { return false })
	}
	for _, r := range records {
		mine, err := p.read(r.Block)
		if err != nil {
			return err
		}
		copy(mine.Data, r.Data)
	}
	return nil
}

// expected describes the volumes in memory, by block over all jobs: Last is the number of the last
// write that ended, and Also the numbers of later writes that may have arrived in part or whole.
type expected struct {
	Last []uint64            `json:"last"`
	Also map[uint32][]uint64 `json:"also,omitempty"`
}

// checked holds the result of a replica's check of its volume.
type checked struct {
	Sum string `json:"sum"` // SHA-256 of blocks, numbers and data
	Bad string `json:"bad"` // the first block with wrong bytes, as text
}

// from reports whether each packet's share of a block has the bytes of one of the given writes,
// where number 0 stands for a block that was never written. A WRITE that was in flight when the
// client gave up may have arrived in part, and RDMA places a WRITE packet by packet.
func (p *replica) from(r Record, numbers []uint64) bool {
	wrote := make([][]byte, len(numbers))
	for i, n := range numbers {
		if wrote[i] = make([]byte, p.bs); n > 0 {
			p.fill(wrote[i], p.jobOf(r.Block), n)
		}
	}
	for at, mtu := 0, p.r.MTU(); at < p.bs; at += mtu {
		end := min(at+mtu, p.bs)
		if !slices.ContainsFunc(wrote, func(b []byte) bool { return bytes.Equal(r.Data[at:end], b[at:end]) }) {
			return false
		}
	}
	return len(r.Data) == p.bs
}

// check reads the whole volume back and publishes the result.
func (p *replica) check() error {
	var c checked
	sum := sha256.New()
	look := func(r Record, numbers ...uint64) error {
		sum.Write(appendHave(nil, r.Block, r.Number))
		sum.Write(r.Data)
		if c.Bad == "" && !p.from(r, numbers) {
			c.Bad = fmt.Sprintf("%s: block %d is not what write %d wrote", p.r.Name(), r.Block, numbers[0])
		}
		return nil
	}
	var err error
	if p.store != nil {
		var have []byte
		err = p.store.Each(func(r Record) error {
			have = appendHave(have, r.Block, r.Number)
			return look(r, r.Number)
		})
		p.r.Put(p.key("have/check/%d", p.r.ID()), have)
	} else {
		var e expected
		if err := json.Unmarshal(p.r.Get(p.key("expected")), &e); err != nil {
			return fmt.Errorf("read what is expected: %w", err)
		}
		for block, last := range e.Last {
			r, rerr := p.read(uint32(block))
			if rerr != nil {
				return rerr
			}
			err = look(r, append([]uint64{last}, e.Also[uint32(block)]...)...)
		}
	}
	if err != nil {
		return fmt.Errorf("read the volume of %s back: %w", p.r.Name(), err)
	}
	c.Sum = fmt.Sprintf("%x", sum.Sum(nil))
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("write what was found: %w", err)
	}
	p.r.Put(p.key("checked/%d", p.r.ID()), text)
	return nil
}
