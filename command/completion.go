// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/lab/reproduce"
)

// completeVerb is the command of completion scripts: its arguments are the words of the line, the
// last of which is incomplete, and it prints the completions of that.
const completeVerb = "__complete"

// Completion scripts ask the program itself, so they never lag behind it. Where it has nothing
// to say the shell completes names of files.
var completionScripts = map[string]string{
	"bash": `_mcastlab() {
  local words=("${COMP_WORDS[@]:1:COMP_CWORD}") cur
  if declare -F _get_comp_words_by_ref > /dev/null; then # a port is one word: h0:0
    local cword
    _get_comp_words_by_ref -n : cur words cword
    words=("${words[@]:1:cword}")
  fi
  cur="${words[-1]}"
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "${words[@]}" 2> /dev/null)" -- "$cur"))
  [[ "${COMPREPLY[0]}" == */ ]] && compopt -o nospace
  declare -F __ltrim_colon_completions > /dev/null && __ltrim_colon_completions "$cur"
  return 0
}
complete -o bashdefault -o default -F _mcastlab mcastlab
`,
	"zsh": `#compdef mcastlab
_mcastlab() {
  local -a found
  found=("${(@f)$(${words[1]} __complete "${(@)words[2,$CURRENT]}" 2> /dev/null)}")
  if [[ -n "${found[1]}" ]]; then
    compadd -- "${(@)found:#*/}"
    compadd -S '' -- "${(@M)found:#*/}"
  else
    _files
  fi
}
compdef _mcastlab mcastlab
`,
	"fish": `function __mcastlab_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] __complete $words[2..-1] 2> /dev/null
end
complete -c mcastlab -f -n 'count (__mcastlab_complete) > /dev/null' -a '(__mcastlab_complete)'
`,
}

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: "bash|zsh|fish", OnUsageError: onUsage,
		Description: "It completes commands, flags, their values, lab files, and names in labs that are up. For example\n" +
			"  source <(mcastlab completion bash)       in ~/.bashrc\n" +
			"  source <(mcastlab completion zsh)        in ~/.zshrc, after compinit\n" +
			"  mcastlab completion fish | source        in ~/.config/fish/config.fish",
		Action: func(c *cli.Context) error {
			if err := oneArg(c, "a shell (bash, zsh or fish)"); err != nil {
				return err
			}
			script, ok := completionScripts[c.Args().First()]
			if !ok {
				return usageError{fmt.Errorf("completion for bash, zsh or fish, not %q", c.Args().First())}
			}
			_, err := fmt.Fprint(p.out, script)
			return err
		},
	}
}

// complete prints the completions of the last word, one a line.
func (p *program) complete(app *cli.App, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	w := wordsOf(app, words[:len(words)-1])
	for _, s := range w.candidates(words[len(words)-1]) {
		fmt.Fprintln(p.out, s)
	}
}

// completing is a command line up to the word that is being written.
type completing struct {
	commands []*cli.Command // that may come next
	command  *cli.Command   // nil: none yet
	verb     string         // fault add
	flag     string         // whose value comes next
	given    map[string]string
	args     int
	literal  bool // only arguments come from here on
}

// wordsOf reads the words before the one that is being written.
func wordsOf(app *cli.App, words []string) (w completing) {
	w.commands, w.given = app.Commands, map[string]string{}
	for _, a := range words {
		name := strings.TrimLeft(a, "-")
		at := slices.IndexFunc(w.commands, func(c *cli.Command) bool { return c.HasName(a) })
		switch {
		case w.flag != "":
			w.given[w.flag], w.flag = a, ""
		case w.literal:
			w.args++
		case a == "--":
			w.literal = true
		case name != a && name != "" && w.command != nil:
			name, value, whole := strings.Cut(name, "=")
			f := flagOf(w.command, name)
			if f == nil {
				break
			}
			w.given[f.Names()[0]] = value
			if !whole && takesValue(w.command, name) {
				w.flag = f.Names()[0]
			}
		case at >= 0:
			w.command = w.commands[at]
			w.verb = strings.TrimSpace(w.verb + " " + w.command.Name)
			if w.commands = w.command.Subcommands; w.command.Name == helpVerb {
				w.commands = app.Commands
			}
		default:
			w.args++
			w.commands = nil
			w.literal = runsProgram(w.verb)
		}
	}
	return w
}

func flagOf(c *cli.Command, name string) cli.Flag {
	for _, f := range c.Flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// candidates returns the completions of a word.
func (w *completing) candidates(begin string) (all []string) {
	switch {
	case w.flag != "":
		all = w.valuesOf(w.flag)
	case strings.HasPrefix(begin, "-") && !w.literal:
		all = w.flagNames()
	default:
		for _, c := range w.commands {
			if !c.Hidden {
				all = append(all, c.Name)
			}
		}
		all = append(all, w.arguments(begin)...)
	}
	return slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, begin) })
}

// flagNames returns the flags that can still be given.
func (w *completing) flagNames() []string {
	if w.command == nil {
		return []string{"--help", "--version"}
	}
	all := []string{"--help"}
	for _, f := range w.command.Flags {
		name := f.Names()[0]
		_, given := w.given[name]
		_, several := f.(*cli.StringSliceFlag)
		if _, is := f.(*cli.GenericFlag); !given || several || is {
			all = append(all, "--"+name)
		}
	}
	return all
}

// formats are those of the commands that have others than table and json.
var formats = map[string][]string{
	"run": {"table", "json", "jsonl", "csv"}, "graph": {"svg", "dot", "mermaid"}, "inspect": {"table", "json", "prometheus"},
}

// valuesOf returns the values that a flag can have, as far as they can be listed.
func (w *completing) valuesOf(flag string) []string {
	switch flag {
	case "format":
		if f, other := formats[w.verb]; other {
			return f
		}
		return []string{"table", "json"}
	case "runtime":
		if w.verb == "run" {
			return []string{"sim", "docker", "netns"}
		}
		return []string{"docker", "netns"}
	case "trace":
		return []string{"none", "messages"}
	case "priority":
		return strings.Split("01234567", "")
	case "mtu":
		return []string{"256", "512", "1024", "2048", "4096"}
	}
	return w.liveValues(flag)
}

// arguments returns what the next argument of the command can be.
func (w *completing) arguments(begin string) (all []string) {
	switch w.verb {
	case "run", "validate", "graph", "fuzz", "deploy":
		if w.args == 0 {
			all = labFiles(begin)
		}
	case "destroy", "inspect", "metrics":
		if w.args == 0 {
			all = append(w.liveValues("lab"), labFiles(begin)...)
		}
	case "watch":
		if w.args == 0 {
			all = append(w.liveValues("lab"), folders(begin)...)
		}
	case "trace", "diff", "report":
		all = folders(begin)
	case "reproduce":
		if results, err := reproduce.Load(); err == nil {
			all = resultNames(results)
		}
	case "completion":
		if w.args == 0 {
			all = []string{"bash", "zsh", "fish"}
		}
	default:
		if w.args == 0 {
			all = w.liveArguments()
		}
	}
	return all
}

// labFiles returns the lab files, and the folders on the way to some, whose names begin so.
func labFiles(begin string) []string {
	found, err := filepath.Glob(quoted(begin) + "*" + labSuffix)
	if err != nil {
		return nil
	}
	return append(found, folders(begin)...)
}

// folders returns the folders whose names begin so, with a slash.
func folders(begin string) (all []string) {
	found, err := filepath.Glob(quoted(begin) + "*")
	if err != nil {
		return nil
	}
	for _, f := range found {
		if strings.HasPrefix(filepath.Base(f), ".") && !strings.HasPrefix(begin[strings.LastIndex(begin, "/")+1:], ".") {
			continue
		}
		if info, err := os.Stat(f); err == nil && info.IsDir() {
			all = append(all, f+"/")
		}
	}
	return all
}

// quoted returns a pattern that matches the text and nothing else.
func quoted(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
