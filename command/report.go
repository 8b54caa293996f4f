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
		Name: name, Usage: "show runs as a page: pictures, tables, faults and counters", ArgsUsage: "RUN [RUN]...", OnUsageError: onUsage,
		Description: "RUN is a run's folder. The page is one file that needs no network and no script: report.html in the run's folder, or the file that -o names.\n" +
			"Several runs are set side by side, with what each takes over the first.",
		Flags: []cli.Flag{
			&cli.StringFlag{
				Name: "out", Aliases: []string{"o"}, Usage: "the file to write", DefaultText: "report.html in the first run's folder", EnvVars: envOf(name, "out"),
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
	name := c.String("out")
	if name == "" {
		name = filepath.Join(runs[0].Dir, pageName)
	}
	for _, r := range runs {
		p.unsealed(r.Dir)
		for _, what := range r.Missing() {
			p.say("%s: not shown: %s", r.Dir, what)
		}
	}
	if err := writePage(name, runs); err != nil {
		return err
	}
	fmt.Fprintln(p.out, name)
	return nil
}

// unsealed says which files of a run's folder are taken as they are.
func (p *program) unsealed(dir string) {
	if names := runner.Unsealed(dir); len(names) > 0 {
		p.say("%s: no checksum in %s: an older version wrote it, or it has been changed; it is taken as it is", dir, strings.Join(names, ", "))
	}
}

// pageName is the page in a run's folder.
const pageName = "report.html"

// writePage writes a page as a whole: whoever reads it sees the old one or the new one. What is there and is no
// file of its own, such as a pipe or /dev/stdout, is written to.
func writePage(name string, runs []*report.Run) error {
	next := name + ".tmp"
	if st, err := os.Lstat(name); err == nil && !st.Mode().IsRegular() {
		next = name
	}
	err := os.WriteFile(next, []byte(report.HTML(runs)), 0o644)
	if err == nil && next != name {
		err = os.Rename(next, name)
	}
	if err != nil {
		if next != name {
			_ = os.Remove(next) // it is not whole; what went wrong is said
		}
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// pageOf leaves the page of a run that has ended in its folder. What was measured is there without it: a run does not
// fail for its page.
func (p *program) pageOf(ended *runner.Report) {
	r, err := report.Ended(ended)
	if err == nil {
		err = ended.WriteFile(pageName, []byte(report.HTML([]*report.Run{r})))
	}
	if err != nil {
		p.say("%s has no %s: %v", ended.RunDir, pageName, err)
	}
}
