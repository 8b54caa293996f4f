// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package programs runs programs of this server on the nodes of a lab: for exec, shell and mpirun, and as the ranks of
// workloads. A program is in the network namespace of its node, and has the NIC of a host by libibverbs.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Execution is a program of this host that is to run on nodes.
type Execution struct {
	Pattern string   // of the nodes' names
	Argv    []string // the program and its arguments
	// Library is the folder of the libibverbs.so.1 by which a program uses the NIC of its host. Empty:
	// there is none.
	Library string
	inTurns bool // its time is that of a run in virtual time, in which it has turns
	tagged  bool // mpirun says in XML what each rank writes
	Root    bool // it runs as root, and not as the user that called sudo
	// Multicast has the switches do an MPI program's broadcasts.
	Multicast bool
	Clock     string // what its clocks show: ClockLab, ClockWall or ClockAuto

	In          io.Reader // of a program at one node; several have none
	Out, ErrOut io.Writer
}

// NewExecution returns what runs a program on nodes. It is the same whatever starts the program: exec, shell, or a workload. Only what Open
// MPI's mpirun starts sees this server's time unless the user says otherwise: it sleeps for seconds when it ends, which are minutes in a slow lab.
func NewExecution(argv []string, library string, mpi bool) Execution {
	x := Execution{Argv: argv, Library: library, Clock: ClockAuto}
	if mpi {
		x.Clock = ClockWall
	}
	return x
}

// Exec runs a program of this host at every node whose name fits the pattern, all at once, and returns
// the largest exit code. With several nodes each line is preceded by the node's name. The program is in the
// node's network namespace, and has the NIC of a host by libibverbs. It ends with the caller, and with
// its node.
func Exec(ctx context.Context, d *orchestrator.Deployed, x Execution) (code int, err error) {
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return 0, err
	}
	var at []engine.Running
	for _, n := range found {
		ok, err := path.Match(x.Pattern, n.Name)
		if err != nil {
			return 0, fmt.Errorf("exec at %q: %w", x.Pattern, err)
		}
		if ok && n.PID > 0 {
			at = append(at, n)
		}
	}
	if len(at) == 0 {
		return 0, fmt.Errorf("exec at %q: no running node has that name", x.Pattern)
	}
	all, err := prepareAll(d, at, &x)
	if err != nil {
		return 0, err
	}
	if len(at) == 1 {
		return all[0].run(ctx, x.In, x.Out, x.ErrOut)
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	codes, errs := make([]int, len(at)), make([]error, len(at))
	for i, n := range at {
		running.Go(func() {
			o, e := &prefixWriter{mu: &mu, w: x.Out, prefix: n.Name + ": "}, &prefixWriter{mu: &mu, w: x.ErrOut, prefix: n.Name + ": "}
			codes[i], errs[i] = all[i].run(ctx, nil, o, e)
			o.end()
			e.end()
		})
	}
	running.Wait()
	return slices.Max(codes), errors.Join(errs...)
}

// prepareAll prepares a program at each of the nodes. On other servers that is done there.
func prepareAll(d *orchestrator.Deployed, at []engine.Running, x *Execution) (all []*program, err error) {
	if !d.Access.Local() {
		return remotePrograms(d, at, x)
	}
	hosts, err := d.HostsFile()
	if err != nil {
		return nil, err
	}
	for _, n := range at {
		s := programSite{node: n.Name, pid: n.PID, lab: d.Lab.Name, dir: d.Store.NodePath(n.Name), hosts: hosts, why: withoutNIC(d, n.Name, x)}
		if s.why == nil {
			if s.since, err = deployedSince(d); err != nil {
				return nil, err
			}
		}
		p, err := x.program(s)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// programSite is a node on this server, for a program.
type programSite struct {
	lab, node string
	pid       int    // of the node
	dir       string // of its sockets
	hosts     string // see start
	since     int64  // when the lab was deployed, in seconds since 1970
	why       error  // why programs there have no NIC
}

// program prepares a program on a node here.
func (x *Execution) program(s programSite) (*program, error) {
	who, err := invoker(x.Root)
	if err != nil {
		return nil, fmt.Errorf("exec %s: %w", x.Argv[0], err)
	}
	p := &program{lab: s.lab, node: s.node, pid: s.pid, start: programStart{Argv: x.Argv, Host: s.node, Hosts: s.hosts, As: who}}
	if s.why != nil && needsVerbs(x.Argv[0]) {
		return nil, fmt.Errorf("exec %s at %s: %w", x.Argv[0], s.node, s.why)
	}
	if s.why == nil {
		p.start.Dir = s.dir
	}
	if p.start.Env, err = x.withLabTime(environment(who, x.Library, p.start.Dir), s); err != nil {
		return nil, fmt.Errorf("exec %s at %s: %w", x.Argv[0], s.node, err)
	}
	return p, nil
}

// WithoutNIC returns why programs on a node have no NIC, or nil. library is the folder of libibverbs.so.1, or empty.
func WithoutNIC(d *orchestrator.Deployed, node, library string) error {
	return withoutNIC(d, node, &Execution{Library: library})
}

func withoutNIC(d *orchestrator.Deployed, node string, x *Execution) error {
	id, ok := d.Graph.Find(node)
	switch {
	case !ok:
		return errors.New("a controller has no NIC: name a host")
	case d.Graph.Nodes[id].Kind != topo.Host:
		return errors.New("a switch has no NIC: name a host")
	case d.Lab.ExternalHost(node) != nil:
		return errors.New("the NIC of an external host is the device")
	case d.Lab.Runtime.Clock == lab.ClockLockstep && !x.inTurns:
		return fmt.Errorf("lab %s runs in virtual time, where programs run only as workloads: add the program as a workload of kind command, "+
			"or set clock: dilated under runtime and deploy it again", d.Lab.Name)
	case x.Library == "":
		return errors.New("libibverbs.so.1 is neither in the folder verbs beside mcastlab nor in that of $MCASTLAB_VERBS_LIB: build it by make verbs")
	}
	return nil
}
