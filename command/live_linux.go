// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/nodeagent"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/dilated"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
	"github.com/mcastlab/mcastlab/orchestrator/engine/docker"
	"github.com/mcastlab/mcastlab/orchestrator/engine/process"
	"github.com/mcastlab/mcastlab/orchestrator/lockstep"
	"github.com/mcastlab/mcastlab/orchestrator/multihost"
	"github.com/mcastlab/mcastlab/orchestrator/multihost/hosts"
	"github.com/mcastlab/mcastlab/orchestrator/programs"
)

// engines returns every engine that labs can be under.
func engines() []engine.Engine {
	return []engine.Engine{
		docker.Engine{}, process.Engine{LogDir: orchestrator.LogFile},
		multihost.Engine{Spread: hosts.Engine{State: hostsState(), Folder: orchestrator.Folder}},
	}
}

// engineOf returns the engine that a lab is to run under: what the command line says, and of containers what the lab file does.
func engineOf(name string, l *lab.Lab) (engine.Engine, error) {
	if l.Runtime.Hosts == "" {
		return engineByName(name)
	}
	if name != docker.Name && name != hosts.EngineName {
		return nil, usageError{fmt.Errorf("lab %s has runtime.hosts: it goes with --runtime docker", l.Name)}
	}
	return engineByName(hosts.EngineName)
}

func engineByName(name string) (engine.Engine, error) {
	for _, e := range engines() {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, usageError{fmt.Errorf("no runtime %q: use sim, docker, netns or hosts", name)}
}

// liveCommands are the verbs of labs that are up.
func (p *program) liveCommands() []*cli.Command {
	return []*cli.Command{
		p.deployCommand(), p.destroyCommand(), p.inspectCommand(), p.metricsCommand(), p.groupCommand(), p.faultCommand(), p.controllerCommand(), p.captureCommand(),
		p.execCommand(), p.shellCommand(), p.mpiCommand(), p.logsCommand(), p.checkCommand(), p.wipeCommand(), p.serversCommand(),
		p.rcCommand(), p.nodeCommand(), p.hostCommand(), p.guardCommand(), p.callerCommand(),
	}
}

// runLive runs a lab under an engine.
func (p *program) runLive(c *cli.Context, l *lab.Lab, progress runner.Progress, limit int64, acts []faults.Act) (report *runner.Report, err error) {
	e, err := engineOf(c.String("runtime"), l)
	if err != nil {
		return nil, err
	}
	o, err := p.deployOptions(c, e)
	if err != nil {
		return nil, err
	}
	run := orchestrator.RunOptions{
		Base: c.String("runs"), Dilation: c.Float64("dilation"), Slower: c.Float64("slower"), Progress: progress, Say: p.say,
		Captures: c.StringSlice("capture"), CaptureBytes: limit, Acts: acts, Dilated: dilates(c), Programs: c.Bool("allow-programs"),
		Runners: orchestrator.Runners{Lockstep: lockstep.Run, Dilated: dilated.Run, Programs: programs.PrepareJob},
	}
	if c.Bool("check-digest") {
		return p.runChecked(c, l, o, run)
	}
	report, err = orchestrator.Run(c.Context, l, o, run)
	var late *dilated.LateError
	if errors.As(err, &late) {
		err = fidelityError{err}
	}
	return report, err
}

// runChecked runs a lab in virtual time, simulates it, and compares every frame at the end of every
// link.
func (p *program) runChecked(c *cli.Context, l *lab.Lab, o orchestrator.Options, run orchestrator.RunOptions) (*runner.Report, error) {
	var real, simulated runner.Ledger
	run.Ledger = real.Set
	report, failed := orchestrator.Run(c.Context, l, o, run)
	if failed != nil && (c.Context.Err() != nil || real.Empty()) {
		return report, failed
	}
	other, err := runner.Simulate(c.Context, l, runner.Options{
		Base: run.Base, Say: p.say, Ledger: simulated.Set, Env: apps.Env{Programs: p.hooks.programs}, Acts: report.Acts,
	})
	if err != nil && (failed == nil || simulated.Empty()) {
		return report, fmt.Errorf("simulate the lab: %w", err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		return report, err
	}
	if text := runner.Parted(g, &real, &simulated); text != "" {
		return report, errors.Join(partedError{fmt.Errorf("the run is not its simulation: %s", text)}, failed)
	}
	if failed != nil {
		return report, failed // as the simulation
	}
	if report.Digest != other.Digest {
		return report, partedError{fmt.Errorf("the run is not its simulation: digest %s, and not %s, beyond the frames that are compared", report.Digest, other.Digest)}
	}
	p.say("digest %s, which is the simulation's", report.Digest)
	return report, nil
}

func (p *program) deployOptions(c *cli.Context, e engine.Engine) (orchestrator.Options, error) {
	o := orchestrator.Options{Engine: e, Version: runner.Version(), Programs: p.hooks.programs, Attach: map[string]string{}, Management: c.Bool("management")}
	for _, a := range c.StringSlice("attach") {
		host, name, ok := strings.Cut(a, "=")
		if !ok || host == "" || name == "" {
			return o, usageError{fmt.Errorf("attach %q: write --attach HOST=INTERFACE", a)}
		}
		o.Attach[host] = name
	}
	o.Tell = func(format string, args ...any) { fmt.Fprintf(p.errOut, format+"\n", args...) }
	if !c.Bool("quiet") {
		o.Log = func(format string, args ...any) { fmt.Fprintf(p.errOut, format+"\n", args...) }
	}
	return o, nil
}

func runtimeFlag(command, value string) cli.Flag {
	return &cli.StringFlag{
		Name: "runtime", Aliases: []string{"r"}, Value: value, EnvVars: envOf(command, "runtime"),
		Usage: "docker; netns: processes in network namespaces; or hosts: containers on several servers (mcastlab servers)",
	}
}

func (p *program) deployCommand() *cli.Command {
	const name = "deploy"
	return &cli.Command{
		Name: name, Aliases: []string{"dep"}, Usage: "start a lab and keep it running", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: labText + "\nA second time it changes nothing, or brings back what has gone. It needs root: mcastlab check says what else.",
		Flags: []cli.Flag{
			runtimeFlag(name, "docker"), attachFlag(name), exampleFlag(name),
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print only the outcome", EnvVars: envOf(name, "quiet")},
			&cli.BoolFlag{Name: "management", Usage: "add a management network for the TCP traffic of programs", EnvVars: envOf(name, "management")},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print the plan and exit", EnvVars: envOf(name, "dry-run")},
		},
		Action: func(c *cli.Context) error {
			l, _, err := p.labToRun(c)
			if err != nil {
				return err
			}
			if err := unswept(c, l); err != nil {
				return err
			}
			e, err := engineOf(c.String("runtime"), l)
			if err != nil {
				return err
			}
			o, err := p.deployOptions(c, e)
			if err != nil {
				return err
			}
			if c.Bool("dry-run") {
				return orchestrator.Plan(c.Context, l, o, p.out)
			}
			d, did, err := orchestrator.Deploy(c.Context, l, o)
			if err != nil {
				return err
			}
			what := map[orchestrator.Outcome]string{
				orchestrator.Unchanged: "was up already: nothing changed", orchestrator.Made: "is up", orchestrator.Repaired: "is up again",
			}[did]
			size := setting.Counted(len(d.Graph.Nodes), "node") + ", " + setting.Counted(len(d.Graph.Links), "link")
			if n := len(l.Replicas()); n > 0 {
				size += ", " + setting.Counted(n, "controller")
			}
			_, err = fmt.Fprintf(p.out, "%s: %s, %s: %s\n", l.Name, size, e.Name(), what)
			cerr := d.Close()
			if !errors.Is(err, syscall.EPIPE) || did != orchestrator.Made {
				return cerr
			}
			// Nobody has learnt that it is up: it is taken back, as it is if they go a moment earlier.
			_, derr := orchestrator.Destroy(withoutCancel(c), l.Name, engines())
			return errors.Join(err, cerr, derr)
		},
	}
}

func (p *program) destroyCommand() *cli.Command {
	const name = "destroy"
	return &cli.Command{
		Name: name, Aliases: []string{"des"}, Usage: "remove a lab, in any state", ArgsUsage: "[LAB]", OnUsageError: onUsage,
		Description: "LAB is a lab file, a folder that holds one, or the name of a lab that is up; without it, the lab file in this folder.",
		Action: func(c *cli.Context) error {
			lab, err := p.labName(c)
			if err != nil {
				return err
			}
			existed, err := orchestrator.Destroy(withoutCancel(c), lab, engines())
			if err != nil {
				return err
			}
			what := "nothing was there"
			if existed {
				what = "destroyed"
			}
			fmt.Fprintf(p.out, "%s: %s\n", lab, what)
			return nil
		},
	}
}

// labName returns the name of the lab of an argument: that of a running lab, or the one in a lab
// file.
func (p *program) labName(c *cli.Context) (string, error) {
	if a := c.Args().First(); c.Args().Len() == 1 && lab.NameOK(a) && !exists(a) {
		return a, nil
	}
	l, err := p.labArg(c)
	if err != nil {
		return "", err
	}
	return l.Name, nil
}

func (p *program) nodeCommand() *cli.Command {
	return &cli.Command{
		Name: nodeVerb, Usage: "be the process of one node; started by deploy", Hidden: true, OnUsageError: onUsage,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "dir", Required: true, Usage: "folder of the node's sockets"},
			&cli.StringFlag{Name: "data", Usage: "folder of what the node keeps when it dies"},
			&cli.StringFlag{Name: "controller", Usage: "be the controller of this name"},
			&cli.IntFlag{Name: "replicas", Usage: "controllers there are"},
			&cli.StringFlag{Name: "nodes", Usage: "folder that holds the folders of all nodes"},
		},
		Action: func(c *cli.Context) error {
			if name := c.String("controller"); name != "" {
				return nodeagent.ServeController(c.Context, nodeagent.ControllerOptions{
					Name: name, Replicas: c.Int("replicas"), Dir: c.String("dir"), Data: c.String("data"), Nodes: c.String("nodes"), Version: runner.Version(),
				})
			}
			return nodeagent.Serve(c.Context, c.String("dir"), c.String("data"), runner.Version(), p.hooks.programs)
		},
	}
}
