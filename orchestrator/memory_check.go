// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// warnMemory tells the operator of a server that may not have the memory for a run of the lab. At rest that takes a small part of it, so the
// lab is brought up all the same.
func (t *thisServer) warnMemory() {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return // no warning if the size is unknown
	}
	if why := memoryShortage(len(t.d.Graph.Nodes)+len(t.d.Lab.Replicas()), i.Totalram*uint64(i.Unit)); why != "" {
		t.d.Announce("lab %s: %s", t.d.Lab.Name, why)
	}
}

// memoryShortage explains why a server may lack the memory for so many nodes; empty if it does not.
func memoryShortage(nodes int, memory uint64) string {
	need := uint64(nodes) * engine.NodeMemory
	if need <= memory/5*4 {
		return ""
	}
	const gib = 1 << 30
	return fmt.Sprintf("its %d nodes may need %.1f GiB in a run, and this server has %.1f: a run may come to a standstill; leave hosts out, or "+
		"spread it over servers (mcastlab servers)", nodes, float64(need)/gib, float64(memory)/gib)
}
