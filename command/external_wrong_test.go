// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/mcastlab/mcastlab/internal/test/interop/rcpeer"
)

// wrongCase is a device that is not connected as the lab expects.
type wrongCase struct {
	externalCase
	change func(*rcpeer.Config)
	absent bool                                                          // there is no device
	posted int                                                           // receives
	act    func(ctx context.Context, p *rcpeer.Peer, run *started) error // what it does
	want   string
}

// TestExternalWrong: a run whose device is set up wrongly, or is not there, ends soon, with exit
// 4 and one line that names the device, tells the causes apart, and says what was seen of it.
func TestExternalWrong(t *testing.T) {
	need(t, "netns")
	unchanged(t)
	const (
		to    = "schemes: [cepheus], root: h0"
		from  = "schemes: [cepheus], root: h3"
		uniFr = "schemes: [unicast], ranks: [h1, h3], root: h3"
		other = "10.254.255.9"
	)
	send := func(ctx context.Context, p *rcpeer.Peer, run *started) error {
		run.line(t, "^h3: send 1048576 bytes now") // what is seen before a run begins is not the run's
		_ = p.Post(rcpeer.Request{Data: make([]byte, 1<<20)})
		return nil
	}
	at := func(workload string) externalCase {
		c := externalCase{workload: workload, remote: group, own: "10.0.0.4", nics: "timeout: 537ms, retries: 2"}
		c.complete()
		return c
	}
	unicast := at(uniFr)
	unicast.remote = "10.0.0.2"
	keyed := at(to)
	keyed.write, keyed.device = true, fmt.Sprintf(", va: %#x, rkey: %d", deviceVA, deviceKey+1)
	first := func(c externalCase) uint32 { return c.start() }(at(to))
	for name, c := range map[string]wrongCase{ // independent of each other
		"qpn": {externalCase: at(to), posted: 1, change: func(x *rcpeer.Config) { x.QPN = 0x43 },
			want: "packets went to its QP 66 and none was answered: is that the number of its queue pair, and is it connected to " + group},
		"group": {externalCase: at(to), posted: 1, change: func(x *rcpeer.Config) { x.PeerIP = netip.MustParseAddr(other) },
			want: "it looks for " + other + ", and should be connected to " + group},
		"address": {externalCase: at(to), posted: 1, change: func(x *rcpeer.Config) { x.IP = netip.MustParseAddr("10.0.0.9") },
			want: "it sends from the address 10.0.0.9, and its address in the lab is 10.0.0.4: give it that one"},
		"absent": {externalCase: at(to), absent: true, want: "no host answers for 10.0.0.4 on interface IFACE"},
		"psn-early": {externalCase: at(to), posted: 1, change: func(x *rcpeer.Config) { x.PeerPSN -= 5 },
			want: fmt.Sprintf("it asks for PSN %d, and the lab starts at PSN %d", first-5, first)},
		"psn-late": {externalCase: at(to), posted: 1, change: func(x *rcpeer.Config) { x.PeerPSN = 70000 },
			want: "it acknowledges packets that it was not sent: the lab starts at PSN " + strconv.Itoa(int(first))},
		"no-receive": {externalCase: at(to), want: fmt.Sprintf("it has no receive posted for PSN %d", first)},
		"no-send":    {externalCase: at(from), want: "it has sent nothing"},
		"source-psn": {externalCase: at(from), act: send, change: func(x *rcpeer.Config) { x.StartPSN += 7 },
			want: fmt.Sprintf("its first packet has PSN %d, and the lab expects %d", first+7, first)},
		"source-group": {externalCase: at(from), act: send, change: func(x *rcpeer.Config) { x.PeerIP = netip.MustParseAddr(other) },
			want: "it sends to " + other + ", and should be connected to " + group},
		"source-qpn": {externalCase: unicast, act: send, want: "it sends to QP 17 at 10.0.0.2, and should be connected to QP "},
		"key":        {externalCase: keyed, want: fmt.Sprintf("it refuses PSN %d with NAK(remote access)", first)},
		"atomic-key": {externalCase: unicast, act: wrongAtomic, want: "h3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program1(t) // its making takes time of its own
			c.device += ", window: 64KiB"
			iface, lab := "mcl"+name, "t-ext-"+name
			dev := tap(t, iface)
			file := write(t, strings.Replace(c.lab(lab), "wait: 20s", "wait: 2s", 1))
			ctx, stop := context.WithTimeout(t.Context(), externalWait)
			defer stop()
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			var p *rcpeer.Peer
			if !c.absent {
				p = c.peer(t, dev, 17, c.change)
				p.PostRecv(c.posted)
			}
			run := start2(ctx, t, iface, file)
			if c.act != nil {
				if err := c.act(ctx, p, run); err != nil {
					t.Error(err)
				}
			}
			endsWrong(t, run, strings.Replace(c.want, "IFACE", iface, 1))
			if p != nil {
				if t.Failed() {
					t.Logf("the peer counted %+v", p.Stats())
				}
				_ = p.Close() // its queue pair may be in the error state
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// start2 starts a run that brings the lab up and takes it down.
func start2(ctx context.Context, t *testing.T, iface, file string) *started {
	return start(ctx, t, "run", "-q", "-r", "netns", "--attach", "h3="+iface, "--runs", t.TempDir(), "--format", "json", file)
}

// endsWrong waits for the end of a run, which names the device, what is wrong and what was
// seen.
func endsWrong(t *testing.T, run *started, want string) {
	t.Helper()
	line := run.line(t, `^mcastlab: (.*)\n`)[1]
	err := run.cmd.Wait()
	if code := run.cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(line, "external host h3: ") || !strings.Contains(line, want) || !strings.Contains(line, "(seen: ") {
		t.Errorf("%v: want exit 4 and %q\n%s", err, want, run.all.String())
	}
}

// wrongAtomic adds to memory with a key that the rank has not given out: the rank refuses.
func wrongAtomic(ctx context.Context, p *rcpeer.Peer, run *started) error {
	for {
		l, err := run.err.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the run ended without telling where the memory is: %w", err)
		}
		if m := regexp.MustCompile(`^h3: .* are at VA (0x[0-9a-f]+) `).FindStringSubmatch(l); m != nil {
			va, err := strconv.ParseUint(m[1], 0, 64)
			if err != nil {
				return err
			}
			qp := regexp.MustCompile(`connect QP 66 to QP (\d+)`).FindStringSubmatch(run.all.String())
			n, err := strconv.ParseUint(qp[1], 10, 24)
			if err != nil {
				return err
			}
			p.SetPeerQPN(uint32(n))
			if _, err = p.FetchAdd(ctx, 1, va, 1); !errors.Is(err, rcpeer.ErrRemote) || !strings.Contains(err.Error(), "NAK 0x62") {
				return fmt.Errorf("an atomic with a wrong key: %w, want NAK 0x62", err)
			}
			return nil
		}
	}
}

// TestExternalCarrier: an interface without carrier is a warning of deploy, and the cause in
// a run.
func TestExternalCarrier(t *testing.T) {
	need(t, "netns")
	before := snapshot(t)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "mclrc0", MTU: 4200}, PeerName: "mclrc1", PeerMTU: 4200}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) }) // it may be gone
	l, err := netlink.LinkByName("mclrc1")
	if err == nil {
		err = netlink.LinkSetUp(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := externalCase{workload: "schemes: [cepheus], root: h0", remote: group}
	c.complete()
	file := write(t, strings.Replace(c.lab("t-ext"), "wait: 20s", "wait: 1s", 1))
	t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", "t-ext") })
	o := must(t, "deploy", "-q", "-r", "netns", "--attach", "h3=mclrc1", file)
	if want := "warning: interface mclrc1 of external host h3 has no carrier"; !strings.HasPrefix(o.err, want) {
		t.Errorf("deploy says %q, want %q", o.err, want)
	}
	ctx, stop := context.WithTimeout(t.Context(), externalWait)
	defer stop()
	endsWrong(t, start(ctx, t, "run", "-q", "-r", "netns", "--runs", t.TempDir(), "--format", "json", file), "interface mclrc1 has no carrier")
	must(t, "destroy", "t-ext")
	if err := netlink.LinkDel(pair); err != nil {
		t.Error(err)
	}
	same(t, before, snapshot(t))
}

// TestExternalVerdict: what was sent twice, and what found no room, is counted against the
// run, and a device that is waited for costs nothing.
func TestExternalVerdict(t *testing.T) {
	need(t, "netns")
	unchanged(t)
	for name, c := range map[string]struct { // independent of each other
		externalCase
		window int
		code   int
		want   string
	}{
		"overrun": {externalCase{workload: "schemes: [cepheus], root: h3", source: true, size: 64 << 10, device: ", window: 16KiB"}, 24, 5, "packets of external hosts found external.window full"},
		"late":    {externalCase{workload: "schemes: [cepheus], root: h0", device: ", ready: now", nics: "timeout: 268ms", size: 64 << 10}, 0, 5, "retransmission timers fired although nothing was lost"},
		"word":    {externalCase{workload: "schemes: [cepheus], root: h0", device: ", ready: word", size: 64 << 10}, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program1(t) // its making takes time of its own
			c.remote, c.own = group, "10.0.0.4"
			c.complete()
			iface, lab := "mcl"+name, "t-ext-"+name
			dev := tap(t, iface)
			file := write(t, c.lab(lab))
			ctx, stop := context.WithTimeout(t.Context(), externalWait)
			defer stop()
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			run := start2(ctx, t, iface, file)
			switch name {
			case "late":
				fired := regexp.MustCompile(`mcastlab_host_timeouts_total\{node="h0"\} [1-9]`)
				for !fired.MatchString(invoke(t, nil, "inspect", "--format", "prometheus", lab).out) {
					if ctx.Err() != nil {
						_, _ = io.Copy(io.Discard, run.err) // to its end, so that all has it
						t.Fatalf("no retransmission timer fires: %v\n%s", run.cmd.Wait(), run.all.String())
					}
				}
			default:
				run.line(t, "^h3: .* connect QP 66 ")
			}
			p := c.peer(t, dev, 17, func(x *rcpeer.Config) {
				x.Window = c.window
				if c.source {
					x.Timeout = 250 * time.Millisecond
				}
			})
			p.PostRecv(1)
			if name == "word" {
				run.line(t, "^h3: nothing is sent to it until it looks for "+group+", or mcastlab group ready h3 says")
				if s := p.Stats(); s.DataReceived != 0 {
					t.Errorf("the peer counted %+v before it was ready", s)
				}
				must(t, "group", "ready", "--lab", lab, "h3")
			}
			if c.source {
				run.line(t, "^h3: send 65536 bytes now")
				if err := p.Send(ctx, make([]byte, c.size)); err != nil {
					t.Fatalf("%v; the peer counted %+v", err, p.Stats())
				}
			}
			if rep := run.report(t, c.code); !strings.Contains(strings.Join(rep.Fidelity.Reasons, "; "), c.want) {
				t.Errorf("the verdict is %+v, want %q", rep.Fidelity, c.want)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestExternalSteps: the steps of docs/running.md, to the letter, which are those of the
// example. They work twice.
func TestExternalSteps(t *testing.T) {
	page, err := os.ReadFile("../docs/running.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("../examples/external.mcl.yml")
	if err != nil {
		t.Fatal(err)
	}
	steps := regexp.MustCompile(`(?m)^    (?:sudo )?((?:ip|mcastlab) .*external.*|ip .*rc0.*|mcastlab rc .*)$`).FindAllStringSubmatch(string(page), -1)
	if len(steps) != 6 {
		t.Fatalf("docs/running.md has %d steps: %q", len(steps), steps)
	}
	script := "set -e\n"
	for i, s := range steps {
		if !strings.Contains(string(example), "#   "+s[1]+"\n") {
			t.Errorf("the example does not say %q", s[1])
		}
		if script += s[1] + "\n"; i == 3 {
			script += "wait\n" + steps[2][1] + "\n" + s[1] + "\nwait\n" // and once more
		}
	}
	need(t, "docker")
	before := snapshot(t)
	ctx, stop := context.WithTimeout(t.Context(), 2*externalWait)
	defer stop()
	t.Cleanup(func() {
		invokeCtx(context.Background(), t, nil, "destroy", "external")
		_ = exec.Command("ip", "link", "del", "rc0").Run() // it may be gone
	})
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program1(t))+":"+os.Getenv("PATH"), "MCASTLAB_RUN_RUNS="+t.TempDir())
	cmd.WaitDelay = 10 * time.Second // a device whose run has failed waits on, and holds the output
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "at which this server cannot carry links.rate") {
		t.Skipf("this server is too busy for the rate of the example:\n%s", out)
	}
	if n := strings.Count(string(out), "Every byte was right at every receiver"); err != nil || n != 2 || strings.Count(string(out), "recv 4194304 bytes") != 2 {
		t.Errorf("%v, %d good runs\n%s", err, n, out)
	}
	same(t, before, snapshot(t))
}
