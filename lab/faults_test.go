// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

// TestAgentCrash: an agent that has crashed restarts, also if the file gives no time for it, and on a
// wall clock, too.
func TestAgentCrash(t *testing.T) {
	l, err := Parse("lab", []byte("name: x\ntopology: {star: {hosts: 2}}\nfaults:\n  - {at: 1ms, agent-crash: {nodes: leaf0}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if again := l.Faults[0].For; again == nil || *again != Duration(AgentCrashDefault) {
		t.Errorf("without for it takes %v", again)
	}
	if err := l.CheckLive(); err != nil {
		t.Errorf("on a wall clock: %v", err)
	}
}

// TestPercent: a probability is a number or a share in percent, and both mean the same.
func TestPercent(t *testing.T) {
	read := func(rate string) (*Lab, error) {
		return Parse("lab", []byte("name: x\ntopology: {star: {hosts: 2}}\nfaults:\n  - loss: {rate: "+rate+"}\n    probability: "+rate+
			"\n    for: 1ms\n  - {loss: {gilbert-elliott: {to-bad: "+rate+", to-good: 50%}}}\n"))
	}
	for _, c := range []struct {
		text string
		want Probability
	}{{"1%", 0.01}, {"0.7%", 0.007}, {"100%", 1}, {"2.5 %", 0.025}, {"0.3", 0.3}, {"1e-3", 0.001}, {`"1%"`, 0.01}} {
		l, err := read(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		f, burst := l.Faults[0], l.Faults[1].Loss.GilbertElliott
		if *f.Loss.Rate != c.want || f.Probability != c.want || burst.ToBad != c.want || burst.ToGood != 0.5 {
			t.Errorf("%s: rate %v, probability %v, to-bad %v, to-good %v", c.text, *f.Loss.Rate, f.Probability, burst.ToBad, burst.ToGood)
		}
		if again, err := Parse("lab", l.Resolved()); err != nil || *again.Faults[0].Loss.Rate != c.want {
			t.Errorf("%s: resolved: %v\n%s", c.text, err, l.Resolved())
		}
	}
	for _, bad := range []string{"101%", "-1%", "1%%", "%", "1 apple", "NaN%", "Inf"} {
		if _, err := read(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// TestFaultIn: a fault comes in each row unless the file says otherwise, and a lab with controllers, which
// keep one timeline, refuses one that asks for that.
func TestFaultIn(t *testing.T) {
	const head = "name: x\ntopology: {star: {hosts: 2}}\n"
	l, err := Parse("f", []byte(head+"faults:\n  - {loss: {rate: 1%}}\n  - {in: run, loss: {rate: 1%}}\n"))
	if err != nil || l.Faults[0].In != "row" || l.Faults[1].In != FaultInRun {
		t.Fatalf("%v, %v", l, err)
	}
	if a, b := l.Faults[0].Text(), l.Faults[1].Text(); a != "{loss: {rate: 0.01}}" || b != "{in: run, loss: {rate: 0.01}}" {
		t.Errorf("%s and %s", a, b)
	}
	for text, want := range map[string]string{
		head + "faults:\n  - {in: rows, loss: {rate: 1%}}\n":                `f:4:10: faults[0].in cannot be "rows", did you mean "row"? Use row or run`,
		head + "controllers: 3\nfaults:\n  - {in: row, loss: {rate: 1%}}\n": `f:5:10: the controllers of a lab keep one timeline for the run: use in: run, or leave in out`,
		head + "controllers: 3\nfaults:\n  - {in: run, loss: {rate: 1%}}\n": "",
		head + "controllers: 3\nfaults:\n  - {loss: {rate: 1%}}\n":          "",
	} {
		got := ""
		if l, err := Parse("f", []byte(text)); err != nil {
			got = err.Error()
		} else if l.Faults[0].In != FaultInRun {
			t.Errorf("%s: with controllers it is in a %s", text, l.Faults[0].In)
		}
		if got != want {
			t.Errorf("%s: %s\nwant %s", text, got, want)
		}
	}
}
