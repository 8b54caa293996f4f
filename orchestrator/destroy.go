// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Destroy removes everything of a lab, whatever its state and under whichever engine. existed
// tells whether there was anything.
func Destroy(ctx context.Context, name string, engines []engine.Engine) (existed bool, err error) {
	s, err := StoreOf(name)
	if err != nil {
		return false, err
	}
	_, statErr := os.Stat(s.Dir)
	existed = statErr == nil
	var there []engine.Engine
	for _, e := range engines {
		if _, ok := e.(engine.Spread); ok { // what is elsewhere is known here by the lab's folder
			there = append(there, e)
			continue
		}
		found, err := e.Find(ctx, name)
		if errors.Is(err, engine.ErrUnavailable) && !s.under(e) {
			continue // it holds nothing of this lab
		}
		if err != nil {
			return existed, err
		}
		there = append(there, e)
		labs, err := e.Labs(ctx)
		if err != nil {
			return existed, err
		}
		existed = existed || len(found) > 0 || slices.Contains(labs, name)
	}
	if !existed {
		_ = os.Remove(StateDir) // empty if a deployment was killed right after making it
		return false, nil
	}
	if err := s.open(nil); err != nil {
		return true, err
	}
	engines = there
	return true, errors.Join(remove(ctx, s, engines), s.close())
}

// lateNodes is the time limit for an engine to start a node that a deployment had requested before
// it was killed.
const lateNodes = 500 * time.Millisecond

// removeLate removes nodes that appear after all others have been removed.
func removeLate(ctx context.Context, lab string, engines []engine.Engine) error {
	for until := time.Now().Add(lateNodes); time.Now().Before(until); {
		for _, e := range engines {
			found, err := e.Find(ctx, lab)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				continue
			}
			if err := e.Remove(ctx, lab); err != nil {
				return err
			}
			until = time.Now().Add(lateNodes)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lateNodes / 5):
		}
	}
	return nil
}

// remove removes a lab's nodes, with which its links go, and then its folder. It needs no room on a disk: the
// record that a destroy has begun only helps the next command if this one dies.
func remove(ctx context.Context, s *Store, engines []engine.Engine) error {
	late := false
	var recorded error
	if st, ok, err := s.Get(); err == nil && ok {
		late = st.Phase == phaseDeploying
		st.Phase = phaseDestroying
		recorded = s.put(st)
	}
	if err := removeNodes(ctx, s, engines, late); err != nil {
		return errors.Join(err, recorded)
	}
	return nil
}

func removeNodes(ctx context.Context, s *Store, engines []engine.Engine, late bool) error {
	for _, e := range engines {
		if err := failpoint.At("remove nodes", func() error { return e.Remove(ctx, s.lab) }); err != nil {
			return err
		}
	}
	if late {
		if err := removeLate(ctx, s.lab, engines); err != nil {
			return err
		}
	}
	return s.Remove()
}
