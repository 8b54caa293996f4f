// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	rankprogram "github.com/mcastlab/mcastlab/apps/program"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/examples"
)

// labSuffix ends the names of lab files.
const labSuffix = ".mcl.yml"

// labText is the help text about an argument that names a lab.
const labText = "LAB is a lab file, a folder that holds one, or - for standard input; without it, the one in this folder."

// labArg reads the lab named on the command line: a file, a folder with one lab file,
// - for standard input, or, if nothing is named, the one in the working directory.
func (p *program) labArg(c *cli.Context) (*lab.Lab, error) {
	l, _, err := p.readLab(c, lab.Reader{})
	return l, err
}

// labToRun is labArg for a lab whose programs this binary must have. It prints the lab's warnings, and returns the
// points of its sweep, too.
func (p *program) labToRun(c *cli.Context) (*lab.Lab, []lab.Point, error) {
	l, points, err := p.readLab(c, lab.Reader{
		Programs: rankprogram.Names(p.hooks.programs), Broadcasts: rankprogram.Broadcasts(p.hooks.programs), Expect: true,
	})
	if err != nil || c.Bool("quiet") {
		return l, points, err
	}
	for _, w := range l.Warnings() {
		fmt.Fprintf(p.errOut, "warning: %s\n", w)
	}
	return l, points, nil
}

// sweptLab is a lab and the points of its sweep.
type sweptLab struct {
	*lab.Lab
	points []lab.Point
}

func (p *program) readLab(c *cli.Context, r lab.Reader) (*lab.Lab, []lab.Point, error) {
	l, err := p.readSwept(c, r)
	return l.Lab, l.points, err
}

func (p *program) readSwept(c *cli.Context, r lab.Reader) (l sweptLab, err error) {
	if c.Args().Len() > 1 {
		return l, usageError{fmt.Errorf("%s takes one lab file, not %d", c.Command.Name, c.Args().Len())}
	}
	name := c.Args().First()
	if example := c.String("example"); example != "" {
		if name != "" {
			return l, usageError{fmt.Errorf("%s takes a lab file or --example, not both", verbOf(c))}
		}
		l.Lab, l.points, err = examples.Read(r, example)
		if unknown := (*examples.UnknownError)(nil); errors.As(err, &unknown) {
			err = usageError{err}
		}
		return l, err
	}
	if name == "-" {
		return answered(c.Context, answerWithin, func() (l sweptLab, err error) {
			text, err := io.ReadAll(io.LimitReader(p.in, 2<<20))
			if err != nil {
				return l, fmt.Errorf("read lab from standard input: %w", err)
			}
			l.Lab, l.points, err = r.ParsePoints("standard input", text)
			return l, err
		})
	}
	if name == "" {
		name = "."
	}
	file, err := findLab(name)
	if err != nil {
		return l, err
	}
	if file != name && !c.Bool("quiet") {
		p.say("lab file: %s", file)
	}
	return answered(c.Context, answerWithin, func() (l sweptLab, err error) {
		l.Lab, l.points, err = r.ReadPoints(file)
		return l, err
	})
}

// findLab returns the lab file that a path means.
func findLab(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", noLabFile(name)
	case err != nil:
		return "", fmt.Errorf("read lab: %w", err)
	case !info.IsDir():
		return name, nil
	}
	found, err := filepath.Glob(filepath.Join(name, "*"+labSuffix))
	switch {
	case err != nil:
		return "", fmt.Errorf("read lab: %w", err)
	case len(found) == 0:
		return "", usageError{fmt.Errorf("there is no *%s in %s: name a lab file, or run an example: mcastlab run --example quickstart", labSuffix, name)}
	case len(found) > 1:
		return "", usageError{fmt.Errorf("%s holds %d lab files: name one of %s", name, len(found), strings.Join(found, ", "))}
	}
	return found[0], nil
}

// exampleFlag is the flag of commands that read a lab.
func exampleFlag(command string) cli.Flag {
	return &cli.StringFlag{
		Name: "example", EnvVars: envOf(command, "example"),
		Usage: "use a built-in lab in place of LAB: " + strings.Join(examples.Names(), ", "),
	}
}

// envOf gives a flag of a command its environment variable.
func envOf(command, flag string) []string {
	return []string{"MCASTLAB_" + strings.ToUpper(strings.ReplaceAll(command+"_"+flag, "-", "_"))}
}

// withoutCancel returns a context that an interrupt does not end: cleanup continues to its end.
func withoutCancel(c *cli.Context) context.Context { return context.WithoutCancel(c.Context) }
