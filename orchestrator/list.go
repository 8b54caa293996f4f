// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// LabInfo is a lab of which anything exists.
type LabInfo struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	State   string `json:"state"` // up, deploying, destroying, or stray: nodes without a folder
	Nodes   int    `json:"nodes"` // that run
	Since   string `json:"since"`
}

// List returns the labs of this host, by name.
func List(ctx context.Context, engines []engine.Engine) ([]LabInfo, error) {
	byName := map[string]LabInfo{}
	dirs, err := os.ReadDir(StateDir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("list labs: %w", NeedRoot(err))
	}
	for _, d := range dirs {
		s, err := StoreOf(d.Name())
		if err != nil {
			continue // no lab's
		}
		st, ok, err := s.Get()
		if err != nil {
			return nil, err
		}
		i := LabInfo{Name: d.Name(), State: phaseDeploying}
		if ok {
			i.Runtime, i.State, i.Since = st.Engine, st.Phase, st.Since.Format(time.RFC3339)
		}
		byName[d.Name()] = i
	}
	for _, e := range engines {
		names, err := e.Labs(ctx)
		if errors.Is(err, engine.ErrUnavailable) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			found, err := e.Find(ctx, name)
			if err != nil {
				return nil, err
			}
			i, ok := byName[name]
			if !ok {
				i = LabInfo{Name: name, Runtime: e.Name(), State: "stray"}
			}
			i.Nodes += len(found)
			byName[name] = i
		}
	}
	labs := make([]LabInfo, 0, len(byName))
	for _, i := range byName { // sorted below
		labs = append(labs, i)
	}
	slices.SortFunc(labs, func(a, b LabInfo) int { return strings.Compare(a.Name, b.Name) })
	return labs, nil
}

// EngineOf returns the engine a lab is up under.
func EngineOf(name string, engines []engine.Engine) (engine.Engine, error) {
	s, err := StoreOf(name)
	if err != nil {
		return nil, err
	}
	st, ok, err := s.Get()
	if err != nil {
		return nil, err
	}
	if ok {
		for _, e := range engines {
			if e.Name() == st.Engine {
				return e, nil
			}
		}
	}
	return nil, fmt.Errorf("lab %s is not up: mcastlab deploy it first", name)
}
