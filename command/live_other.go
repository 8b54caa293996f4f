// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package command

import (
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/lab/watch"
)

func (p *program) liveCommands() []*cli.Command { return nil }

// runLive needs network namespaces and raw sockets.
func (p *program) runLive(*cli.Context, *lab.Lab, runner.Progress, int64, []faults.Act) (*runner.Report, error) {
	return nil, errors.New("running labs need Linux; this system has the runtime sim")
}

// liveValues and liveArguments are of labs that are up.
func (*completing) liveValues(string) []string { return nil }

func (*completing) liveArguments() []string { return nil }

// watchLab needs a running lab.
func (p *program) watchLab(c *cli.Context) (watch.Source, error) {
	return nil, usageError{fmt.Errorf("watch needs the folder of a run, such as runs/quickstart-1, and %q is none: labs that are up need Linux", c.Args().First())}
}
