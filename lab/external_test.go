// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

const externalText = `name: x
topology: {star: {hosts: 4}}
links: {rate: 1Gbps}
hosts:
  - {name: h3, kind: external, external: {qpn: 0x42, send-psn: 100, receive-psn: 100, va: 0x7f0000000000, rkey: 0xffffffff}}
  - {name: h1}
workloads:
  - bcast: {schemes: [cepheus], sizes: [1MiB]}
`

func TestExternal(t *testing.T) {
	l, err := Parse("x", []byte(externalText))
	if err != nil {
		t.Fatal(err)
	}
	x := l.ExternalHost("h3")
	if x == nil || x.QPN != 0x42 || x.VA != 0x7f0000000000 || x.RKey != 0xffffffff || x.Window != 2<<20 || x.Timeout.String() != "67.108864ms" {
		t.Errorf("external host %+v", x)
	}
	if l.ExternalHost("h1") != nil || l.ExternalHost("h0") != nil {
		t.Error("h0 or h1 is external")
	}
	again, err := Parse("x", l.Resolved())
	if err != nil || string(again.Resolved()) != string(l.Resolved()) {
		t.Errorf("read again: %v\n%s", err, l.Resolved())
	}
}

func TestExternalMistakes(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"name: h3", "name: h9", `there is no host "h9"`},
		{"name: h1", "name: h3", "host h3 appears twice"},
		{"qpn: 0x42", "qpn: 0x1000000", "qpn of 16777216 is more than 16777215"},
		{"qpn: 0x42", "qpn: -1", "is not a whole number"},
		{"kind: external", "kind: extern", `cannot be "extern", did you mean "external"?`},
		{"va: 0x7f0000000000", "window: 1B", "window of 1B is not 16KiB to 64MiB"},
		{"schemes: [cepheus]", "schemes: [binomial]", "binomial needs every rank to run a program, and h3 is external"},
		{"schemes: [cepheus]", "schemes: [{unicast: {transport: ud}}]", "transport ud needs every rank to run a program, and h3 is external"},
		{"schemes: [cepheus]", "schemes: [cepheus, unicast]", "one scheme per workload"},
		{"schemes: [cepheus]", "schemes: [cepheus], memory: hashed", "memory hashed is for ranks of the lab alone"},
		{"schemes: [cepheus]", "schemes: [unicast], root: h3", "as unicast source it can serve one rank"},
		{"receive-psn: 100", "receive-psn: 101", "a group has one start PSN"},
		{"cepheus], sizes: [1MiB]", "cepheus], sizes: [1MiB], group: 10.254.0.1", `x:8:55: group "10.254.0.1" is not 10.254.255.1 to 10.254.255.254`},
		{"cepheus], sizes: [1MiB]", "cepheus], ranks: [h0, h1], sizes: [1MiB], group: 10.254.255.1", "group is for scheme cepheus with an external host"},
		{"1MiB]}", "1MiB], group: 10.254.255.1}\ncontrollers: 3\n", "with controllers it is they who give out addresses"},
		{"cepheus], sizes: [1MiB]", "cepheus], ranks: [h0, h1], sizes: [1MiB], operation: write", "operation write is for scheme cepheus with an external host"},
		{"cepheus], sizes: [1MiB]", "unicast], ranks: [h0, h3], sizes: [1MiB], operation: write", "operation write is for scheme cepheus with an external host"},
		{"va: 0x7f0000000000", "wait: 10ms", "wait of 10ms is not 1s to 3600s"},
		{"va: 0x7f0000000000", "linger: 3601s", "linger of 3601s is not 0s to 3600s"},
		{"va: 0x7f0000000000", "ready: perhaps", `cannot be "perhaps"`},
		{"bcast: {schemes: [cepheus], sizes: [1MiB]}", "program: {name: mine}", "x:8:14: h3 is external and runs no program: name other ranks"},
		{"workloads:", "runtime: {dilation: 100}\nworkloads:", "longer than its timeout of 67.108864ms: use ibv timeout code 19 there"},
		{"1Gbps", "100Mbps", "x:5:42: at dilation 1 packets of external host h3 may wait 167.78616ms, longer than its timeout of 67.108864ms: use ibv timeout code 16 there and external: {timeout: 268.435456ms} here"},
	} {
		_, err := Parse("x", []byte(strings.Replace(externalText, c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.to, err, c.want)
		}
	}
}

// TestPatience: 2 MiB at 1 Gb/s drain in 16.8 ms of lab time; at dilation 2 that is 33.6 ms
// and a little for the path, which code 14 (67 ms) allows and code 13 does not.
func TestPatience(t *testing.T) {
	l, err := Parse("x", []byte(externalText))
	if err != nil {
		t.Fatal(err)
	}
	wait, code := l.Patience(l.ExternalHost("h3"), 2)
	if code != 14 || wait < 33*vtime.Millisecond || wait > 34*vtime.Millisecond {
		t.Errorf("wait %v, code %d", wait, code)
	}
}

// TestLinger: unless it is said, a group stays for as long as a device with 7 retries repeats a packet.
func TestLinger(t *testing.T) {
	for text, want := range map[string]vtime.Duration{ // independent of each other
		"va: 0x7f0000000000":                   536870912 * vtime.Nanosecond,
		"timeout: 1.073741824s":                8 * 1073741824 * vtime.Nanosecond,
		"timeout: 1.073741824s, linger: 0s":    0,
		"timeout: 1.073741824s, linger: 3600s": 3600 * vtime.Second,
	} {
		l, err := Parse("x", []byte(strings.Replace(externalText, "va: 0x7f0000000000", text, 1)))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("x", l.Resolved())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []*Lab{l, again} {
			if got := vtime.Duration(l.ExternalHost("h3").LingerTime()); got != want {
				t.Errorf("%s: %v and not %v", text, got, want)
			}
		}
	}
}
