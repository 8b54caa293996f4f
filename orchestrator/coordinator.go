//go:build linux

package orchestrator

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Coordinator makes the coordinator of a run in virtual time, of which servers beside this one hand their nodes the memory.
func (d *Deployed) Coordinator(ctx context.Context, cfg *sim.Config) (*lockstep.Coordinator, error) {
	if d.spread == nil {
		return lockstep.NewCoordinator(cfg)
	}
	all := make([]*lockstep.Machine, len(d.spread.Machines))
	err := d.eachMachine(func(i int, m *engine.Machine) error {
		c, err := d.CallShare(ctx, m, shareapi.Request{Do: shareapi.Steps})
		if err == nil {
			all[i] = lockstep.NewMachine(m.String(), c)
		}
		return err
	})
	if err != nil {
		for _, m := range all {
			if m != nil {
				err = errors.Join(err, m.Close())
			}
		}
		return nil, err
	}
	return lockstep.NewSpread(cfg, all, d.spread.At)
}

// HandOver hands the nodes the memory of a run, unless their servers have.
func (d *Deployed) HandOver(c *lockstep.Coordinator) error {
	if d.spread != nil {
		return nil
	}
	return c.HandOver(d.handMemory)
}

// TagKey returns a key of frames' tags for a run of a lab over machines, whose network others may reach; nil for another.
func (d *Deployed) TagKey() []byte {
	if d.spread == nil {
		return nil
	}
	key := make([]byte, lockstep.TagKey)
	_, _ = rand.Read(key) // it never fails
	return key
}

// OnOneServer reports whether all nodes of the lab are on this server.
func (d *Deployed) OnOneServer() bool { return d.spread == nil }
