//go:build linux

package orchestrator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/mcastlab/mcastlab/internal/shareapi"
	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// CPUTime returns the CPU time that the lab has taken so far, in seconds, by machine.
func (s *serverNodes) CPUTime(ctx context.Context) ([]float64, error) {
	all := make([]float64, len(s.placement.Machines))
	err := s.eachMachine(func(i int, m *engine.Machine) error {
		a, err := s.askShare(ctx, m, shareapi.Request{Do: shareapi.Busy})
		all[i] = a.Busy
		return err
	})
	return all, err
}

// CPUTimeMost returns the CPU time that the lab has taken between two looks. Of several machines the busiest one counts, as if the others
// were as busy for their cores: it is the one that keeps up last.
func (s *serverNodes) CPUTimeMost(from, to []float64) (most float64) {
	for i := range min(len(from), len(to)) {
		share := float64(s.Cores()) / float64(max(1, s.placement.Machines[i].Cores))
		most = max(most, (to[i]-from[i])*share)
	}
	return most
}

// Cores returns how many processor cores the lab has, on all its machines.
func (s *serverNodes) Cores() (n int) {
	for i := range s.placement.Machines {
		n += max(1, s.placement.Machines[i].Cores)
	}
	return n
}

// busy is the answer of a share.
func (x *worker) busy(ctx context.Context) (float64, error) {
	return cpuTimeHere(ctx, x.o.Engine, x.lab)
}

// cpuTimeHere returns the CPU time of the nodes on this machine, and of this process.
func cpuTimeHere(ctx context.Context, e engine.Engine, lab string) (float64, error) {
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
