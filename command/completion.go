package command

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// Completion scripts ask the program itself, so they never lag behind it.
const (
	bashCompletion = `_mcastlab() {
  local cur opts
  COMPREPLY=()
  cur="${COMP_WORDS[COMP_CWORD]}"
  if [[ "$cur" == "-"* ]]; then
    opts=$("${COMP_WORDS[@]:0:$COMP_CWORD}" "$cur" --generate-bash-completion 2>/dev/null)
  else
    opts=$("${COMP_WORDS[@]:0:$COMP_CWORD}" --generate-bash-completion 2>/dev/null)
  fi
  COMPREPLY=($(compgen -W "$opts" -- "$cur") $(compgen -f -X '!*.mcl.yml' -- "$cur"))
}
complete -o bashdefault -o default -o nospace -F _mcastlab mcastlab
`
	zshCompletion = `#compdef mcastlab
_mcastlab() {
  local -a opts
  local cur=${words[-1]}
  if [[ "$cur" == "-"* ]]; then
    opts=("${(@f)$(${words[@]:0:#words[@]-1} ${cur} --generate-bash-completion 2>/dev/null)}")
  else
    opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  fi
  [[ -n "${opts[1]}" ]] && _describe 'values' opts
  _files -g '*.mcl.yml'
}
compdef _mcastlab mcastlab
`
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: "bash|zsh|fish", OnUsageError: onUsage,
		Description: "For example: source <(mcastlab completion bash)",
		Action: func(c *cli.Context) error {
			script, err := completionScript(c.App, c.Args().First())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(p.out, script)
			return err
		},
	}
}

func completionScript(app *cli.App, shell string) (string, error) {
	switch shell {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	}
	return "", usageError{fmt.Errorf("completion for bash, zsh or fish, not %q", shell)}
}
