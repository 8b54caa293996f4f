// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/watch"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// watchLab returns a source that shows a running lab.
func (p *program) watchLab(c *cli.Context) (watch.Source, error) {
	name, err := p.labName(c)
	if err != nil {
		return nil, err
	}
	open := func() (*watch.Up, error) {
		e, err := orchestrator.EngineOf(name, engines())
		if err != nil {
			return nil, err
		}
		d, err := orchestrator.Attach(name, orchestrator.Options{Engine: e})
		if err != nil {
			return nil, err
		}
		return &watch.Up{Name: name, Graph: d.Graph, Look: d.Look, Faults: liveFaults(d), Close: d.Close}, nil
	}
	up, err := open() // is it up at all, and may we?
	if err != nil {
		return nil, err
	}
	return watch.Lab(open), up.Close()
}

// liveFaults returns the faults of a running lab. While a node does not answer, it returns the last known ones.
func liveFaults(d *orchestrator.Deployed) func(ctx context.Context) ([]report.FilmFault, []bool) {
	var faults []report.FilmFault
	var on []bool
	return func(ctx context.Context) ([]report.FilmFault, []bool) {
		all, err := d.Faults(ctx)
		if err != nil {
			return faults, on
		}
		faults, on = nil, nil
		for _, f := range all {
			faults, on = append(faults, report.FilmFault{ID: f.Id, Kind: f.Kind, Text: f.Text}), append(on, f.On)
		}
		return faults, on
	}
}
