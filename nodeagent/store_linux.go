// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/live"
)

// openStore opens a store of this node, which survives the node.
func (n *node) openStore(host, volume string, limit int64) (s apps.Store, err error) {
	if n.data == "" {
		return nil, errors.New("this node has no folder for its data: deploy the lab again")
	}
	beside(n.host, func() { s, err = pebblestore.Folder(n.data).Open(host, volume, limit) })
	if err != nil {
		return nil, err
	}
	return &patientStore{n.host, s}, nil
}

// beside calls f while other tasks of the host, and its NIC, continue.
func beside(h *live.Host, f func()) {
	h.Await("its store", func() (vtime.Time, bool) {
		f()
		return vtime.Never, true
	})
}

// patientStore is a store whose calls let the host's other tasks run.
type patientStore struct {
	host *live.Host
	s    apps.Store
}

// Put implements apps.Store.
func (p *patientStore) Put(records []apps.Record) (err error) {
	beside(p.host, func() { err = p.s.Put(records) })
	return err
}

// Sync implements apps.Store.
func (p *patientStore) Sync() (err error) {
	beside(p.host, func() { err = p.s.Sync() })
	return err
}

// Each implements apps.Store.
func (p *patientStore) Each(f func(apps.Record) error) (err error) {
	beside(p.host, func() { err = p.s.Each(f) })
	return err
}

// Get implements apps.Store.
func (p *patientStore) Get(block uint32) (r apps.Record, err error) {
	beside(p.host, func() { r, err = p.s.Get(block) })
	return r, err
}

// Crash implements apps.Store.
func (p *patientStore) Crash() { beside(p.host, p.s.Crash) }

// Close implements apps.Store.
func (p *patientStore) Close() (err error) {
	beside(p.host, func() { err = p.s.Close() })
	return err
}
