// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/runner"
)

func (p *program) manualCommand() *cli.Command {
	return &cli.Command{
		Name: "man", Usage: "print the manual page", OnUsageError: onUsage,
		Description: "To read it without installing it:\nmcastlab man | man -l -",
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			_, err := fmt.Fprint(p.out, manual(c.App))
			return err
		},
	}
}

const manualIntro = `.SH DESCRIPTION
.B mcastlab
emulates in\-network RoCE multicast: a fabric of virtual switches and RoCE network adapters that replicate messages, aggregate
acknowledgments and retransmit as the published designs do.
A lab is one YAML file that says which hosts, switches and links there are, what the hosts do, what goes wrong and what the results
must show.
A lab is simulated on an event clock, on any system and without privileges, or run on Linux in containers or network namespaces,
as root.
.SH COMMANDS
Options can be set by the environment variables in brackets, too.
Commands about labs that are up are there on Linux only.
`

const manualEnd = `.SH FILES
.TP
.I NAME.mcl.yml
A lab file.
.B mcastlab schema
prints its JSON schema.
.TP
.I runs/LAB\-N
The folder of a run: the resolved lab, the events, the summary as JSON, captures and traces.
.TP
.I /usr/share/doc/mcastlab/examples
Labs to begin with, where the package is installed.
.SH SEE ALSO
.BR tshark (1),
.UR https://github.com/mcastlab/mcastlab
the lab file and everything else in detail
.UE
`

// manual returns the manual page in roff. It is made from the commands themselves, so that
// it says what they do. Words are not hyphenated: most of the long ones are to be copied.
func manual(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH MCASTLAB 1 \"%s\" \"mcastlab %s\" \"User Commands\"\n.nh\n", runner.VersionDate(), roff(runner.Version()))
	fmt.Fprintf(&b, ".SH NAME\nmcastlab \\- %s\n", roff(app.Usage))
	b.WriteString(".SH SYNOPSIS\n.B mcastlab\n.I command\n.RI [ options ]\n.RI [ arguments ]\n")
	b.WriteString(manualIntro)
	for _, c := range app.VisibleCommands() {
		if c.Name != "help" {
			manualOf(&b, app.Name, c)
		}
	}
	_, codes, _ := strings.Cut(exitHelp, "\n")
	fmt.Fprintf(&b, ".SH EXIT STATUS\n.nf\n%s.fi\n", roffLines(codes))
	b.WriteString(manualEnd)
	return b.String()
}

// manualOf writes the section of a command, if it does anything itself, and those of the
// commands below it.
func manualOf(b *strings.Builder, parent string, c *cli.Command) {
	name := parent + " " + c.Name
	below := slices.DeleteFunc(c.VisibleCommands(), func(c *cli.Command) bool { return c.Name == "help" })
	flags := optionsOf(c)
	if len(below) == 0 || len(flags) > 0 {
		writeCommand(b, name, c, flags)
	}
	for _, sub := range below {
		manualOf(b, name, sub)
	}
}

func writeCommand(b *strings.Builder, name string, c *cli.Command, flags []cli.DocGenerationFlag) {
	title := name
	if len(flags) > 0 {
		title += " [options]"
	}
	if c.ArgsUsage != "" {
		title += " " + c.ArgsUsage
	}
	fmt.Fprintf(b, ".SS %s\n%s.\n", roff(title), roff(upperFirst(c.Usage)))
	b.WriteString(manualText(c.Description))
	for _, f := range flags {
		writeOption(b, f)
	}
}

// optionsOf returns a command's flags but --help, which all have.
func optionsOf(c *cli.Command) (flags []cli.DocGenerationFlag) {
	for _, f := range c.VisibleFlags() {
		if d, ok := f.(cli.DocGenerationFlag); ok && f.Names()[0] != "help" {
			flags = append(flags, d)
		}
	}
	return flags
}

func writeOption(b *strings.Builder, f cli.DocGenerationFlag) {
	var names []string
	for _, n := range f.Names() {
		dashes := "--"
		if len(n) == 1 {
			dashes = "-"
		}
		names = append(names, `\fB`+roff(dashes+n)+`\fR`)
	}
	fmt.Fprintf(b, ".TP\n%s", strings.Join(names, ", "))
	if f.TakesValue() {
		b.WriteString(` \fIvalue\fR`)
	}
	text := f.GetUsage()
	switch def := f.GetDefaultText(); {
	case !f.TakesValue(), def == "", def == "0", def == "[]":
	default:
		text += " (default: " + strings.Trim(def, `"`) + ")"
	}
	if env := f.GetEnvVars(); len(env) > 0 {
		text += " [$" + strings.Join(env, ", $") + "]"
	}
	fmt.Fprintf(b, "\n%s\n", roff(text))
}

// manualText flows a description; lines that are commands stay lines.
func manualText(text string) string {
	var b strings.Builder
	flowing := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "mcastlab ") || strings.HasPrefix(line, "  ") {
			fmt.Fprintf(&b, ".PP\n.nf\n.RS\n%s.RE\n.fi\n", roffLines(line))
			flowing = false
			continue
		}
		if !flowing {
			b.WriteString(".PP\n")
			flowing = true
		}
		b.WriteString(roffLines(line))
	}
	return b.String()
}

func roffLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(roff(strings.TrimSpace(line)) + "\n")
	}
	return b.String()
}

// roff writes text so that every character is itself, dashes and quotes as people type them.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "~", `\(ti`, "^", `\(ha`, "`", `\(ga`, "'", `\(aq`, "\n", " ").Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
