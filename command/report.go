package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/report"
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
		name = filepath.Join(runs[0].Dir, "report.html")
	}
	if err := os.WriteFile(name, []byte(report.HTML(runs)), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Fprintln(p.out, name)
	return nil
}
