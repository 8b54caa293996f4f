// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/mcastlab/mcastlab/drivers/lockstep"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Coordinator makes the coordinator of a run in virtual time. Each server hands its nodes their memory.
func (s *serverNodes) Coordinator(ctx context.Context, cfg *sim.Config) (*lockstep.Coordinator, error) {
	all := make([]*lockstep.Server, len(s.placement.Servers))
	err := s.eachServer(func(i int, m *engine.Server) error {
		c, err := s.callShare(ctx, m, &shareapi.Open{Stream: shareapi.Stream_STREAM_STEPS})
		if err == nil {
			all[i] = lockstep.NewServer(m.String(), c)
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
	return lockstep.NewSpread(cfg, all, s.placement.At)
}

// HandOver does nothing: the servers have handed over the memory.
func (s *serverNodes) HandOver(*lockstep.Coordinator) error { return nil }

// TagKey returns a key of frames' tags: others may reach the network between servers.
func (s *serverNodes) TagKey() []byte {
	key := make([]byte, lockstep.TagKey)
	_, _ = rand.Read(key) // it never fails
	return key
}
