// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// reregMR changes a region: its memory, its protection domain, its rights, or several at once. Other memory has another key, so that no
// request with the former key reaches it; the key stays if the memory does. An error leaves the region as it was. When it
// returns, nothing is written to the former memory any more.
func (c *client) reregMR(m *reregMR) (key uint32, err error) {
	if m.Flags == 0 || m.Flags >= reregEnd {
		return 0, fmt.Errorf("change region %#x: flags %#x: %w", m.ID, m.Flags, unix.EINVAL)
	}
	if m.Flags&reregMemory == 0 {
		err = unix.EIO // the loop has ended
		c.s.call(func(vtime.Time) {
			var old, changed *region
			if old, changed, err = c.changed(m); err == nil {
				err = c.reregRights(old, changed)
			}
		})
		return m.ID, err
	}
	if m.Addr+m.Length < m.Addr {
		return 0, fmt.Errorf("change region %#x: %d bytes at %#x wrap: %w", m.ID, m.Length, m.Addr, unix.EINVAL)
	}
	if err := c.probe(m.Addr, m.Length); err != nil {
		return 0, err
	}
	image, err := c.takeImage(m.Length)
	if err != nil {
		return 0, err
	}
	var old, next *region
	err = unix.EIO
	c.s.call(func(vtime.Time) {
		if old, next, err = c.changed(m); err != nil {
			return
		}
		next.image = image
		if key, err = c.enterMR(next); err == nil {
			c.forgetMR(m.ID)
		}
	})
	if err != nil {
		c.dropImage(&region{image: image})
		return 0, err
	}
	if c.ask(func() {}) {
		c.dropImage(old)
	}
	return key, nil
}

// changed returns a region of the program, and its changed form, without memory of the NIC's. It is called with the loop's lock.
func (c *client) changed(m *reregMR) (old, next *region, err error) {
	old = c.s.regions[m.ID]
	if old == nil || c.s.owners[m.ID] != c {
		return nil, nil, fmt.Errorf("change region %#x: %w", m.ID, virtrnic.ErrKey)
	}
	next = &region{pd: old.pd, access: old.access, iova: m.Addr, addr: m.Addr}
	if m.Flags&reregPD != 0 {
		next.pd = c.pds[m.PD]
	}
	if m.Flags&reregAccess != 0 {
		next.access = virtrnic.AccessFlags(m.Access & 15)
	}
	return old, next, nil
}

// reregRights gives a region the domain and the rights of another. It is called with the loop's lock.
func (c *client) reregRights(r, to *region) error {
	if r.mr == nil {
		return fmt.Errorf("change the rights of a region whose memory is gone: %w", unix.EFAULT)
	}
	mr, err := c.s.nic.ReregMR(r.mr, to.pd, to.access)
	if err != nil {
		return err
	}
	r.mr, r.pd, r.access = mr, to.pd, to.access
	return nil
}
