// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// helpGroups are the groups of the commands in mcastlab help, in order.
var helpGroups = []struct {
	head     string
	commands []string
}{
	{"Simulate", []string{"run", "validate", "graph", "fuzz", "reproduce"}},
	{"Results", []string{"report", "trace", "diff", "watch"}},
	{"Running labs", []string{
		"deploy", "destroy", "inspect", execVerb, "shell", mpiVerb, "logs", "capture", "fault", "group", "controller", "metrics", "check", "wipe", "rc"}},
	{"Several servers", []string{"servers"}},
}

// commandGroups returns the commands for the help, by group, each with its usage; those of no group follow by name.
func commandGroups(all []*cli.Command) string {
	var b strings.Builder
	var others []string
	left := slices.Clone(all)
	for _, g := range helpGroups {
		b.WriteString(strings.ToUpper(g.head) + ":\n")
		for _, name := range g.commands {
			i := slices.IndexFunc(left, func(c *cli.Command) bool { return c.HasName(name) })
			if i < 0 { // of another system
				continue
			}
			fmt.Fprintf(&b, "   %-12s%s\n", left[i].Name, left[i].Usage)
			left = slices.Delete(left, i, i+1)
		}
		b.WriteByte('\n')
	}
	for _, c := range left {
		if !c.Hidden {
			others = append(others, c.Name)
		}
	}
	return b.String() + "Also: " + strings.Join(others, ", ") + ".\n"
}

// helpTemplate is the template of mcastlab help.
func helpTemplate(all []*cli.Command) string {
	return `{{.Name}} - {{.Usage}}

USAGE:
   {{.UsageText}}

` + commandGroups(all) + `
First run:     mcastlab run --example quickstart
One command:   mcastlab help COMMAND
Defaults:      each flag has an environment variable: MCASTLAB_RUN_FORMAT=json is run --format json

` + exitHelp
}
