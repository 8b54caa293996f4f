package virtrnic

import "fmt"

// PD is a protection domain: a queue pair reaches only regions of its own.
type PD struct{ nic *NIC }

// AllocPD returns a new protection domain.
func (n *NIC) AllocPD() *PD { return &PD{n} }

// MR is a registered memory region.
type MR struct {
	pd     *PD
	mem    Memory
	addr   uint64
	length uint64
	access AccessFlags
	key    uint32
	gone   bool // deregistered
	closed bool // a peer took the key back: no remote access any more
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
	if pd == nil || pd.nic != n {
		return nil, fmt.Errorf("register memory: protection domain of another device: %w", ErrInvalid)
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return nil, fmt.Errorf("register memory: remote write or atomic access without local write: %w", ErrInvalid)
	}
	if _, real := mem.(Bytes); access&AccessRemoteAtomic != 0 && !real {
		return nil, fmt.Errorf("register memory: atomics need real memory: %w", ErrInvalid)
	}
	const page = 4096
	m := &MR{pd: pd, mem: mem, addr: n.nextVA, length: mem.Size(), access: access}
	n.nextVA += (m.length + page) &^ (page - 1)
	// As in rxe: the table index in the upper 24 bits, 8 random bits below.
	m.key = uint32(len(n.mrs)+1)<<8 | uint32(n.keys.Uint64()&0xff)
	n.mrs = append(n.mrs, m)
	return m, nil
}

// DeregMR takes the region back: its keys no longer work.
func (n *NIC) DeregMR(m *MR) error {
	i := int(m.key>>8) - 1
	if i < 0 || i >= len(n.mrs) || n.mrs[i] != m {
		return fmt.Errorf("deregister memory: %w", ErrKey)
	}
	n.mrs[i] = nil
	m.gone = true
	return nil
}

// invalidate takes a key back for the peer, who sent it with invalidate. The region
// stays open for local use.
func (n *NIC) invalidate(pd *PD, key uint32) bool {
	i := int(key>>8) - 1
	if i < 0 || i >= len(n.mrs) || n.mrs[i] == nil || n.mrs[i].key != key || n.mrs[i].pd != pd {
		return false
	}
	n.mrs[i].closed = true
	return true
}

const accessRemote = AccessRemoteRead | AccessRemoteWrite | AccessRemoteAtomic

// lookup returns the region a key names and the offset of [va, va+length) in it, or
// nil if the key, the domain, the access or the range does not fit.
func (n *NIC) lookup(pd *PD, key uint32, va, length uint64, need AccessFlags) (m *MR, off uint64) {
	i := int(key>>8) - 1
	if i < 0 || i >= len(n.mrs) {
		return nil, 0
	}
	m = n.mrs[i]
	if m == nil || m.key != key || m.pd != pd || m.access&need != need {
		return nil, 0
	}
	if need&accessRemote != 0 && m.closed {
		return nil, 0
	}
	// Written so that no sum can overflow.
	if va < m.addr || length > m.length || va-m.addr > m.length-length {
		return nil, 0
	}
	return m, va - m.addr
}
