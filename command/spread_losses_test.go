// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/internal/controller"
	"github.com/mcastlab/mcastlab/internal/controller/client"
	"github.com/mcastlab/mcastlab/internal/controller/controllertest"
)

// loss is the loss of a server in mid-run, drawn from a seed.
type loss struct {
	seed   uint64
	k      int // of the fat-tree
	links  string
	plane  bool          // three controllers, and it is the server of the one that leads
	server int           // of no plane
	after  time.Duration // since the command began
	cut    bool          // its network goes before its engine
	back   bool          // it is back before the lab is destroyed
}

func drawLoss(seed uint64) *loss {
	s := prng.New(seed)
	r := s.Derive("loss")
	return &loss{
		seed: seed, k: 2 + 2*r.IntN(2), links: []string{"auto", "vxlan", "userspace"}[r.IntN(3)], plane: seed%2 == 1, server: 2 + r.IntN(2),
		after: time.Duration(r.IntN(5000)) * time.Millisecond, cut: r.IntN(2) == 0, back: r.IntN(3) == 0,
	}
}

// TestSpreadLosses loses a server two hundred times, in every other one that of the controller that leads: the run ends, names it, and destroy leaves
// nothing. TestSpreadLosses/^17$ is one of them.
func TestSpreadLosses(t *testing.T) {
	if os.Getenv("MCASTLAB_SOAK") == "" {
		t.Skip("takes hours: set MCASTLAB_SOAK")
	}
	needSwarmEngines(t)
	e := testbed(t, 3)
	t.Cleanup(func() { invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread-ctl") }) // before the engines end
	for seed := range uint64(200) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			x := *e
			x.t = t // which fails
			drawLoss(seed).happen(t, &x)
		})
		if t.Failed() {
			return // what is left would make all that follow fail
		}
	}
	onSwarm(t, e, 1, exitOK, "down", "-q")
	e.nothing("down")
}

// lab returns the lab to run, which takes longer than the server lasts.
func (l *loss) lab() string {
	controllers := ""
	if l.plane {
		controllers = "controllers: 3\n"
	}
	return fmt.Sprintf("name: t-spread-ctl\ntopology: {fat-tree: {k: %d}}\nruntime: {hosts: \"sw1,sw2,sw3\", links: %s}\n%sworkloads:\n"+
		"  - bcast: {schemes: [cepheus, {chain: {slices: 4}}], sizes: [64B, 64KiB], iterations: 10000}\n", l.k, l.links, controllers)
}

func (l *loss) happen(t *testing.T, e *swarmEngines) {
	t.Logf("%+v", *l)
	file, runs := write(t, l.lab()), t.TempDir()
	waitLong(t, func() bool { return invoke(t, e.env(1), "deploy", "-q", file).code == exitOK }) // the server that was lost before is in the Swarm again
	server, leader := l.server, ""
	var clients *planeClients
	if l.plane {
		x := spreadPlane(t, e, 0)
		leader, server = leaderElsewhere(t, e, x)
		clients = beginClients(t, e, x)
	}
	cmd, said := e.begin("run", "-q", "-r", "docker", "--runs", runs, file)
	<-time.After(l.after)
	if l.cut {
		e.cut(server)
	}
	e.killEngine(server)
	if !l.cut {
		e.cut(server)
	}
	endsSoon(t, cmd)
	if code, name := cmd.ProcessState.ExitCode(), fmt.Sprintf("sw%d", server); code != exitRuntime || !strings.Contains(said.String(), name) {
		t.Errorf("without %s, exit %d\n%s", name, code, said.String())
	}
	if l.plane {
		clients.end(t, leader, fmt.Sprintf("go test ./command -run 'TestSpreadLosses/^%d$'", l.seed))
	}
	if l.back {
		e.mend(server)
		waitLong(t, func() bool { return invoke(t, e.env(1), "destroy", "t-spread-ctl").code == exitOK })
		e.undeployed()
		return
	}
	spreadBack(t, e, "t-spread-ctl", server)
}

// endsSoon waits for a command, which is not to go on for minutes.
func endsSoon(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	end := make(chan error, 1)
	go func() { end <- cmd.Wait() }()
	select {
	case <-end:
	case <-time.After(3 * time.Minute):
		_ = cmd.Process.Signal(syscall.SIGABRT) // its goroutines are printed
		<-end
		t.Errorf("%v goes on", cmd.Args)
	}
}

// planeClients ask controllers for leases and faults of another lab than the one that runs.
type planeClients struct {
	x    *client.Client
	h    *controllertest.History
	stop chan struct{}
	all  sync.WaitGroup
}

func beginClients(t *testing.T, e *swarmEngines, x *client.Client) *planeClients {
	t.Helper()
	for _, cmd := range []controller.Command{
		{Kind: controller.KindDeploy, Message: []byte(`"of no nodes"`)}, {Kind: controller.KindPhase, Phase: controller.PhaseUp},
		{Kind: controller.KindBegin, Run: controllertest.Run},
	} {
		cmd.Lab = controllertest.Lab
		if _, err := x.Do(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	p := &planeClients{x: x, h: controllertest.New(), stop: make(chan struct{})}
	for who := range 3 {
		c := spreadPlane(t, e, who)
		p.all.Go(func() { p.h.Work(t.Context(), t, who, c, prng.New(uint64(who)), p.stop) })
	}
	return p
}

// end demands that another leads than the one that was lost, that this one knows it, and that all which was acknowledged is kept.
func (p *planeClients) end(t *testing.T, lost, replay string) {
	t.Helper()
	next := leaderOf(t, p.x, lost)
	waitLong(t, func() bool { // the one that is alone knows that it leads no more
		return !slices.ContainsFunc(p.x.Status(t.Context()), func(s client.Status) bool { return s.ID == lost && s.State == "leader" })
	})
	close(p.stop)
	p.all.Wait()
	p.h.Read(t.Context(), 9, p.x)
	p.h.Check(t, replay)
	t.Logf("%s led, and after it was lost %s", lost, next)
}

// killEngine kills a server's engine.
func (e *swarmEngines) killEngine(server int) {
	e.t.Helper()
	if err := syscall.Kill(e.pid(server, "pid"), syscall.SIGKILL); err != nil {
		e.t.Fatal(err)
	}
}

// cut takes a server's network away.
func (e *swarmEngines) cut(server int) {
	e.t.Helper()
	e.sh(fmt.Sprintf("nsenter --net=%s/net0 ip link set p%d down", e.dir, server))
}

// mend gives a server its network back, and starts its engine.
func (e *swarmEngines) mend(server int) {
	e.t.Helper()
	e.sh(fmt.Sprintf("nsenter --net=%s/net0 ip link set p%d up", e.dir, server))
	e.startAgain(server)
}
