// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// stranger is on the network of the servers, and is none of them: it has an address, and no certificate.
type stranger struct {
	t      *testing.T
	to     []*net.UDPConn // the VXLAN port, by server of the placement
	links  []farLink
	frames [][]byte // of the lab
	vni    int      // of link 0
	sent   int      // on each link in each direction
}

// farLink is a link between servers.
type farLink struct{ link, a, b int }

// strangerMost bounds what is sent on a link in a run: a socket that nobody reads for a while holds as many, and what comes for it
// from the node at the far end, too. No frame is longer.
const (
	strangerMost  = 100
	strangerBytes = 300
)

// newStranger puts one beside the engines, who knows all about a running lab: its identifiers, and the frames of a run that were
// captured on a link between servers.
func newStranger(t *testing.T, e *swarmEngines, name, text, captured string) *stranger {
	t.Helper()
	var p engine.Placement
	b, err := os.ReadFile(filepath.Join("/run/mcastlab", name, engine.PlacementFile))
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := lab.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	s := &stranger{t: t, vni: p.VNI, frames: shortFrames(t, captured)}
	for k, x := range g.Links {
		if a, b := p.At[x.A.Node], p.At[x.B.Node]; a != b {
			s.links = append(s.links, farLink{k, a, b})
		}
	}
	e.sh(fmt.Sprintf(`set -e
cd %s
: > stranger
unshare --net=stranger true
nsenter --net=stranger ip link add eth0 type veth peer name ps netns ./net0
nsenter --net=net0 ip link set ps master br0 up
nsenter --net=stranger sh -ec 'ip addr add 10.201.0.200/24 dev eth0; ip link set eth0 up'
`, e.dir))
	s.dial(filepath.Join(e.dir, "stranger"), &p)
	return s
}

// dial opens its sockets in its namespace, where they stay.
func (s *stranger) dial(namespace string, p *engine.Placement) {
	t := s.t
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close() //nolint:errcheck // nothing was written
	there, err := netns.GetFromPath(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close() //nolint:errcheck // nothing was written
	if err := netns.Set(there); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for _, m := range p.Servers {
		c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(m.Address), Port: p.Port})
		if err == nil {
			s.to = append(s.to, c)
			t.Cleanup(func() { _ = c.Close() }) // it has sent what it had to
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, netns.Set(here))...); err != nil {
		t.Fatal(err)
	}
}

// shortFrames returns the short frames of a capture. In the next run they are under way again, or about to be.
func shortFrames(t *testing.T, file string) (all [][]byte) {
	t.Helper()
	for _, b := range packetsOf(t, file) {
		if len(b) <= strangerBytes {
			all = append(all, b)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no short frame in %s", file)
	}
	return all
}

// send sends one frame on each link between servers, in both directions.
func (s *stranger) send() {
	frame := s.frames[s.sent%len(s.frames)]
	s.sent++
	for _, k := range s.links {
		b := binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, uint32(s.vni+k.link)<<8)
		for _, to := range []int{k.a, k.b} {
			if _, err := s.to[to].Write(append(b, frame...)); err != nil {
				s.t.Errorf("send as a stranger: %v", err)
			}
		}
	}
}

// start sends when the run under base is under way, and until end is called.
func (s *stranger) start(base string) (end func()) {
	over, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for last := s.sent + strangerMost; s.sent < last; {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if found, err := filepath.Glob(filepath.Join(base, "*", "trace.jsonl")); err == nil && len(found) > 0 {
				s.send()
			}
		}
	}()
	end = sync.OnceFunc(func() { close(over); <-stopped })
	s.t.Cleanup(end) // before its sockets are closed
	return end
}

// spreadStranger: a stranger sends a lab's own frames again on its links between servers. They are counted and refused, the run is the
// simulation all the same, and the next run knows nothing of them.
func spreadStranger(t *testing.T, e *swarmEngines, file, captured string) {
	t.Helper()
	s := newStranger(t, e, "t-spread", spreadLab, captured)
	for range 10 {
		s.send() // at rest
	}
	refused := regexp.MustCompile(`(?m)^mcastlab: [1-9][0-9]* frames that no node has sent were refused at \w+:\d`)
	for _, sends := range []bool{true, false} {
		runs := t.TempDir()
		end := func() {}
		if sends {
			end = s.start(runs)
		}
		o := onServer(t, e, 1, exitOK, "run", "-q", "-r", "docker", "--check-digest", "--runs", runs, file)
		end()
		if !strings.Contains(o.err, "which is the simulation's") || refused.MatchString(o.err) != sends || strings.Contains(o.err, "not deterministic") {
			t.Errorf("a stranger sends: %v, %d times\n%s%s", sends, s.sent, o.out, o.err)
		}
		report, err := os.ReadFile(filepath.Join(runs, "t-spread-1", "summary.json"))
		if err != nil || strings.Contains(string(report), "frames that no node has sent were refused at ") != sends {
			t.Errorf("a stranger sends: %v, %v\n%s", sends, err, report)
		}
	}
}

// onlyKnownPorts: while a lab is up, a server listens at the ports that docs/hosts.md has, and at those of the Swarm.
func onlyKnownPorts(t *testing.T, e *swarmEngines, more ...string) {
	t.Helper()
	for i := 1; i <= e.n; i++ {
		want := append([]string{"tcp 7940", "tcp 7946", "udp 4789", "udp 7940", "udp 7946"}, more...)
		if i == 1 {
			want = append(want, "tcp 2377") // it is the manager
		}
		slices.Sort(want)
		var got []string
		for line := range strings.Lines(e.inside(i, "ss -Hlntu")) {
			words := strings.Fields(line)
			host, port, err := net.SplitHostPort(words[4])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
				got = append(got, words[0]+" "+port)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("sw%d listens at %v, want %v", i, got, want)
		}
	}
}
