// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Open MPI's mpirun runs at the host of rank 0. At each other host it needs a daemon, orted, which it starts by a
// remote shell. The remote shell here is a script that writes the daemon's command into a pipe with the name of the
// host; the process that started mpirun reads the command and runs it there, as the same user. A program on a host
// has no other way to start one elsewhere.

const (
	launchDir   = "launch" // in the folder of the node's sockets, as the program sees it
	launchShell = "rsh"    // the script; no host has that name, as the pipes are in the folder hosts beside it
	launchHosts = "hosts"
	scratchDir  = "tmp"
)

// askMax is the most bytes that the command of a daemon has.
const askMax = 16 << 10

// showLauncher makes the script and the pipes.
func (s *programStart) showLauncher() error {
	dir := filepath.Join(s.Dir, launchDir)
	pipes := filepath.Join(dir, launchHosts)
	if err := os.MkdirAll(pipes, 0o755); err != nil {
		return fmt.Errorf("make pipes to the other hosts: %w", err)
	}
	script := "host=$1\nshift\nprintf '%s\\n' \"$*\" > " + pipes + "/$host\n"
	if err := os.WriteFile(filepath.Join(dir, launchShell), []byte(script), 0o644); err != nil {
		return fmt.Errorf("write Open MPI's remote shell: %w", err)
	}
	for _, h := range s.Ask {
		path := filepath.Join(pipes, h)
		err := unix.Mkfifo(path, 0o600)
		if err == nil {
			err = os.Chown(path, int(s.As.UID), int(s.As.GID))
		}
		if err != nil {
			return fmt.Errorf("make the pipe to %s: %w", h, err)
		}
	}
	return nil
}

// showScratch makes a folder for the files of a launcher, which goes with the program.
func (s *programStart) showScratch() error {
	dir := filepath.Join(s.Dir, scratchDir)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("make a folder for Open MPI: %w", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,size=256m"); err != nil {
		return fmt.Errorf("mount a folder for Open MPI: %w", err)
	}
	return nil
}

// MPIRun runs an MPI program by Open MPI's mpirun, rank i at hosts[i], and returns mpirun's exit code. A host may
// occur several times. The ranks use the NICs of their hosts by UCX, and the launcher the management
// network. x.Pattern does not count.
func MPIRun(ctx context.Context, d *orchestrator.Deployed, hosts []string, x Execution) (code int, err error) {
	failed := func(err error) (int, error) { return 0, fmt.Errorf("mpirun %s: %w", x.Argv[0], err) }
	all, err := mpiCommand(ctx, d, hosts, &x)
	if err != nil {
		return failed(err)
	}
	if x.Multicast {
		var names []string
		for _, p := range all {
			names = append(names, p.node)
		}
		end, err := leaseGroups(d, names)
		if err != nil {
			return failed(err)
		}
		defer end()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j := &mpiJob{all: all, x: &x, stop: stop, errs: make([]error, len(all)), asked: make([]atomic.Bool, len(all)), ended: make(chan struct{})}
	daemons, stopDaemons := context.WithCancel(ctx)
	defer stopDaemons()
	var heard *launchListener
	asked := func(host int, command string, err error) { j.daemon(daemons, host, command, err) }
	if all[0].remote != nil {
		all[0].remote.asked = asked
	} else {
		all[0].started = func(guardian int) (err error) {
			heard, err = all[0].start.hear(guardian, asked)
			return err
		}
	}
	code, err = all[0].run(ctx, x.In, x.Out, x.ErrOut)
	close(j.ended)
	heard.close()
	late := time.AfterFunc(programGrace, stopDaemons) // they end with mpirun, and nothing depends on how
	j.running.Wait()
	late.Stop()
	if err == nil && code != 0 {
		err = cmp.Or(j.errs...)
	}
	if err != nil {
		return failed(err)
	}
	return code, nil
}

// mpiJob is an mpirun and its daemons.
type mpiJob struct {
	all     []*program // mpirun, and a daemon at each other host
	x       *Execution
	stop    context.CancelCauseFunc // ends mpirun
	errs    []error                 // why daemons have ended before mpirun, by host
	asked   []atomic.Bool           // by host: mpirun has said what its daemon is
	ended   chan struct{}           // closed when mpirun has ended
	running sync.WaitGroup
}

// daemon runs the daemon of one of the other hosts by the command that mpirun has given, or stops mpirun because that did not come.
func (j *mpiJob) daemon(ctx context.Context, host int, command string, err error) {
	if host < 0 || host+1 >= len(j.all) || j.asked[host+1].Swap(true) {
		j.stop(fmt.Errorf("mpirun asks for a daemon at host %d of %d, or for another one there", host, len(j.all)-1))
		return
	}
	j.running.Go(func() {
		if err == nil {
			err = j.all[host+1].daemon(ctx, command, j.x)
		}
		select {
		case <-j.ended:
			return
		default:
		}
		if j.errs[host+1] = err; err == nil {
			return
		}
		select { // mpirun, too, sees that, and perhaps says why
		case <-j.ended:
		case <-time.After(programGrace):
			j.stop(err)
		}
	})
}

// daemon runs the daemon of a host.
func (p *program) daemon(ctx context.Context, command string, x *Execution) error {
	p.start.Argv = []string{"/bin/sh", "-c", command}
	code, err := p.run(ctx, nil, x.ErrOut, x.ErrOut) // what ranks write, mpirun writes
	if err == nil && code != 0 {
		err = fmt.Errorf("the daemon at %s ended with exit code %d", p.node, code)
	}
	return err
}

// launchListener waits for the commands of daemons.
type launchListener struct {
	pipes []*os.File
	all   sync.WaitGroup
}

// hear receives the commands that a program, started by that guardian, runs at the other hosts: it calls asked once for each.
func (s *programStart) hear(guardian int, asked func(host int, command string, err error)) (*launchListener, error) {
	h := &launchListener{}
	dir := fmt.Sprintf("/proc/%d/root%s", guardian, filepath.Join(s.Dir, launchDir, launchHosts))
	for _, name := range s.Ask {
		// Open for writing, too: the pipe does not end when nobody writes.
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			h.close()
			return nil, fmt.Errorf("hear what is to run at %s: %w", name, err)
		}
		h.pipes = append(h.pipes, f)
	}
	for i, f := range h.pipes {
		h.all.Go(func() {
			line, err := bufio.NewReaderSize(f, askMax).ReadSlice('\n')
			switch {
			case errors.Is(err, os.ErrClosed):
				return // the program has ended
			case err != nil:
				err = fmt.Errorf("hear what is to run at %s: %w", s.Ask[i], err)
			}
			asked(i, strings.TrimSuffix(string(line), "\n"), err)
		})
	}
	return h, nil
}

// close ends it. There may be none.
func (h *launchListener) close() {
	if h == nil {
		return
	}
	for _, f := range h.pipes {
		_ = f.Close() // which ends who reads it
	}
	h.all.Wait()
}

// mpiCommand prepares mpirun at the host of rank 0 and its daemons at the others, with ranks on hosts.
func mpiCommand(ctx context.Context, d *orchestrator.Deployed, ranks []string, x *Execution) (all []*program, err error) {
	at, err := mpiHosts(ctx, d, ranks, x)
	if err != nil {
		return nil, err
	}
	if all, err = prepareAll(d, at, x); err != nil {
		return nil, err
	}
	states, err := d.States(ctx)
	if err != nil {
		return nil, err
	}
	m := &shareapi.MPI{Ranks: ranks, Dilation: states[0].Rate.Dilation, Multicast: x.Multicast, Tagged: x.tagged}
	for _, n := range at[1:] {
		m.Ask = append(m.Ask, n.Name)
	}
	if !d.Access.Local() {
		for _, p := range all {
			p.remote.run.Scratch = true
		}
		all[0].remote.run.MPI = m
		return all, nil
	}
	for _, p := range all {
		p.start.scratch()
	}
	return all, all[0].start.mpirun(m, x.Library)
}

// mpiHosts returns the nodes of the hosts at which ranks are, each once.
func mpiHosts(ctx context.Context, d *orchestrator.Deployed, ranks []string, x *Execution) (at []engine.Running, err error) {
	st, _, err := d.Store.Get()
	if err != nil {
		return nil, err
	}
	if !d.Managed(&st) {
		return nil, fmt.Errorf("lab %s has no management network, by which mpirun starts ranks: mcastlab deploy --management", d.Lab.Name)
	}
	found, err := d.Options.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return nil, err
	}
	running := map[string]engine.Running{}
	for _, n := range found {
		running[n.Name] = n
	}
	for _, h := range ranks {
		if slices.ContainsFunc(at, func(n engine.Running) bool { return n.Name == h }) {
			continue
		}
		if why := WithoutNIC(d, h, x.Library); why != nil {
			return nil, fmt.Errorf("a rank at %s: %w", h, why)
		}
		if running[h].PID <= 0 {
			return nil, fmt.Errorf("a rank at %s: the node does not run: mcastlab deploy brings it back", h)
		}
		at = append(at, running[h])
	}
	return at, nil
}

// scratch gives a program a folder for the files of Open MPI.
func (s *programStart) scratch() {
	s.Scratch = true
	// Not by a parameter of Open MPI's, which mpirun would pass on to the other hosts.
	s.Env = append(slices.DeleteFunc(s.Env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), "TMPDIR="+filepath.Join(s.Dir, scratchDir))
}

// mpirun has a program run by mpirun, with the libraries in that folder.
func (s *programStart) mpirun(m *shareapi.MPI, library string) (err error) {
	program := s.Argv
	s.Ask, s.Argv = m.Ask, mpirunArgs(s, m.Ranks, m.Dilation)
	if m.Multicast {
		if s.Argv, err = withMulticast(s, library); err != nil {
			return err
		}
	}
	if m.Tagged {
		s.Argv = append(s.Argv, "--xml")
	}
	s.Argv = append(s.Argv, program...)
	return nil
}

// mpirunArgs are mpirun and its options, for rank i at hosts[i] of a lab whose clock is so slow.
func mpirunArgs(s *programStart, hosts []string, dilation float64) []string {
	args := []string{"mpirun"}
	if s.As.UID == 0 {
		args = append(args, "--allow-run-as-root")
	}
	// Many ranks share this server's processors. The daemons stay children of what has started them.
	args = append(args, "-np", strconv.Itoa(len(hosts)), "--host", strings.Join(hosts, ","), "--map-by", "seq", "--bind-to", "none")
	for _, o := range append([]setting{
		{"plm_rsh_agent", "/bin/sh " + filepath.Join(s.Dir, launchDir, launchShell)}, {"plm_rsh_no_tree_spawn", "1"}, {"oob_tcp_if_include", "mgmt0"},
	}, unset(mcaPrefix, mpiSettings()...)...) {
		args = append(args, "--mca", o.name, o.value)
	}
	for _, v := range append(programSettings(), rankSettings(dilation)...) {
		value, ok := os.LookupEnv(v.name)
		if !ok {
			value = v.value
		}
		args = append(args, "-x", v.name+"="+value)
	}
	return args
}

// multicastLibrary takes over the broadcasts of MPI programs.
const multicastLibrary = "libmcastmpi.so"

// withMulticast returns the arguments of mpirun with those by which ranks have their broadcasts done by the switches.
func withMulticast(s *programStart, library string) ([]string, error) {
	path := filepath.Join(library, multicastLibrary)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("look for the library that takes over broadcasts: %w: build it by make verbs where mpi.h is (apt-get install libopenmpi-dev)", err)
	}
	for _, v := range s.Env {
		if old, ok := strings.CutPrefix(v, preloadEnv+"="); ok && old != "" {
			path += ":" + old
		}
	}
	args := append(s.Argv, "-x", preloadEnv+"="+path, "-x", "MCASTLAB_MPI=1")
	for _, v := range []string{"MCASTLAB_MPI_MIN", "MCASTLAB_MPI_TIMEOUT", "MCASTLAB_MPI_VERBOSE"} {
		if value := os.Getenv(v); value != "" {
			args = append(args, "-x", v+"="+value)
		}
	}
	return args, nil
}
