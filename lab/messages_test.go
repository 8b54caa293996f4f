// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"strings"
	"testing"
)

// TestMessagesShort: a value that is as long as a file is not printed whole, and the rest of the message names
// the mistake.
func TestMessagesShort(t *testing.T) {
	long := strings.Repeat("9", 309)
	for _, text := range []string{
		"name: " + strings.Repeat("x", 1<<19) + "\ntopology: {star: {hosts: 2}}\n",
		"name: x\ntopology: {star: {hosts: 2}}\n" + strings.Repeat("k", 1<<19) + ": 1\n",
		"name: x\ntopology: {star: {hosts: 2}}\n? \"" + strings.Repeat("k ", 1<<18) + "\"\n: 1\n",
		"name: x\ntopology: {star: {hosts: 2}}\nfaults: [{loss: {rate: " + long + "}}]\n",
		"name: x\ntopology: {star: {hosts: 2}}\nexpect: ['" + strings.Repeat("a", 1<<18) + " < 1']\n",
		"name: x\ntopology: {star: {hosts: 2}}\nlinks: {rate: " + strings.Repeat("é", 1<<18) + "}\n",
	} {
		_, err := Parse("f", []byte(text))
		if err == nil || len(err.Error()) > 2*textMax || !strings.HasPrefix(err.Error(), "f:") || !strings.ContainsAny(err.Error(), " ") {
			t.Errorf("%.100s: %.300v", text, err)
		}
	}
	for _, text := range []string{"", "short", strings.Repeat("w ", 900)} {
		if shortened(text) != text {
			t.Errorf("%q is cut", text)
		}
	}
}

// TestByteOrderMark: editors on Windows begin a file with one.
func TestByteOrderMark(t *testing.T) {
	const text = "name: x\ntopology: {star: {hosts: 2}}\n"
	if l, err := Parse("f", []byte("\ufeff"+text)); err != nil || l.Name != "x" {
		t.Error(err)
	}
	if _, err := Parse("f", []byte(text+"\ufeffseed: 1\n")); err == nil {
		t.Error("one in the middle is taken")
	}
}

// TestNumbersAlike: rates and sizes take the numbers that durations do.
func TestNumbersAlike(t *testing.T) {
	for num, good := range map[string]bool{
		"1": true, "1.5": true, "0.001": true, "1 ": true, "1e3": false, "+1": false, "1_000": false, "0x10": false, "1E3": false, "Inf": false, "NaN": false, "": false, "1.2.3": false,
	} {
		var r Rate
		var d Duration
		if err := r.Set(num + "Gbps"); (err == nil) != good {
			t.Errorf("%sGbps: %v", num, err)
		}
		if err := d.Set(num + "s"); (err == nil) != good {
			t.Errorf("%ss: %v", num, err)
		}
	}
}

// TestExpectFinite: infinities and NaN are not numbers, and a constant that evaluates to one is refused.
func TestExpectFinite(t *testing.T) {
	const jct = "bcast.cepheus.64MiB.jct.p50"
	for _, text := range []string{
		jct + " < 1/0", jct + " < Inf", jct + " < +Inf", jct + " < infinity", jct + " > NaN", jct + " < 0/0", jct + " / 0 > 1", jct + " / (2 - 1 - 1) > 1",
		"1e308 * 10 > " + jct, "1e400 > " + jct, "1e200 * 1e200 - 1e200 * 1e200 < " + jct, jct + " < 1 / (0 * 5)",
	} {
		if _, err := ParseExpect(text); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
	for _, text := range []string{jct + " < 1/2", jct + " * 0 < 1", "1e308 > " + jct, "0 / 5 < " + jct, jct + " / (" + jct + " - " + jct + ") > 5"} {
		if _, err := ParseExpect(text); err != nil {
			t.Error(err)
		}
	}
}
