// SPDX-License-Identifier: Apache-2.0

package virtrnic

import "fmt"

// PD is a protection domain: a queue pair reaches only regions of its own domain.
type PD struct {
	nic         *NIC
	users       int // queue pairs, regions, address handles and shared receive queues that it has
	incarnation uint32
	gone        bool
}

// AllocPD returns a new protection domain.
func (n *NIC) AllocPD() *PD {
	n.made.PDs++
	return &PD{nic: n, incarnation: n.incarnation}
}

// belongsTo reports whether the domain exists and belongs to the NIC.
func (p *PD) belongsTo(n *NIC) bool {
	return p != nil && p.nic == n && p.incarnation == n.incarnation && !p.gone
}

// DeallocPD deallocates the domain, which must be empty.
func (n *NIC) DeallocPD(p *PD) error {
	switch {
	case !p.belongsTo(n):
		return fmt.Errorf("deallocate protection domain: %w", ErrInvalid)
	case p.users > 0:
		return fmt.Errorf("deallocate protection domain: %d objects are in it: %w", p.users, ErrBusy)
	}
	p.gone = true
	n.made.PDs--
	return nil
}

// MR is a registered memory region.
type MR struct {
	pd     *PD
	mem    Memory
	addr   uint64
	length uint64
	access AccessFlags
	key    uint32
	gone   bool // deregistered
	closed bool // a peer has invalidated the key: there is no remote access any more
}

// Addr returns the region's virtual address.
func (m *MR) Addr() uint64 { return m.addr }

// LKey returns the key for local use.
func (m *MR) LKey() uint32 { return m.key }

// RKey returns the key for remote use.
func (m *MR) RKey() uint32 { return m.key }

// RegMR registers all of mem at a virtual address of the NIC's choice. Remote write
// needs local write, as ibv_reg_mr has it.
func (n *NIC) RegMR(pd *PD, mem Memory, access AccessFlags) (*MR, error) {
	m, err := n.RegMRIova(pd, mem, access, n.nextVA)
	if err != nil {
		return nil, err
	}
	const page = 4096
	n.nextVA += (m.length + page) &^ (page - 1)
	return m, nil
}

// RegMRIova registers all of mem at a virtual address that the application chooses, as ibv_reg_mr_iova
// does. Regions may have the same addresses, since a key names the region. The caller makes sure that
// the region does not wrap.
func (n *NIC) RegMRIova(pd *PD, mem Memory, access AccessFlags, addr uint64) (*MR, error) {
	if err := n.checkMR(pd, mem, access); err != nil {
		return nil, err
	}
	key, ok := n.freeKey()
	if !ok {
		return nil, fmt.Errorf("register memory: %d regions and no key is left: %w", len(n.mrs), ErrNoMem)
	}
	m := &MR{pd: pd, mem: mem, addr: addr, length: mem.Size(), access: access, key: key}
	n.mrs[key>>8-1] = m
	n.made.MRs++
	pd.users++
	return m, nil
}

// ChosenKeys is the first of the keys that applications may choose.
const ChosenKeys uint32 = 0xff00_0000

// RegMRAs registers all of mem at a virtual address and with a key, from ChosenKeys up,
// that the application chooses. It is not a verb but the extension by which all receivers
// of a group have memory at the same address with the same key, so that no switch has to
// rewrite WRITEs to them (Gleam appendix C, GLE-13). The key must be free.
func (n *NIC) RegMRAs(pd *PD, mem Memory, access AccessFlags, addr uint64, key uint32) (*MR, error) {
	if err := n.checkMR(pd, mem, access); err != nil {
		return nil, err
	}
	switch {
	case key < ChosenKeys:
		return nil, fmt.Errorf("register memory: key %#x is below %#x: %w", key, ChosenKeys, ErrInvalid)
	case addr+mem.Size() < addr:
		return nil, fmt.Errorf("register memory: %d bytes at %#x wrap: %w", mem.Size(), addr, ErrInvalid)
	case n.chosen[key] != nil:
		return nil, fmt.Errorf("register memory: key %#x is taken: %w", key, ErrInvalid)
	case n.chosen == nil:
		n.chosen = map[uint32]*MR{}
	}
	m := &MR{pd: pd, mem: mem, addr: addr, length: mem.Size(), access: access, key: key}
	n.chosen[key] = m
	n.made.MRs++
	pd.users++
	return m, nil
}

// checkMR returns why memory cannot be registered.
func (n *NIC) checkMR(pd *PD, mem Memory, access AccessFlags) error {
	if !pd.belongsTo(n) {
		return fmt.Errorf("register memory: protection domain of another device: %w", ErrInvalid)
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return fmt.Errorf("register memory: remote write or atomic access without local write: %w", ErrInvalid)
	}
	if access&AccessRemoteAtomic != 0 {
		switch mem.(type) {
		case Bytes, *Guest:
		default:
			return fmt.Errorf("register memory: atomics need real memory: %w", ErrInvalid)
		}
	}
	return nil
}

// ReregMR gives a region another protection domain and other rights, as ibv_rereg_mr does, and returns the region that its keys name
// from now on. Keys, memory and address stay, and a key that a peer has invalidated works again. A WRITE that is under way
// ends as if the former region had been deregistered. An error, ErrKey or ErrInvalid, changes nothing.
func (n *NIC) ReregMR(m *MR, pd *PD, access AccessFlags) (*MR, error) {
	if m == nil || n.region(m.key) != m {
		return nil, fmt.Errorf("change memory region: %w", ErrKey)
	}
	if err := n.checkMR(pd, m.mem, access); err != nil {
		return nil, err
	}
	next := *m
	next.pd, next.access, next.closed = pd, access, false
	if m.key >= ChosenKeys {
		n.chosen[m.key] = &next
	} else {
		n.mrs[m.key>>8-1] = &next
	}
	m.gone, m.mem = true, nil
	m.pd.users--
	pd.users++
	return &next, nil
}

// DeregMR takes the region back: its keys no longer work.
func (n *NIC) DeregMR(m *MR) error {
	if m == nil || n.region(m.key) != m {
		return fmt.Errorf("deregister memory: %w", ErrKey)
	}
	n.forget(m)
	return nil
}

// forget takes a region out of the tables.
func (n *NIC) forget(m *MR) {
	if m.key >= ChosenKeys {
		delete(n.chosen, m.key)
	} else {
		n.mrs[m.key>>8-1] = nil
		n.freedKeys.Push(m.key)
	}
	m.gone = true
	m.mem = nil // a caller that still holds the region does not keep its memory
	m.pd.users--
	n.made.MRs--
}

// region returns the region with the key, or nil.
func (n *NIC) region(key uint32) *MR {
	i := key>>8 - 1
	if uint(i) >= uint(len(n.mrs)) {
		return n.chosenRegion(key)
	}
	m := n.mrs[i]
	if m != nil && m.key != key {
		m = nil
	}
	return m
}

// chosenRegion is not inlined: the code of a map access in every lookup costs each packet
// about 9 %.
//
//go:noinline
func (n *NIC) chosenRegion(key uint32) *MR { return n.chosen[key] }

// invalidate ends remote access by a key, which the peer has asked for by a SEND with
// invalidate, and reports whether the key could be invalidated. The region stays open for
// local use.
func (n *NIC) invalidate(pd *PD, key uint32) bool {
	m := n.region(key)
	if m == nil || m.pd != pd {
		return false
	}
	m.closed = true
	return true
}

const accessRemote = AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic

// lookup returns the region a key names and the offset of [va, va+length) in it, or
// nil if the key, the domain, the access or the range does not fit.
func (n *NIC) lookup(pd *PD, key uint32, va, length uint64, need AccessFlags) (m *MR, off uint64) {
	m = n.region(key)
	if m == nil || m.pd != pd || m.access&need != need {
		return nil, 0
	}
	if need&accessRemote != 0 && m.closed {
		return nil, 0
	}
	// The comparisons are written so that no sum can overflow.
	if va < m.addr || length > m.length || va-m.addr > m.length-length {
		return nil, 0
	}
	return m, va - m.addr
}
