package orchestrator

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// Open MPI's mpirun runs at the host of rank 0. At each other host it wants a daemon, orted, for which it calls a
// remote shell. Its remote shell here is a script that writes the daemon's command into a pipe with the name of the
// host, and whoever has started mpirun reads it and runs it there. Nothing that runs at a host can start anything
// elsewhere but so, and what is started is the same user's.

const (
	launchDir   = "launch" // in the folder of the node's sockets, as the program sees it
	launchShell = "rsh"    // the script; no host has that name, as the pipes are in the folder hosts beside it
	launchHosts = "hosts"
	scratchDir  = "tmp"
)

// askMax is the most bytes that the command of a daemon has.
const askMax = 64 << 10

// showLauncher makes the script and the pipes.
func (s *start) showLauncher() error {
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
func (s *start) showScratch() error {
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
func (d *Deployed) MPIRun(ctx context.Context, hosts []string, x Execution) (code int, err error) {
	failed := func(err error) (int, error) { return 0, fmt.Errorf("mpirun %s: %w", x.Argv[0], err) }
	all, err := d.mpi(ctx, hosts, &x)
	if err != nil {
		return failed(err)
	}
	if x.Multicast {
		var names []string
		for _, p := range all {
			names = append(names, p.node)
		}
		end, err := d.leaseGroups(names)
		if err != nil {
			return failed(err)
		}
		defer end()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	j := &mpiJob{all: all, x: &x, stop: stop, errs: make([]error, len(all)), ended: make(chan struct{})}
	daemons, stopDaemons := context.WithCancel(ctx)
	defer stopDaemons()
	all[0].started = func(guardian int) error { return j.listen(daemons, guardian) }
	code, err = all[0].run(ctx, x.In, x.Out, x.ErrOut)
	close(j.ended)
	for _, f := range j.pipes {
		_ = f.Close() // which ends who reads it
	}
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
	pipes   []*os.File
	errs    []error       // why daemons have ended before mpirun, by host
	ended   chan struct{} // closed when mpirun has ended
	running sync.WaitGroup
}

// listen runs the daemons that mpirun, which has been started by that guardian, asks for.
func (j *mpiJob) listen(ctx context.Context, guardian int) error {
	s := &j.all[0].start
	dir := fmt.Sprintf("/proc/%d/root%s", guardian, filepath.Join(s.Dir, launchDir, launchHosts))
	for _, h := range s.Ask {
		// Open for writing, too: the pipe does not end when nobody writes.
		f, err := os.OpenFile(filepath.Join(dir, h), os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return fmt.Errorf("hear what is to run at %s: %w", h, err)
		}
		j.pipes = append(j.pipes, f)
	}
	for i, f := range j.pipes {
		j.running.Go(func() {
			err := j.all[i+1].daemon(ctx, f, j.x)
			select {
			case <-j.ended:
				return
			default:
			}
			if j.errs[i+1] = err; err == nil {
				return
			}
			select { // mpirun, too, sees that, and perhaps says why
			case <-j.ended:
			case <-time.After(programGrace):
				j.stop(err)
			}
		})
	}
	return nil
}

// daemon runs the daemon of a host, once mpirun has said how.
func (p *program) daemon(ctx context.Context, pipe *os.File, x *Execution) error {
	line, err := bufio.NewReaderSize(pipe, askMax).ReadSlice('\n')
	switch {
	case errors.Is(err, os.ErrClosed):
		return nil // mpirun has ended
	case err != nil:
		return fmt.Errorf("hear what is to run at %s: %w", p.node, err)
	}
	p.start.Argv = []string{"/bin/sh", "-c", strings.TrimSuffix(string(line), "\n")}
	code, err := p.run(ctx, nil, x.Out, x.ErrOut)
	if err == nil && code != 0 {
		err = fmt.Errorf("the daemon at %s ended with exit code %d", p.node, code)
	}
	return err
}

// mpi prepares mpirun at the host of rank 0 and its daemons at the others, with ranks at hosts.
func (d *Deployed) mpi(ctx context.Context, ranks []string, x *Execution) (all []*program, err error) {
	if err := d.notSpread("mpirun"); err != nil {
		return nil, err
	}
	st, _, err := d.store.get()
	if err != nil {
		return nil, err
	}
	if !d.managed(&st) {
		return nil, fmt.Errorf("lab %s has no management network, by which mpirun starts ranks: mcastlab deploy --management", d.Lab.Name)
	}
	found, err := d.o.Engine.Find(ctx, d.Lab.Name)
	if err != nil {
		return nil, err
	}
	running := map[string]engine.Running{}
	for _, n := range found {
		running[n.Name] = n
	}
	var hosts []string // each once
	var at []engine.Running
	for _, h := range ranks {
		if slices.Contains(hosts, h) {
			continue
		}
		hosts = append(hosts, h)
		if why := d.WithoutNIC(h, x.Library); why != nil {
			return nil, fmt.Errorf("a rank at %s: %w", h, why)
		}
		if running[h].PID <= 0 {
			return nil, fmt.Errorf("a rank at %s: the node does not run: mcastlab deploy brings it back", h)
		}
		at = append(at, running[h])
	}
	if all, err = d.programs(at, x); err != nil {
		return nil, err
	}
	for _, p := range all {
		p.start.Scratch = true
		// Not by a parameter of Open MPI's, which mpirun would pass on to the other hosts.
		p.start.Env = append(slices.DeleteFunc(p.start.Env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }),
			"TMPDIR="+filepath.Join(p.start.Dir, scratchDir))
	}
	first := &all[0].start
	first.Ask = hosts[1:]
	states, err := d.States(ctx)
	if err != nil {
		return nil, err
	}
	first.Argv = mpirunArgs(first, ranks, states[0].Rate.Dilation)
	if x.Multicast {
		if first.Argv, err = withMulticast(first, x.Library); err != nil {
			return nil, err
		}
	}
	if x.tagged {
		first.Argv = append(first.Argv, "--xml")
	}
	first.Argv = append(first.Argv, x.Argv...)
	return all, nil
}

// udTick is how long UCX waits for an answer to a datagram before it sends it again, and udTickMax the longest that is
// set. UCX measures by the wall clock what the lab carries by its own: a datagram that was repeated because the lab's clock
// is slow, and crosses the answer to the first, ends UCX 1.13 by an assertion while two ranks connect to each other
// (openucx/ucx issues 2453, 6040 and 11107). UCX's own 10 ms times the dilation were too few where 16 ranks share two cores.
const (
	udTick    = 100 * time.Millisecond
	udTickMax = 10 * time.Second
)

// mpirunArgs are mpirun and its options, for rank i at hosts[i] of a lab whose clock is so slow.
func mpirunArgs(s *start, hosts []string, dilation float64) []string {
	args := []string{"mpirun"}
	if s.As.UID == 0 {
		args = append(args, "--allow-run-as-root")
	}
	// Many ranks share this machine's processors. The daemons stay children of what has started them.
	args = append(args, "-np", strconv.Itoa(len(hosts)), "--host", strings.Join(hosts, ","), "--map-by", "seq", "--bind-to", "none")
	for _, o := range [][2]string{
		{"mpi_yield_when_idle", "1"}, {"orte_leave_session_attached", "1"},
		{"plm_rsh_agent", "/bin/sh " + filepath.Join(s.Dir, launchDir, launchShell)}, {"plm_rsh_no_tree_spawn", "1"},
		{"oob_tcp_if_include", "mgmt0"}, {"pml", "ucx"}, {"btl", "^openib"}, {"osc", "^ucx"},
	} {
		args = append(args, "--mca", o[0], o[1])
	}
	tick := min(udTickMax, time.Duration(float64(udTick)*max(1, dilation)))
	for _, v := range [][2]string{
		{"UCX_NET_DEVICES", "mcast0:1"}, {"UCX_TLS", "rc,self"}, {"UCX_UD_TIMER_TICK", fmt.Sprintf("%dms", tick.Milliseconds())},
	} {
		args = append(args, "-x", v[0]+"="+cmp.Or(os.Getenv(v[0]), v[1]))
	}
	return args
}

// multicastLibrary takes over the broadcasts of MPI programs.
const multicastLibrary = "libmcastmpi.so"

// withMulticast returns the arguments of mpirun with those by which ranks have their broadcasts done by the switches.
func withMulticast(s *start, library string) ([]string, error) {
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
