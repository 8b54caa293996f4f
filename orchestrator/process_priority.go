// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// nodeNice is the niceness of nodes: frames leave late when other programs keep a node from
// running. The nodes themselves have no right to set it.
const nodeNice = -20

// prioritize gives a node's process, with all threads it has and will have, precedence over
// other programs of the host.
func prioritize(pid int) error {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("set priority of process %d: %w", pid, err)
	}
	for _, t := range threads {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, tid, nodeNice); err != nil && err != unix.ESRCH {
			return fmt.Errorf("set priority of process %d: %w", pid, err)
		}
	}
	return nil
}
