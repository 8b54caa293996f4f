// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

// TestFallbackKey: the schemes that have the key, and the classes that partial needs.
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
		if err != nil || string(again.Resolved()) != string(l.Resolved()) {
			t.Errorf("%s: resolved it is another lab: %v", text, err)
		}
	}
}
