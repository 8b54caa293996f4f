package lab

import (
	"errors"
	"strings"
	"testing"
)

// TestAgentCrash: an agent that has crashed comes back, also if the file does not say when; and
// only a simulation has such a fault.
func TestAgentCrash(t *testing.T) {
	l, err := Parse("lab", []byte("name: x\ntopology: {star: {hosts: 2}}\nfaults:\n  - {at: 1ms, agent-crash: {nodes: leaf0}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if again := l.Faults[0].For; again == nil || *again != Duration(AgentCrashDefault) {
		t.Errorf("without for it takes %v", again)
	}
	g, err := l.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if all, err := l.Timeline(g); err != nil || len(all) != 1 || all[0].For != AgentCrashDefault {
		t.Errorf("the timeline is %+v, %v", all, err)
	}
	var e *Error
	if err := l.CheckLive(); !errors.As(err, &e) || !strings.Contains(err.Error(), "faults[0]: agent-crash happens in a simulation only") {
		t.Errorf("on a wall clock: %v", err)
	}
}
