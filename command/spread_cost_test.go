// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// costCase is a lab whose rounds are timed: a fat-tree over a number of servers, with a delay of frames between servers.
type costCase struct {
	machines, k int
	delay       time.Duration // each way
	held        bool          // the model is not fitted to it
}

// costCases are measured in this order. What is held out was chosen before the first run: the model is to be within costBand of it. Two cases of
// k = 8 have been taken out since: with two such labs, 416 nodes, the engines on two busy processors lost one another.
var costCases = []costCase{
	{1, 4, 0, false}, {2, 4, 0, false}, {3, 4, 0, false}, {5, 4, 0, false},
	{1, 6, 0, false}, {2, 6, 0, true}, {3, 6, 0, false}, {5, 6, 0, false},
	{3, 4, 500 * time.Microsecond, false}, {3, 4, 2 * time.Millisecond, false}, {5, 6, time.Millisecond, true},
}

const costBand = 0.3

// cost is the average time of a round of such a lab.
type cost struct {
	costCase
	nodes         int
	rtt           float64 // seconds
	round, caller float64 // seconds of the wall clock, and of the processor in the command that grants
	grants, bytes float64
	micros        float64 // of lab time
}

// TestSpreadCost measures what rounds of labs over one to five servers take, fits a model of it, and writes the page that
// MCASTLAB_COST names. The servers are namespaces of this one, and share its processors.
func TestSpreadCost(t *testing.T) {
	page := os.Getenv("MCASTLAB_COST")
	if page == "" {
		t.Skip("takes minutes, and wants a server without other work: set MCASTLAB_COST to the file of the page")
	}
	needSwarmEngines(t)
	e := testbed(t, 5)
	t.Cleanup(func() { // before the engines end
		invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread-cost0")
		invokeCtx(context.Background(), t, e.env(1), "destroy", "t-spread-cost1")
	})
	var all []cost
	for _, c := range costCases {
		all = append(all, e.cost(c))
		t.Logf("%+v", all[len(all)-1])
	}
	m := fitCost(all)
	if err := os.WriteFile(page, []byte(costPage(all, m)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if off := m.round(&c)/c.round - 1; c.held && math.Abs(off) > costBand {
			t.Errorf("%d servers, k = %d: the model is %+.0f %% off, more than %.0f %%", c.machines, c.k, 100*off, 100*costBand)
		}
	}
	onSwarm(t, e, 1, exitOK, "down", "-q")
}

// cost measures one case: what a long message takes more than a short one, by the rounds that it takes more.
func (e *swarmEngines) cost(c costCase) cost {
	t := e.t
	t.Helper()
	line := e.delayLine(c.delay)
	defer line.end()
	var hosts, files []string
	for i := range c.machines {
		hosts = append(hosts, fmt.Sprint("sw", i+1))
	}
	for i, size := range []string{"64KiB", "1MiB"} {
		files = append(files, write(t, fmt.Sprintf("name: t-spread-cost%d\ntopology: {fat-tree: {k: %d}}\nruntime: {hosts: %q}\nworkloads:\n"+
			"  - bcast: {schemes: [cepheus], sizes: [%s], iterations: 4}\n", i, c.k, strings.Join(hosts, ","), size)))
		onServer(t, e, 1, exitOK, "deploy", "-q", files[i])
	}
	x := cost{costCase: c, nodes: c.k*c.k*c.k/4 + 5*c.k*c.k/4, rtt: e.ping()}
	const pairs = 3
	var rounds, callers []float64
	for range pairs {
		a, ca := e.costRun(files[0])
		b, cb := e.costRun(files[1])
		n := float64(b.Rounds - a.Rounds)
		rounds, callers = append(rounds, (b.WallSeconds-a.WallSeconds)/n), append(callers, (cb-ca)/n)
		x.grants, x.bytes, x.micros = float64(b.Grants-a.Grants)/n, float64(b.RoundBytes-a.RoundBytes)/n, (b.LabUS-a.LabUS)/n
	}
	slices.Sort(rounds)
	slices.Sort(callers)
	x.round, x.caller = rounds[pairs/2], callers[pairs/2]
	for i := range files {
		onServer(t, e, 1, exitOK, "destroy", fmt.Sprint("t-spread-cost", i))
	}
	return x
}

// costRun runs a running lab, and returns the run's report of itself and the CPU time of the command.
func (e *swarmEngines) costRun(file string) (m runner.Meta, caller float64) {
	t := e.t
	t.Helper()
	runs := t.TempDir()
	cmd := exec.Command(program1(t), "run", "-q", "-r", "hosts", "--runs", runs, file)
	cmd.Env = append(os.Environ(), e.env(1)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, err := filepath.Glob(filepath.Join(runs, "*", "meta.json"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d runs, %v", len(all), err)
	}
	b, err := os.ReadFile(all[0])
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
}

// ping returns the round-trip time between this server and the first, in seconds.
func (e *swarmEngines) ping() float64 {
	e.t.Helper()
	out := e.sh("ping -q -c 20 -i 0.02 10.201.0.1")
	var least, mean float64
	if _, err := fmt.Sscanf(out[strings.LastIndex(out, "= ")+2:], "%f/%f/", &least, &mean); err != nil {
		e.t.Fatalf("%v\n%s", err, out)
	}
	return mean / 1e3
}

// delayLine takes the place of the bridge between the servers: what comes in at a port leaves at all others, so much later.
type delayLine struct {
	e     *swarmEngines
	files []*os.File
	all   sync.WaitGroup
}

// wireFrame is a frame under way, with the kernel's header that says which of its checksums are missing and what it is to be cut into.
type wireFrame struct {
	at time.Time
	b  []byte
}

func (e *swarmEngines) delayLine(d time.Duration) *delayLine {
	e.t.Helper()
	l := &delayLine{e: e}
	if d == 0 {
		return l
	}
	err := ns.WithNetNSPath(filepath.Join(e.dir, "net0"), func(ns.NetNS) error {
		for i := range e.n + 1 {
			name := fmt.Sprint("p", i)
			if i == 0 {
				name = "out"
			}
			dev, err := net.InterfaceByName(name)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err != nil {
				return err
			}
			l.files = append(l.files, os.NewFile(uintptr(fd), name))
			all := uint16(unix.ETH_P_ALL)
			err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1), unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20),
				unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: dev.Index}))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	e.inside(0, "ip link set br0 down")
	for i, f := range l.files {
		under := make(chan wireFrame, 1<<16)
		l.all.Go(func() {
			defer close(under)
			for {
				b := make([]byte, 10+65550)
				n, err := f.Read(b)
				if err != nil {
					return // it has been closed
				}
				under <- wireFrame{time.Now().Add(d), b[:n]}
			}
		})
		l.all.Go(func() {
			for w := range under {
				<-time.After(time.Until(w.at))
				for k, to := range l.files {
					if k != i {
						_, _ = to.Write(w.b) // a wire may lose frames
					}
				}
			}
		})
	}
	return l
}

// end has the bridge carry frames again.
func (l *delayLine) end() {
	if len(l.files) == 0 {
		return
	}
	for _, f := range l.files {
		_ = f.Close() // nothing is buffered
	}
	l.all.Wait()
	l.e.inside(0, "ip link set br0 up")
}

const costHead = `# What rounds over servers cost

Written by ` + "`make cost-page`" + ` from measurements on %d processors (%s), which all servers of the test share: Docker engines in network namespaces, in one Swarm. A lab in
virtual time ([several servers](hosts.md)) advances in rounds: one message each way between the command that runs the lab and each server that has a node with a turn.
Measured is a broadcast to all hosts of a fat-tree: what 1 MiB takes more than 64 KiB, by the rounds that it takes more, the middle one of three pairs. Where a delay is given,
frames between servers wait for it in a program of the test. meta.json of any run has its rounds, grants (turns of nodes) and round_bytes.

| servers | k | nodes | round trip, ms | turns a round | bytes a round | lab time a round, us | round, ms | rounds a second | model, ms | off |
|---|---|---|---|---|---|---|---|---|---|---|
`

const costFit = `
The last columns are those of a model: a round takes

    %.3f ms + %.2f us for each turn in the command that runs the lab, + %.3f ms for each server,
    + %.1f us for each turn of the processor that has most of them, and %.2f us more of it for each node that the processor has, + one round trip

Its numbers are fitted to the rows without a star, by least squares of relative errors, the first two to the processor's time of the command alone. None may be negative. Rows
with a star were set aside before the first run, with %.0f %% as what the model may be off there. It has been changed twice after runs: what nodes take that share a processor
came in when it was too low for many of them, and what the test's own program takes, which delays frames, when a run on a slow server was 53 %% off in the last row,
which has been no test of it since. That program copies each frame to every port: %.1f us for each turn and server in the rows with a delay, and is part of no real testbed. Rows
of k = 8 were taken out: two such labs are 416 nodes, and engines that share two processors with them lose one another. What messages weigh cannot be
told from what turns do, since both grow alike; at 10 Gb/s the bytes of the table take microseconds.

## Larger testbeds

By the model, which has seen neither so many servers nor processors, and nothing of a network that is busy: 16 servers of 64 processors, with a turn for as large a part of
the nodes, and as much lab time a round, as k = %d has here.

| k | nodes | nodes a processor | turns a round | round trip, ms | round, ms | rounds a second | a ms of lab time, s |
|---|---|---|---|---|---|---|---|
`

// costPage is the page.
func costPage(all []cost, m *costModel) string {
	var b strings.Builder
	processor := "unknown"
	info, _ := os.ReadFile("/proc/cpuinfo") // it is for the reader alone
	if _, after, ok := strings.Cut(string(info), "model name\t: "); ok {
		processor, _, _ = strings.Cut(after, "\n")
	}
	fmt.Fprintf(&b, costHead, runtime.NumCPU(), processor)
	largest := &all[0]
	for i := range all {
		c := &all[i]
		if c.nodes > largest.nodes {
			largest = c
		}
		star := ""
		if c.held {
			star = " *"
		}
		fmt.Fprintf(&b, "| %d%s | %d | %d | %.2f | %.1f | %.0f | %.3f | %.3f | %.0f | %.3f | %+.0f %% |\n", c.machines, star, c.k, c.nodes, 1e3*c.rtt, c.grants, c.bytes,
			c.micros, 1e3*c.round, 1/c.round, 1e3*m.round(c), 100*(m.round(c)/c.round-1))
	}
	fmt.Fprintf(&b, costFit, 1e3*m.first, 1e6*m.order, 1e3*m.machine, 1e6*m.node, 1e6*m.crowd, 100*costBand, 1e6*m.line, largest.k)
	const machines, cores = 16, 16 * 64
	for _, k := range []int{16, 32} {
		nodes := k*k*k/4 + 5*k*k/4
		turns := largest.grants * float64(nodes) / float64(largest.nodes)
		for _, rtt := range []float64{50e-6, 500e-6} {
			round := m.of(machines, float64(nodes), turns, cores, rtt)
			fmt.Fprintf(&b, "| %d | %d | %.1f | %.0f | %.2f | %.2f | %.0f | %.1f |\n", k, nodes, float64(nodes)/cores, turns, 1e3*rtt, 1e3*round, 1/round, round*1e3/largest.micros)
		}
	}
	return b.String()
}
