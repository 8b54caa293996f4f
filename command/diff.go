// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/runner"
)

func (p *program) diffCommand() *cli.Command {
	const name = "diff"
	return &cli.Command{
		Name: name, Usage: "compare two runs of a lab", ArgsUsage: "RUN RUN", OnUsageError: onUsage,
		Description: "RUN is a run's folder: mcastlab diff runs/star-1 runs/star-2. Exit code 1 says that they part: other rows, other bytes, another order of\n" +
			"the schemes, or from 1MiB on ratios between schemes that differ by more than 10 %.",
		Flags: []cli.Flag{formatFlag(name)},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 2 {
				return usageError{fmt.Errorf("diff takes two run folders, not %d", c.Args().Len())}
			}
			if err := oneOf(c, "format", "table", "json"); err != nil {
				return err
			}
			if err := cmp.Or(runFolder(c.Args().Get(0)), runFolder(c.Args().Get(1))); err != nil {
				return err
			}
			d, err := runner.Compare(c.Args().Get(0), c.Args().Get(1))
			if err != nil {
				return err
			}
			for _, dir := range c.Args().Slice() {
				p.unsealed(dir)
			}
			if c.String("format") == "json" {
				err = writeJSON(p.out, d)
			} else {
				err = d.WriteTable(p.out)
			}
			if err == nil && len(d.Parts) > 0 {
				err = failedError{errors.New("the runs differ: " + strings.Join(d.Parts, "; "))}
			}
			return err
		},
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
