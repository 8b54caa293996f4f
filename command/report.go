// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/report"
	"github.com/mcastlab/mcastlab/lab/runner"
)

func (p *program) reportCommand() *cli.Command {
	const name = "report"
	return &cli.Command{
		Name: name, Usage: "write a page of runs: pictures, tables, faults and counters", ArgsUsage: "RUN [RUN]...", OnUsageError: onUsage,
		Description: "RUN is a run's folder. The page is one file that needs no network and no script: report.html in the run's folder, or the file that -o names.\n" +
			"Several runs are set side by side, with what each takes over the first.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "out", Aliases: []string{"o"}, Usage: "file to write", DefaultText: "report.html in the first run's folder", EnvVars: envOf(name, "out"),
			},
		},
		Action: p.reportAction,
	}
}

func (p *program) reportAction(c *cli.Context) error {
	if !c.Args().Present() {
		return usageError{errors.New("report needs the folder of a run, such as runs/quickstart-1")}
	}
	var runs []*report.Run
	for _, dir := range c.Args().Slice() {
		if err := runFolder(dir); err != nil {
			return err
		}
		r, err := report.Read(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return usageError{fmt.Errorf("%s is no folder of a run: it has no meta.json", dir)}
		}
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	name, write := c.String("out"), writePage
	if name == "" { // the folder may be another user's: no link in it is followed
		name, write = filepath.Join(runs[0].Dir, pageName), runner.WriteFile
	}
	for _, r := range runs {
		p.unsealed(r.Dir)
		for _, what := range r.Missing() {
			p.say("%s: not shown: %s", r.Dir, what)
		}
	}
	if err := write(name, []byte(report.HTML(runs))); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintln(p.out, name)
	return nil
}

// unsealed reports the files of a run's directory that are read without a check.
func (p *program) unsealed(dir string) {
	if names := runner.Unsealed(dir); len(names) > 0 {
		p.say("%s: no checksum in %s: an older version wrote it, or it has been changed; it is taken as it is", dir, strings.Join(names, ", "))
	}
}

// pageName is the page in a run's folder.
const pageName = "report.html"

// writePage writes a page as a whole: a reader sees the old page or the new one. It writes to a file that is not
// regular, such as a pipe or /dev/stdout, in place.
func writePage(name string, page []byte) error {
	if st, err := os.Lstat(name); err == nil && !st.Mode().IsRegular() {
		return os.WriteFile(name, page, 0o644)
	}
	return runner.WriteFile(name, page)
}

// pageOf leaves the page of a run that has ended in its folder, beside the run without faults unless that is nil. What was measured is there
// without it: a run does not fail for its page.
func (p *program) pageOf(ended, without *runner.Report) {
	var runs []*report.Run
	err := error(nil)
	for _, x := range []*runner.Report{without, ended} {
		if x == nil || err != nil {
			continue
		}
		var r *report.Run
		if r, err = report.Ended(x); err == nil {
			runs = append(runs, r)
		}
	}
	if err == nil {
		err = ended.WriteFile(pageName, []byte(report.HTML(runs)))
	}
	if err != nil {
		p.say("%s has no %s: %v", ended.RunDir, pageName, err)
	}
}
