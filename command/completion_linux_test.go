// SPDX-License-Identifier: Apache-2.0

package command

import (
	"strings"
	"testing"
)

// TestCompleteLive: of labs that are up there are kinds of faults and values to choose from.
func TestCompleteLive(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"fault |", "add ls reset"}, {"fault add li|", "link-down"}, {"fault add pause|", "pause pause-storm"}, {"fault add loss --pri|", "--priority"},
		{"deploy --runtime |", "docker netns"}, {"inspect --format |", "table json prometheus"}, {"controller ls --format |", "table json"},
		{"rc send --mtu |", "256 512 1024 2048 4096"}, {"rc send --interface l|", "lo"}, {"help fault |", "add ls reset"},
	} {
		if got := strings.Join(completions(t, strings.Split(strings.TrimSuffix(c.line, "|"), " ")...), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
	if got, want := strings.Join(completions(t, "fault", "add", ""), ", "), kindList(); got != want {
		t.Errorf("kinds of faults: %s, want %s", got, want)
	}
}
