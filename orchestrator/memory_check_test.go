// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"strings"
	"testing"
)

// TestNoRoom: a lab is said to be too large from the node on that does not fit into four fifths of a server.
func TestNoRoom(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		nodes  int
		memory uint64
		want   string
	}{
		{0, 24 * gib, ""},
		{1, 60 << 20, ""},
		{1, 59 << 20, "its 1 nodes may need 0.0 GiB"},
		{208, 24 * gib, ""},
		{409, 24 * gib, ""},
		{410, 24 * gib, "its 410 nodes may need 19.2 GiB in a run, and this server has 24.0"},
		{1344, 24 * gib, "its 1344 nodes may need 63.0 GiB in a run, and this server has 24.0"},
	} {
		if got := memoryShortage(c.nodes, c.memory); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%d nodes in %d bytes: %q, want %q", c.nodes, c.memory, got, c.want)
		}
	}
}
