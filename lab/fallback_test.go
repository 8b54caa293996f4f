package lab

import (
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
)

// TestFallbackKey: which schemes have it, with what classes partial goes, and what ranks are
// told.
func TestFallbackKey(t *testing.T) {
	const head = "name: x\ntopology: {star: {hosts: 4}}\n"
	for text, want := range map[string]string{
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: full}}], sizes: [1KiB]}}]":                                               "",
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: off}}], sizes: [1KiB]}}]":                                                "",
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: half}}], sizes: [1KiB]}}]":                                               "fallback",
		"workloads: [{bcast: {schemes: [{chain: {fallback: full}}], sizes: [1KiB]}}]":                                                 "has no fallback",
		"workloads: [{allgather: {schemes: [{cepheus: {fallback: full}}], sizes: [1KiB]}}]":                                           "has no fallback",
		"workloads: [{bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [1KiB]}}]":                                            "",
		"nics: {traffic-class: 0}\nworkloads: [{bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [1KiB]}}]":                  "needs a class that waits",
		"switches: {scheduling: [0,0,0,1,0,0,0,0]}\nworkloads: [{bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [1KiB]}}]": "needs a class that waits",
		"workloads: [{hpl: {n: [64], nb: [32], grids: [1x4], bcast: [cepheus], fallback: partial}}]":                                  "",
	} {
		l, err := Parse("x", []byte(head+text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
			continue
		}
		if err != nil {
			continue
		}
		again, err := Parse("x", l.Resolved())
		if err != nil || again.RankParams() != l.RankParams() {
			t.Errorf("%s: resolved it is another lab: %v", text, err)
		}
		p := l.RankParams()
		on := !strings.Contains(text, "off")
		if (p.RTT > 2*vtime.Microsecond) != on || on && p.LowClass>>2 != 8 {
			t.Errorf("%s: %+v", text, p)
		}
	}
}
