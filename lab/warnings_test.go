// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strings"
	"testing"
)

// TestWarnsOfPausesBeforeMarks: on many ports the part of the buffer that a static threshold has lies below where
// packets are marked, unless a setting of either is changed; dynamic thresholds and switches without marks are left alone.
func TestWarnsOfPausesBeforeMarks(t *testing.T) {
	for _, w := range []struct {
		hosts    int
		switches string
		warns    bool
	}{
		{64, "ecn: true", true},
		{8, "ecn: true", false},
		{64, "ecn: true, buffer: 64MiB", false},
		{64, "ecn: true, pfc: {alpha: 1}", false},
		{64, "ecn: true, pfc: false", false},
		{64, "ecn: false", false},
		{8, "ecn: true, pfc: {xoff: 100kB}", true},
	} {
		l, err := Parse("wide", fmt.Appendf(nil, "name: wide\ntopology: {star: {hosts: %d}}\nswitches: {%s}\n", w.hosts, w.switches))
		if err != nil {
			t.Fatal(err)
		}
		all := l.Warnings()
		if warned := len(all) == 1 && strings.Contains(all[0], "leaf0") && strings.Contains(all[0], "400000"); warned != w.warns || !w.warns && len(all) != 0 {
			t.Errorf("%d hosts, %s: %q", w.hosts, w.switches, all)
		}
	}
}

// TestWarnsOfSettingsOfWhatIsOff: thresholds mark nothing while marking is off.
func TestWarnsOfSettingsOfWhatIsOff(t *testing.T) {
	for switches, want := range map[string]string{
		"ecn: {kmin: 40kB}": "switches.ecn", "ecn: {enabled: false, pmax: 0.1}": "switches.ecn", "watchdog: {detect: 1ms}": "switches.watchdog",
		"ecn: {kmin: 40kB, enabled: true}, buffer: 64MiB": "", "ecn: false": "", "ecn: {priorities: [3]}": "", "watchdog: {enabled: true, detect: 1ms}": "",
	} {
		l, err := Parse("off", fmt.Appendf(nil, "name: off\ntopology: {star: {hosts: 2}}\nswitches: {%s}\n", switches))
		if err != nil {
			t.Fatal(err)
		}
		if all := l.Warnings(); want == "" && len(all) > 0 || want != "" && (len(all) != 1 || !strings.HasPrefix(all[0], want+" has settings and is off")) {
			t.Errorf("%s: %q", switches, all)
		}
	}
}

// TestWarnsOfTooShort: of headroom that loses packets, and of a buffer that outlasts the retransmission timeout.
func TestWarnsOfTooShort(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"switches: {pfc: {headroom: 1B}}", "switches.pfc.headroom of 1B is less than the "},
		{"switches: {pfc: {headroom: 60kB}}", ""},
		{"switches: {pfc: {headroom: 60kB}}\nlinks: {delay: 10us}", "switches.pfc.headroom of 60kB is less than the "},
		{"links: {rate: 40Gbps, tiers: {host-leaf: {rate: 10Gbps}}}\nswitches: {buffer: 8MB}",
			"nics.timeout of 4.194304ms is shorter than the 6.4ms that a full switches.buffer of 8MB takes to drain to h0, at 10Gbps"},
		{"links: {rate: 40Gbps, tiers: {host-leaf: {rate: 10Gbps}}}\nswitches: {buffer: 5MB}", ""},
		{"links: {rate: 40Gbps, tiers: {host-leaf: {rate: 10Gbps}}}\nswitches: {buffer: 8MB}\nnics: {timeout: 8ms}", ""},
		{"links: {rate: 40Gbps, tiers: {host-leaf: {rate: 10Gbps}}}\nswitches: {buffer: 8MB}\nnics: {timeout: infinite}", ""},
		{"links: {rate: 10Gbps}\nswitches: {pfc: false}", ""},
		{"switches: {feedback-delay: 1s}", "switches.feedback-delay of 1s is not shorter than nics.timeout of 4.194304ms: "},
		{"switches: {feedback-delay: 1ms}", ""},
		{"switches: {feedback-delay: 1ms}\nnics: {retransmit: irn}", "switches.feedback-delay of 1ms is not shorter than nics.irn.rto-low of 100us: "},
		{"switches: {feedback-delay: 99us}\nnics: {retransmit: irn}", ""},
		{"switches: {feedback-delay: 1s}\nnics: {timeout: infinite}", ""},
	} {
		l, err := Parse("short", []byte("name: short\ntopology: {leaf-spine: {leaves: 2, spines: 1, hosts: 2}}\n"+c.text+"\n"))
		if err != nil {
			t.Fatal(c.text, err)
		}
		if all := append(l.Warnings(), l.Cautions()...); c.want == "" && len(all) > 0 || c.want != "" && (len(all) != 1 || !strings.HasPrefix(all[0], c.want)) {
			t.Errorf("%s: %q", c.text, all)
		}
	}
}
