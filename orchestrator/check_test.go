// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// unready is an engine that answers, and cannot start nodes.
type unready struct {
	broken
	why error
}

func (u *unready) Ready(context.Context) error { return u.why }

// TestRuntimeOf: a runtime that only answers is not ready, and the remedy is one that helps the user who asks.
func TestRuntimeOf(t *testing.T) {
	root := os.Geteuid() == 0
	denied := fmt.Errorf("%w: docker does not answer: %w", engine.ErrUnavailable, &engine.NotReadyError{Why: "permission denied", Remedy: "run as root"})
	for _, c := range []struct {
		what   string
		e      engine.Engine
		ok     bool
		remedy string
	}{
		{"ready", &broken{name: "a"}, root, "run as root"},
		{"no testbed", &unready{broken{name: "b"}, &engine.NotReadyError{Why: "no testbed", Remedy: "mcastlab servers up"}}, false, "mcastlab servers up"},
		{"a closed socket", &broken{name: "c", find: denied}, false, "run as root"},
		{"no engine", &broken{name: "d", find: fmt.Errorf("%w: connection refused", engine.ErrUnavailable)}, false, "apt-get install docker.io && systemctl start docker"},
		{"another error", &broken{name: "e", find: errors.New("no route to host")}, false, "apt-get install docker.io && systemctl start docker"},
	} {
		f := runtimeOf(t.Context(), c.e)
		if f.OK != c.ok || !f.OK && f.Remedy != c.remedy || f.Needed {
			t.Errorf("%s: %+v", c.what, f)
		}
	}
}
