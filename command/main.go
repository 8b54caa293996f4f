// SPDX-License-Identifier: Apache-2.0

// Package command is the program mcastlab, as a package: a program of yours that calls Main
// is mcastlab with rank programs of its own (docs/programs.md).
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/rank"
)

// Exit codes. They are documented in the help and do not change.
const (
	exitOK          = 0
	exitFailed      = 1 // an expectation does not hold, or data did not verify
	exitUsage       = 2
	exitLab         = 3 // the lab file is wrong
	exitRuntime     = 4
	exitFidelity    = 5
	exitParted      = 6 // a run is not its simulation
	exitInterrupted = signalBase + int(syscall.SIGINT)
	exitUnread      = signalBase + int(syscall.SIGPIPE)
)

const exitHelp = `EXIT CODES:
   0 ok   1 an expectation does not hold or data did not verify   2 wrong usage
   3 wrong lab file   4 error while running   5 host too slow: timings are not valid
   6 a run differs from its simulation (run --check-digest)
   130 interrupted, by Ctrl-C   128+N ended by signal N: 129 hangup, 131 quit, 143 terminate,
   141 nobody reads the output any more. Whatever was begun is taken back first; another
   signal, a second or more after the first, ends the program at once.
`

// Main runs mcastlab with the arguments of the process and ends the process with its exit
// code. Labs may name the programs given, beside the workloads there are. Call it before
// anything else: the nodes of a running lab are processes of the same binary.
func Main(programs ...rank.Program) {
	if err := cmp.Or(enoughFiles(), keepDescriptors()); err != nil {
		fmt.Fprintln(os.Stderr, "mcastlab:", err)
		os.Exit(exitRuntime)
	}
	ctx, cancel := untilSignaled(context.Background())
	out, errOut := &outlet{file: os.Stdout, gone: cancel}, &outlet{file: os.Stderr, gone: cancel}
	if len(os.Args) < 2 || os.Args[1] != nodeVerb { // a node outlives the reader of its log
		awaitReaderless(func() { cancel(signaled{syscall.SIGPIPE}) }, os.Stdout, os.Stderr)
	}
	code := run(ctx, os.Args, os.Stdin, out, errOut, hooks{programs: programs})
	if code == exitOK && (out.lost.Load() || errOut.lost.Load()) {
		code = exitUnread
	}
	os.Exit(code)
}

// nodeVerb is the verb of the processes of a running lab's nodes.
const nodeVerb = "node"

// hooks are a caller's additions to a run: the user's programs, and replacements in tests.
type hooks struct {
	bcast    bcast.App
	programs []rank.Program
	complete time.Duration // how long an interrupted run may take at least to complete its folder
}

// checkPrograms finds mistakes of the binary's author.
func checkPrograms(programs []rank.Program) error {
	seen := map[string]bool{}
	for _, p := range programs {
		switch {
		case !lab.LabelOK(p.Name):
			return fmt.Errorf("program %q cannot have that name: use a letter, then up to 39 letters, digits, underscores and hyphens", p.Name)
		case p.Run == nil && p.Broadcast == nil:
			return fmt.Errorf("program %s has no function Run, and no Broadcast", p.Name)
		case seen[p.Name]:
			return fmt.Errorf("two programs are called %s", p.Name)
		}
		seen[p.Name] = true
	}
	return nil
}

// program holds the state that the commands share.
type program struct {
	in          io.Reader
	out, errOut io.Writer
	hooks       hooks
	given       []string // names of the flags that the command line has
}

// run runs the program and returns its exit code. Results go to out, everything else
// to errOut.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, h hooks) int {
	p := &program{in: in, out: out, errOut: errOut, hooks: h}
	err := checkPrograms(h.programs)
	if err == nil {
		app := p.app()
		if len(args) > 1 && args[1] == completeVerb {
			p.complete(app, args[2:])
			return exitOK
		}
		if args, err = p.arrange(app, args); err == nil {
			err = app.RunContext(ctx, args)
		}
	}
	if err == nil {
		return exitOK
	}
	code := exitCode(ctx, err)
	switch {
	case ctx.Err() == nil:
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fmt.Fprintln(errOut, "mcastlab:", line)
		}
		if hint := limitHint(err.Error()); hint != "" {
			fmt.Fprintln(errOut, "mcastlab:", hint)
		}
	case code != exitUnread: // ends silently, as in any pipeline
		text := "interrupted"
		if outside := (runner.OutsideError{}); errors.As(err, &outside) {
			text += ": " + outside.Error()
		}
		fmt.Fprintln(errOut, "mcastlab:", text)
	}
	return code
}

func (p *program) app() *cli.App {
	pure := []*cli.Command{
		p.runCommand(), p.validateCommand(), p.graphCommand(), p.fuzzCommand(), p.diffCommand(), p.traceCommand(), p.reportCommand(), p.watchCommand(),
		p.reproduceCommand(), p.schemaCommand(), p.completionCommand(), p.manualCommand(), p.versionCommand(), p.helpCommand(),
	}
	for _, c := range pure {
		c.Action = p.answering(c.Action)
	}
	all := append(pure, p.liveCommands()...)
	dress(all, "mcastlab")
	return &cli.App{
		Name:      "mcastlab",
		UsageText: "mcastlab COMMAND [ARGUMENT...] [--FLAG VALUE...]  (flags before or after the arguments)",
		Usage:     "try in-network RoCE multicast without FPGA boards, RDMA NICs or a cluster",
		Commands:  all,
		Writer:    p.out, ErrWriter: p.errOut,
		HideVersion: true,
		Flags: []cli.Flag{ // arrange makes it the verb
			&cli.BoolFlag{Name: "version", Aliases: []string{"v"}, Usage: "print the version", DisableDefaultText: true},
		},
		Suggest:               true,
		CustomAppHelpTemplate: helpTemplate(all),
		ExitErrHandler:        func(*cli.Context, error) {},
		OnUsageError:          onUsage,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return noCommand([]string{c.Args().First()}, all)
			}
			return cli.ShowAppHelp(c)
		},
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// failedError says that a run ended with an expectation that does not hold, or data that did not verify.
type failedError struct{ error }

// fidelityError says that the server was too slow for a run's times to be those of the lab.
type fidelityError struct{ error }

// partedError is the error of a run that is not its simulation.
type partedError struct{ error }

// exitCode maps an error to the program's exit code.
func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var failed failedError
	var fidelity fidelityError
	var parted partedError
	var inner interface{ ExitCode() int }
	var labErr *lab.Error
	switch {
	case ctx.Err() != nil:
		return interruptedCode(ctx)
	case errors.As(err, &inner):
		return inner.ExitCode() // of a program that exec ran
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &labErr):
		return exitLab
	case errors.As(err, &failed):
		return exitFailed
	case errors.As(err, &fidelity):
		return exitFidelity
	case errors.As(err, &parted):
		return exitParted
	}
	return exitRuntime
}

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version", OnUsageError: onUsage,
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.out, "mcastlab", runner.Version())
			return err
		},
	}
}

func (p *program) schemaCommand() *cli.Command {
	return &cli.Command{
		Name: "schema", Usage: "print the JSON schema of lab files, for editors", OnUsageError: onUsage,
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			s, err := lab.Schema()
			if err != nil {
				return err
			}
			_, err = p.out.Write(s)
			return err
		},
	}
}

func noArgs(c *cli.Context) error {
	if c.Args().Present() {
		return usageError{fmt.Errorf("%s takes no argument, not %q", verbOf(c), c.Args().First())}
	}
	return nil
}
