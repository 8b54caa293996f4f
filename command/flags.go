package command

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst puts the flags of the commands trace and graph before their argument, where the
// flag package looks for them: people write them after the run or lab they are about.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 3 || args[1] != "trace" && args[1] != "graph" || slices.Contains(args, "--") {
		return args
	}
	c := app.Command(args[1])
	out := slices.Clone(args[:2])
	var rest []string
	for i := 2; i < len(args); i++ {
		a := args[i]
		if a == "-" || !strings.HasPrefix(a, "-") {
			rest = append(rest, a)
			continue
		}
		out = append(out, a)
		if name := strings.TrimLeft(a, "-"); takesValue(c, name) && i+1 < len(args) {
			i++
			out = append(out, args[i])
		}
	}
	return append(out, rest...)
}

// takesValue says whether a flag, written without =, is followed by its value.
func takesValue(c *cli.Command, name string) bool {
	for _, f := range c.Flags {
		if _, is := f.(*cli.BoolFlag); !is && slices.Contains(f.Names(), name) {
			return true
		}
	}
	return false
}
