//go:build !linux

package command

import (
	"errors"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
)

func (p *program) liveCommands() []*cli.Command { return nil }

// runLive needs network namespaces and raw sockets.
func (p *program) runLive(*cli.Context, *lab.Lab, runner.Progress, int64, []faults.Act) (*runner.Report, error) {
	return nil, errors.New("running labs need Linux; this system has the runtime sim")
}

// liveValues and liveArguments are of labs that are up.
func (*completing) liveValues(string) []string { return nil }

func (*completing) liveArguments() []string { return nil }
