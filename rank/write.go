// SPDX-License-Identifier: Apache-2.0

package rank

import (
	"encoding/binary"
	"fmt"

	"github.com/mcastlab/mcastlab/core/mrp"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// MRMode selects how a WRITE to a group finds the memory of each member, since each member's
// memory has its own address and key.
type MRMode string

// Modes of finding memory.
const (
	// MRPerRequest: the source announces every member's region before each WRITE, by a small
	// WRITE of its own, which leaf switches read (Gleam §3.3, GLE-8).
	MRPerRequest MRMode = "per-request"
	// MRRegistered: MRP gives the leaf switches the regions when the group and each new window are made
	// (CEP-25).
	MRRegistered MRMode = "registered"
	// MRShared: address and key are the same at all members by agreement, and no switch
	// rewrites them (Gleam appendix C, GLE-13).
	MRShared MRMode = "shared"
)

// writes is the part of a group's state that only groups with WRITEs have.
type writes struct {
	g       *Group
	mode    MRMode
	windows []*Window
	control *Buffer    // per-request: memory that others' announcements land in
	slots   *Buffer    // per-request: announcements of this rank, until they are acknowledged
	pending []*Request // WRITE that each slot's announcement belongs to
	posted  int
}

// Window is memory of the same size at every member of a group, which WRITEs to the group land
// in. The embedded Buffer is this rank's part.
type Window struct {
	*Buffer
	w       *writes
	index   int
	regions []wire.MRPRegion // by rank; valid where have is true
	have    []bool
}

// NewWriteGroup registers a group that takes WRITEs, as NewGroup does, and makes its first
// window, of n bytes. All ranks must call it with the same arguments.
func (r *Rank) NewWriteGroup(name string, leader int, mode MRMode, n int, kind MemoryKind) (*Group, *Window, error) {
	switch mode {
	case MRPerRequest, MRRegistered, MRShared:
	default:
		return nil, nil, fmt.Errorf("group %s: no mode %q: use %s, %s or %s", name, mode, MRPerRequest, MRRegistered, MRShared)
	}
	for i := range r.c.Size {
		if r.External(i) && mode != MRRegistered {
			return nil, nil, fmt.Errorf("group %s: external host %s takes WRITEs in mode %s only", name, r.NameOf(i), MRRegistered)
		}
	}
	g := &Group{r: r, name: name, source: leader}
	g.write = &writes{g: g, mode: mode}
	g.write.windows = []*Window{{w: g.write, Buffer: &Buffer{size: uint64(n), kind: kind}}}
	if err := g.join(leader); err != nil {
		return nil, nil, err
	}
	if mode == MRPerRequest && r.c.ID == leader {
		for i := range r.c.Size { // now, and not while the first WRITE is timed
			g.write.windows[0].region(i)
		}
	}
	return g, g.write.windows[0], nil
}

// prepare allocates the first window and the memory for announcements, before the group is
// registered.
func (w *writes) prepare(g *Group) (err error) {
	first := w.windows[0]
	if err := first.alloc(int(first.size), first.kind); err != nil {
		return err
	}
	if w.mode == MRPerRequest {
		if w.control, err = g.r.Alloc(g.r.c.Params.MTU, MemoryBytes); err != nil {
			return err
		}
		w.pending = make([]*Request, wire.MRVersionsMax)
		g.r.Put(w.key("control", g.r.c.ID), region(w.control))
	}
	return nil
}

// list gives the registration the regions that the leaf switches start with: those of the
// first window, or in mode per-request those that announcements land in.
func (w *writes) list(m *mrp.Group) {
	if w.mode == MRShared {
		return
	}
	m.Regions = true
	at := func(rank int) wire.MRPRegion {
		if w.mode == MRPerRequest {
			return regionOf(w.g.r.get(w.key("control", rank), w.why(rank)))
		}
		return w.windows[0].region(rank)
	}
	i := 0
	for rank := range w.g.r.c.Size {
		if rank == w.g.r.c.ID {
			m.Region = at(rank)
			continue
		}
		m.Members[i].Region = at(rank)
		i++
	}
}

// key returns the name of a value that a rank publishes for the group.
func (w *writes) key(what string, rank int) string {
	return fmt.Sprintf("group/%s/%s/%d", w.g.name, what, rank)
}

func (w *writes) why(rank int) string {
	return fmt.Sprintf("rank %d to make memory for group %s", rank, w.g.name)
}

func region(b *Buffer) []byte { return wire.MRPRegion{VA: b.Addr(), RKey: b.RKey()}.AppendTo(nil) }

// regionOf decodes a published region. Malformed bytes give a region that no member has.
func regionOf(b []byte) wire.MRPRegion {
	if len(b) != wire.MRPRegionLen {
		return wire.MRPRegion{}
	}
	return wire.MRPRegion{VA: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:])}
}

// windowsMax bounds a group's windows: in mode shared each takes one of the 256 keys that the
// group has.
const windowsMax = 256

// alloc allocates this rank's part of the window and publishes its region.
func (v *Window) alloc(n int, kind MemoryKind) (err error) {
	r := v.w.g.r
	v.regions, v.have = make([]wire.MRPRegion, r.c.Size), make([]bool, r.c.Size)
	if v.w.mode == MRShared {
		// The lower half of the McstID belongs to this group alone, and so do the 256 keys
		// made of it.
		key := virtrnic.ChosenKeys | v.w.g.id&0xffff<<8 | uint32(v.index)
		v.Buffer, err = r.alloc(n, kind, func(nic *virtrnic.NIC, mem virtrnic.Memory) (*virtrnic.MR, error) {
			return nic.RegMRAs(r.pd, mem, bufferAccess, uint64(v.index+1)<<40, key)
		})
	} else {
		v.Buffer, err = r.Alloc(n, kind)
	}
	if err == nil {
		r.Put(v.w.key(fmt.Sprintf("window/%d", v.index), r.c.ID), region(v.Buffer))
	}
	return err
}

// region waits until a rank has published its part of the window and returns it.
func (v *Window) region(rank int) wire.MRPRegion {
	if !v.have[rank] {
		r := v.w.g.r
		if p := r.peer(rank); p != nil {
			v.regions[rank] = wire.MRPRegion{VA: p.VA, RKey: p.RKey}
		} else {
			v.regions[rank] = regionOf(r.get(v.w.key(fmt.Sprintf("window/%d", v.index), rank), v.w.why(rank)))
		}
		v.have[rank] = true
	}
	return v.regions[rank]
}

// NewWindow makes another window. All ranks must call it, with no WRITE outstanding in the
// group. It returns when all have the memory. In mode registered the previous windows can no
// longer be written to.
func (g *Group) NewWindow(n int, kind MemoryKind) (*Window, error) {
	w := g.write
	if w == nil {
		return nil, fmt.Errorf("%w: %s takes no WRITEs", ErrGroup, g.name)
	}
	v := &Window{w: w, index: len(w.windows)}
	if v.index == windowsMax {
		return nil, fmt.Errorf("%w: %s has %d windows", ErrGroup, g.name, windowsMax)
	}
	if err := v.alloc(n, kind); err != nil {
		return nil, fmt.Errorf("group %s: %w", g.name, err)
	}
	w.windows = append(w.windows, v)
	up := fmt.Sprintf("group/%s/window/%d/up", g.name, v.index)
	if !g.leads() {
		if msg := g.r.get(up, "leader of group "+g.name); len(msg) > 0 {
			return nil, fmt.Errorf("%w: %s", ErrGroup, msg)
		}
		return v, nil
	}
	for i := range g.r.c.Size {
		v.region(i)
	}
	var err error
	if w.mode == MRRegistered {
		err = g.update(v)
	}
	g.r.Put(up, []byte(errText(err)))
	return v, err
}

// update gives the leaf switches the address of the window.
func (g *Group) update(v *Window) (err error) {
	var members []wire.MRPRegion
	for i := range g.r.c.Size {
		if i != g.r.c.ID {
			members = append(members, v.region(i))
		}
	}
	g.r.c.Host.Do(func(now vtime.Time, _ *virtrnic.NIC, a *mrp.Agent) {
		err = a.Update(now, g.id, v.region(g.r.c.ID), members)
	})
	if err != nil {
		return err
	}
	return g.await(mrp.Active, "new regions of group "+g.name)
}

// Write starts to write n bytes of the buffer from off to offset at of the window of all other members.
// The request completes when all members have the data; the members get no completion. In mode
// per-request Write blocks while wire.MRVersionsMax WRITEs are outstanding.
func (g *Group) Write(v *Window, at int, b *Buffer, off, n int) (*Request, error) {
	return g.writeTo(v, at, virtrnic.SendWR{Opcode: virtrnic.WRRDMAWrite, SGE: b.sge(off, n)})
}

// WriteImm is Write that also completes a receive of each member, which must have one posted.
func (g *Group) WriteImm(v *Window, at int, b *Buffer, off, n int, imm uint32) (*Request, error) {
	return g.writeTo(v, at, virtrnic.SendWR{Opcode: virtrnic.WRRDMAWriteWithImm, SGE: b.sge(off, n), Imm: imm})
}

func (g *Group) writeTo(v *Window, at int, wr virtrnic.SendWR) (*Request, error) {
	w, r := g.write, g.r
	switch {
	case g.source != r.c.ID:
		return nil, fmt.Errorf("%w: rank %d is not the source of %s, rank %d is", ErrGroup, r.c.ID, g.name, g.source)
	case w == nil || v == nil || v.w != w:
		return nil, fmt.Errorf("%w: not a window of %s", ErrGroup, g.name)
	case w.mode == MRRegistered && v.index != len(w.windows)-1:
		return nil, fmt.Errorf("%w: window %d of %s was replaced", ErrGroup, v.index, g.name)
	case at < 0 || uint64(at)+uint64(wr.SGE.Length) > v.size:
		return nil, fmt.Errorf("%w: %d bytes at %d of a window of %d", ErrGroup, wr.SGE.Length, at, v.size)
	}
	r.spend(r.c.Params.Cost.Post)
	r.spend(r.c.Params.Cost.Stack)
	wr.RemoteAddr = uint64(at)
	q := &Request{to: g, send: true}
	switch w.mode {
	case MRShared:
		wr.RemoteAddr, wr.RKey = v.Addr()+uint64(at), v.RKey()
	case MRPerRequest:
		return w.announced(v, q, wr)
	}
	return r.postSend(q, g.qp, &wr)
}

// announced posts a WRITE after the announcement of its target. No other request may come
// between the two, so both are posted in one call.
func (w *writes) announced(v *Window, q *Request, wr virtrnic.SendWR) (*Request, error) {
	r := w.g.r
	size := wire.MRUpdateLen * r.c.Size
	if w.slots == nil {
		b, err := r.Alloc(size*wire.MRVersionsMax, MemoryBytes)
		if err != nil {
			return nil, fmt.Errorf("group %s: %w", w.g.name, err)
		}
		w.slots = b
	}
	slot := w.posted % wire.MRVersionsMax
	w.posted++
	if before := w.pending[slot]; before != nil {
		if err := r.await(before); err != nil {
			return nil, err
		}
	}
	w.pending[slot] = q
	text := w.slots.bytes[slot*size : slot*size]
	for i := range r.c.Size {
		if m := v.region(i); i != r.c.ID {
			text = wire.MRUpdate{IP: r.ip(i), RKey: m.RKey, VA: m.VA}.AppendTo(text)
		}
	}
	var err error
	r.c.Host.Do(func(now vtime.Time, nic *virtrnic.NIC, _ *mrp.Agent) {
		wr.WRID, wr.RKey = r.reqs.add(q), wire.MRAnnounced|uint32(w.g.qp.SQPSN())
		for off := 0; off < len(text) && err == nil; off += r.c.Params.MTU {
			// Nobody waits for this completion: if it fails, the WRITE fails too.
			err = nic.PostSend(now, w.g.qp, virtrnic.SendWR{
				Opcode: virtrnic.WRRDMAWrite, SGE: w.slots.sge(slot*size+off, min(r.c.Params.MTU, len(text)-off)), RemoteAddr: wire.MRUpdateVA,
			})
		}
		if err == nil {
			err = nic.PostSend(now, w.g.qp, wr)
		}
		if err != nil {
			r.reqs.take(wr.WRID)
		}
	})
	if err != nil {
		w.pending[slot] = nil
		return nil, fmt.Errorf("rank %d, %s: %w", r.c.ID, q.what(), err)
	}
	return q, nil
}

// free deregisters the group's memory.
func (w *writes) free() (err error) {
	all := []*Buffer{w.control, w.slots}
	for _, v := range w.windows {
		all = append(all, v.Buffer)
	}
	for _, b := range all {
		if b == nil || b.freed {
			continue
		}
		if e := b.Free(); err == nil {
			err = e
		}
	}
	return err
}
