// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/watch"
)

func (p *program) watchCommand() *cli.Command {
	const name = "watch"
	return &cli.Command{
		Name: name, Usage: "show a running lab, or a run, in a browser", ArgsUsage: "[LAB|RUN]", OnUsageError: onUsage,
		Description: "RUN is the folder of a run that has ended or is under way. It prints an address of this server, to open in a browser, and runs until\n" +
			"it is interrupted. Who has the address, with its token, sees what the page shows. docs/watch.md has more.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:0", EnvVars: envOf(name, "addr"), Usage: "ADDRESS:PORT of the loopback; port 0: any that is free"},
		},
		Action: p.watchAction,
	}
}

func (p *program) watchAction(c *cli.Context) error {
	at, err := watch.Loopback(c.String("addr"))
	if err != nil {
		return usageError{err}
	}
	source, err := p.watchSource(c)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return fmt.Errorf("serve the page: %w: choose another --addr", err)
	}
	token := watch.NewToken()
	fmt.Fprintf(p.out, "http://%v/#%s\n", l.Addr(), token)
	return watch.Serve(c.Context, l, token, source)
}

// watchSource returns the source to show: a run, if the argument is a directory of a run, else a running lab.
func (p *program) watchSource(c *cli.Context) (watch.Source, error) {
	if c.Args().Len() > 1 {
		return nil, usageError{errors.New("watch takes one lab or one run's folder")}
	}
	dir := c.Args().First()
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); dir == "" || errors.Is(err, fs.ErrNotExist) {
		return p.watchLab(c)
	}
	if err := report.Filmable(dir); err != nil { // can it be shown at all?
		return nil, err
	}
	return watch.Run(dir), nil
}
