// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// four are servers m1 to m4.
func four() (all []Server) {
	for i := range 4 {
		all = append(all, Server{Node: fmt.Sprint("n", i+1), Name: fmt.Sprint("m", i+1), Address: fmt.Sprint("10.0.0.", i+1)})
	}
	return all
}

// between has everything well between servers but what spoil changes.
func between(all []Server, spoil func(s *daemon.Seen)) (seen []daemon.Seen) {
	for _, a := range all {
		for _, b := range all {
			if a.Node != b.Node {
				s := daemon.Seen{From: a.Node, To: b.Node, Frames: daemon.Frames()}
				spoil(&s)
				seen = append(seen, s)
			}
		}
	}
	return seen
}

// TestDiagnose: the server at fault is named, once, with the remedy.
func TestDiagnose(t *testing.T) {
	narrow := func(s *daemon.Seen) { s.Frames = []int{128, 1464} }
	const small = "frames of up to 1464 bytes arrive in UDP datagrams, and links need 9014: let IP fragments to UDP port 7940 pass, or raise the MTU between the servers"
	const closed = "let TCP and UDP ports 7940, and TCP port 7941, pass between the servers"
	for _, x := range []struct {
		name  string
		n     int
		spoil func(s *daemon.Seen)
		want  []string
	}{
		{"all well", 4, func(*daemon.Seen) {}, nil},
		{"one server", 1, narrow, nil},
		{"all ways to one", 4, func(s *daemon.Seen) {
			if s.To == "n3" {
				narrow(s)
			}
		}, []string{"m3 (10.0.0.3): from m1, m2, m4, " + small}},
		{"all ways from one", 4, func(s *daemon.Seen) {
			if s.From == "n2" {
				narrow(s)
			}
		}, []string{"m2 (10.0.0.2), on its way to m1, m3, m4: from m2, " + small}},
		{"one pair, one way", 4, func(s *daemon.Seen) {
			if s.From == "n2" && s.To == "n4" {
				narrow(s)
			}
		}, []string{"m4 (10.0.0.4): from m2, " + small}},
		{"all of two", 2, narrow, []string{"m2 (10.0.0.2): from m1, " + small, "m1 (10.0.0.1): from m2, " + small}},
		{"closed to all", 3, func(s *daemon.Seen) {
			if s.To == "n1" {
				s.Closed, s.Error = true, "connection refused"
			}
		}, []string{"m1 (10.0.0.1): TCP port 7940 does not answer m2, m3: " + closed}},
		{"UDP closed", 3, func(s *daemon.Seen) {
			if s.To == "n1" {
				s.Frames = nil
			}
		}, []string{"m1 (10.0.0.1): UDP port 7940 lets nothing in from m2, m3: let TCP and UDP ports 7940 pass between the servers"}},
		{"refused", 2, func(s *daemon.Seen) {
			if s.To == "n1" {
				s.Error = "100 % wrong"
			}
		}, []string{"m1 (10.0.0.1): m2 cannot ask it: 100 % wrong"}},
		{"two at once", 4, func(s *daemon.Seen) {
			switch {
			case s.To == "n1":
				s.Frames = nil
			case s.To == "n4":
				narrow(s)
			}
		}, []string{"m4 (10.0.0.4): from m1, m2, m3, " + small, "m1 (10.0.0.1): UDP port 7940 lets nothing in from m2, m3, m4: let TCP and UDP ports 7940 pass between the servers"}},
	} {
		all := four()[:x.n]
		if got := diagnose(all, between(all, x.spoil), daemon.Port); !slices.Equal(sorted(got), sorted(x.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", x.name, strings.Join(got, "\n"), strings.Join(x.want, "\n"))
		}
	}
}

func sorted(lines []string) []string {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	return lines
}

// TestClocks: the server whose clock is off is named, even if it is the one that asks.
func TestClocks(t *testing.T) {
	ahead := func(all []Server, by ...time.Duration) []Server {
		for i, d := range by {
			n := int64(d)
			all[i].Ahead = &n
		}
		return all
	}
	if got := clocks(ahead(four(), 0, time.Millisecond, -2*time.Millisecond, ClockLimit)); len(got) != 0 {
		t.Errorf("%v", got)
	}
	got := clocks(ahead(four(), 0, 0, -3*time.Second, 0))
	if want := "m3 (10.0.0.3): its clock is 3s behind those of the other servers, more than 500ms: run an NTP client there, chrony or systemd-timesyncd"; len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	got = clocks(ahead(four(), 0, time.Minute, time.Minute, time.Minute)) // m1 asks
	if len(got) != 1 || !strings.HasPrefix(got[0], "m1 (10.0.0.1): its clock is 1m0s behind") {
		t.Errorf("%q", got)
	}
	if got := clocks(four()); len(got) != 0 {
		t.Errorf("of clocks that nobody knows: %v", got)
	}
}
