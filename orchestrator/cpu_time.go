// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// CPUTimeHere returns the CPU time of the nodes on this server, and of this process.
func CPUTimeHere(ctx context.Context, e engine.Engine, lab string) (float64, error) {
	found, err := e.Find(ctx, lab)
	var pids []int
	for _, n := range found {
		pids = append(pids, n.PID)
	}
	return cpuSeconds(pids), err
}

// cpuSeconds returns the CPU time of the lab's processes and of this one, to 10 ms. Other
// processes of the host do not count.
func cpuSeconds(pids []int) float64 {
	total := 0.0
	for _, pid := range append([]int{os.Getpid()}, pids...) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // a node that has died is noticed elsewhere
		}
		_, after, _ := bytes.Cut(b, []byte(") ")) // the name may have blanks
		if f := bytes.Fields(after); len(f) > 12 {
			for _, ticks := range f[11:13] { // utime, stime
				v, err := strconv.ParseFloat(string(ticks), 64)
				if err == nil {
					total += v
				}
			}
		}
	}
	return total / 100 // USER_HZ
}
