// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Verbs whose arguments arrange treats specially.
const (
	execVerb = "exec"
	mpiVerb  = "mpirun"
	helpVerb = "help"
)

// arrange puts the flags of a verb before its arguments, where the flag package looks for
// them: people write them on either side. It also notes which flags the command line has.
func (p *program) arrange(app *cli.App, args []string) ([]string, error) {
	if len(args) < 2 {
		return args, nil
	}
	switch args[1] {
	case "--version", "-v":
		return append([]string{args[0], "version"}, args[2:]...), nil
	case "--help", "-h": // the library has no such flag where help is a verb
		args = append([]string{args[0], helpVerb}, args[2:]...)
	}
	c := app.Command(args[1])
	switch {
	case c == nil:
		return args, nil
	case c.Name == helpVerb && len(args) > 2 && !strings.HasPrefix(args[2], "-"):
		return helpArgs(app, args[0], args[2:])
	}
	path := slices.Clone(args[:2])
	var flags, rest []string
	for i := 2; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if a != "-" && strings.HasPrefix(a, "-") {
			name, value, whole := strings.Cut(strings.TrimLeft(a, "-"), "=")
			if namesLab(c, name) && (whole || i+1 < len(args)) {
				if !whole {
					i++
					value = args[i]
				}
				rest = append(rest, value)
				continue
			}
			if other := sameFlag(c, name); other != name {
				a, name = strings.Replace(a, name, other, 1), other
			}
			flags = append(flags, a)
			p.given = append(p.given, name)
			if !whole && takesValue(c, name) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
			continue
		}
		if a == helpVerb && len(c.Subcommands) > 0 && len(rest) == 0 {
			return helpArgs(app, args[0], append(path[1:], args[i+1:]...))
		}
		if sub := c.Command(a); sub != nil && len(rest) == 0 {
			c, path = sub, append(path, a)
			continue
		}
		if runsProgram(c.Name) { // what follows is the program's
			rest = append(rest, args[i:]...)
			break
		}
		rest = append(rest, a)
	}
	out := append(path, flags...)
	if len(rest) > 0 {
		out = append(append(out, "--"), rest...)
	}
	return out, nil
}

// runsProgram reports whether what follows the flags of a command is a program and its arguments.
func runsProgram(verb string) bool { return verb == execVerb || verb == mpiVerb }

// takesValue reports whether a flag of the command, or of one of its subcommands, is followed
// by its value when it is written without =.
func takesValue(c *cli.Command, name string) bool {
	for _, f := range c.Flags {
		if _, is := f.(*cli.BoolFlag); !is && slices.Contains(f.Names(), name) {
			return true
		}
	}
	return slices.ContainsFunc(c.Subcommands, func(s *cli.Command) bool { return takesValue(s, name) })
}

// onLine returns the first of the flags that the command line has, or nothing. A flag that only
// an environment variable sets is a default and not on the line.
func (p *program) onLine(names ...string) string {
	for _, n := range names {
		if slices.Contains(p.given, n) {
			return n
		}
	}
	return ""
}

// refuse returns an error if the command line has one of the flags, which would have no effect.
func (p *program) refuse(why string, names ...string) error {
	if n := p.onLine(names...); n != "" {
		return usageError{fmt.Errorf("--%s %s", n, why)}
	}
	return nil
}

// required returns an error if one of the flags is neither on the command line nor in the
// environment.
func required(c *cli.Context, names ...string) error {
	for _, n := range names {
		if !c.IsSet(n) {
			return usageError{fmt.Errorf("%s needs --%s: see %s --help", verbOf(c), n, c.Command.HelpName)}
		}
	}
	return nil
}

// verbOf returns what a user calls a command: fault add.
func verbOf(c *cli.Context) string {
	_, verb, _ := strings.Cut(c.Command.HelpName, " ")
	return verb
}

// oneArg returns an error unless the command has one argument.
func oneArg(c *cli.Context, what string) error {
	if n := c.Args().Len(); n != 1 {
		return usageError{fmt.Errorf("%s takes %s, not %d arguments", verbOf(c), what, n)}
	}
	return nil
}

// oneOf returns an error unless the flag has one of the values.
func oneOf(c *cli.Context, flag string, values ...string) error {
	v := c.String(flag)
	if slices.Contains(values, v) {
		return nil
	}
	last := len(values) - 1
	return usageError{fmt.Errorf("no %s %q: use %s or %s", flag, v, strings.Join(values[:last], ", "), values[last])}
}

// helpArgs turns help fault add into fault add --help.
func helpArgs(app *cli.App, name string, words []string) ([]string, error) {
	commands := app.Commands
	for i, w := range words {
		at := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(w) })
		if at < 0 {
			return nil, noCommand(words[:i+1], commands)
		}
		commands = commands[at].Subcommands
	}
	return append(append([]string{name}, words...), "--help"), nil
}

// helpCommand is the verb help. With an argument arrange makes it a flag.
func (p *program) helpCommand() *cli.Command {
	return &cli.Command{
		Name: helpVerb, Aliases: []string{"h"}, Usage: "list the commands, or print the help of one", ArgsUsage: "[COMMAND [SUBCOMMAND]]", OnUsageError: onUsage,
		Action: func(c *cli.Context) error { return cli.ShowAppHelp(c) },
	}
}

// dress gives commands what all of them have: help by a flag and by the verb help, and not by an
// argument, which may name a lab, a run or a node.
func dress(commands []*cli.Command, above string) {
	for _, c := range commands {
		c.HideHelpCommand = true
		c.CustomHelpTemplate = cli.CommandHelpTemplate
		if len(c.Subcommands) > 0 {
			c.CustomHelpTemplate = cli.SubcommandHelpTemplate
		}
		for _, f := range c.Flags {
			if b, is := f.(*cli.BoolFlag); is {
				b.DisableDefaultText = true
			}
		}
		dress(c.Subcommands, above+" "+c.Name)
		for _, s := range c.Subcommands {
			s.HelpName = above + " " + c.Name + " " + s.Name
		}
	}
}

// formatFlag is the flag of what prints a table or JSON. name is the command's in variables of the environment.
func formatFlag(name string) cli.Flag {
	return &cli.StringFlag{Name: "format", Value: "table", Usage: "table or json", EnvVars: envOf(name, "format")}
}
