// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/lab/examples"
)

// meant returns the question whether another word was meant, or an empty string if none is spelt almost like it.
func meant(got string, words []string) string {
	if near := setting.Near(got, words); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	return ""
}

// noCommand is the error of a command that does not exist: words up to and with the one that is unknown.
func noCommand(words []string, commands []*cli.Command) error {
	var names []string
	for _, c := range commands {
		if !c.Hidden {
			names = append(names, c.Names()...)
		}
	}
	hint := meant(words[len(words)-1], names)
	if hint == "" {
		hint = ": see mcastlab help"
	}
	return usageError{fmt.Errorf("no command %q%s", strings.Join(words, " "), hint)}
}

// flagNames returns the names of a command's flags, as they are written.
func flagNames(c *cli.Command) (names []string) {
	for _, f := range c.Flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				names = append(names, "--"+n)
			}
		}
	}
	return names
}

// noFlag begins the flag package's error for a flag that a command does not have.
const noFlag = "flag provided but not defined: -"

func onUsage(c *cli.Context, err error, _ bool) error {
	if name, ok := strings.CutPrefix(err.Error(), noFlag); ok {
		verb := cmd(c)
		err = fmt.Errorf("%s has no flag --%s%s", verb, name, meant("--"+name, flagNames(c.Command)))
	}
	return usageError{fmt.Errorf("%w: see %s --help", err, c.Command.HelpName)}
}

// cmd returns what a user calls a command; the program itself is mcastlab.
func cmd(c *cli.Context) string {
	if verb := verbOf(c); verb != "" {
		return verb
	}
	return "mcastlab"
}

// alike are flags that are accepted for one another: a command has one of two.
var alike = map[string]string{"node": "nodes", "nodes": "node", "link": "links", "links": "link", "controllers": "controller"}

// sameFlag returns the flag of a command that a name means: node where it has no flag nodes.
func sameFlag(c *cli.Command, name string) string {
	if other := alike[name]; other != "" && !hasFlag(c, name) && hasFlag(c, other) {
		return other
	}
	return name
}

func hasFlag(c *cli.Command, name string) bool {
	return slices.ContainsFunc(c.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// namesLab reports whether --lab NAME stands for the argument of a command, which is a lab.
func namesLab(c *cli.Command, flag string) bool {
	return (flag == "lab" || flag == "l") && !hasFlag(c, flag) && strings.Contains(c.ArgsUsage, "LAB")
}

// noLabFile is the error of a lab file that does not exist.
func noLabFile(name string) error {
	found, _ := filepath.Glob(filepath.Join(filepath.Dir(name), "*"+labSuffix)) // the pattern is valid
	if near := setting.Near(name, found); near != "" {
		return usageError{fmt.Errorf("%s: no such lab file, did you mean %s?", name, near)}
	}
	if example, ok := strings.CutSuffix(filepath.Base(name), labSuffix); ok && slices.Contains(examples.Names(), example) {
		return usageError{fmt.Errorf("%s: no such lab file; mcastlab has this lab built in: --example %s", name, example)}
	}
	return usageError{fmt.Errorf("%s: no such lab file", name)}
}

// exists reports whether there is a file or folder of that name.
func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
