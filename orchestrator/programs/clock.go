// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/orchestrator"
)

// What the clocks of a program on a node show (Execution.Clock).
const (
	ClockLab  = "lab"  // the lab's time
	ClockWall = "wall" // that of this server; so does an empty string
	ClockAuto = "auto" // the lab's time where it can be shown
)

// turnsDate is the date at which labs in virtual time begin, 1 January 2026, in seconds since 1970: the same in each run.
const turnsDate = 1767225600

// timeLibrary shows programs the lab's time.
const timeLibrary = "libmcasttime.so"

// withLabTime returns the environment of a program whose clocks show the lab's time, which it gets from the process of its NIC;
// where that cannot be shown, a program of ClockAuto has this server's time.
func (x *Execution) withLabTime(env []string, s programSite) ([]string, error) {
	if x.Clock == ClockWall || x.Clock == "" || x.byKernelStamps() {
		return env, nil
	}
	if why := cmp.Or(s.why, x.withoutLabTime()); why != nil {
		if x.Clock == ClockLab {
			return nil, fmt.Errorf("--clock lab: %w", why)
		}
		return env, nil
	}
	if x.inTurns {
		return appendPreload(append(env, fmt.Sprint("MCASTLAB_CLOCK=", turnsDate)), filepath.Join(x.Library, timeLibrary)), nil
	}
	return appendPreload(append(env, fmt.Sprint("MCASTLAB_CLOCK=", s.since)), filepath.Join(x.Library, timeLibrary)), nil
}

// stamped are programs that subtract a clock's reading from the time stamp that the kernel gives a packet. The
// kernel stamps by this server's clock, so lab time would show round trips of seconds.
var stamped = []string{"ping", "ping4", "ping6", "arping", "fping", "traceroute", "tracepath"}

// byKernelStamps reports whether a program keeps this server's clock unless --clock says otherwise.
func (x *Execution) byKernelStamps() bool {
	return x.Clock == ClockAuto && !x.inTurns && slices.Contains(stamped, filepath.Base(x.Argv[0]))
}

// deployedSince returns when the lab was deployed, in seconds since 1970: then its time begins for programs.
func deployedSince(d *orchestrator.Deployed) (int64, error) {
	st, ok, err := d.Store.Get()
	if err == nil && !ok {
		err = errors.New("the lab is not deployed any more")
	}
	return st.Since.Unix(), err
}

// withoutLabTime returns why a program that has a NIC cannot be shown the lab's time, or nil.
func (x *Execution) withoutLabTime() error {
	if _, err := os.Stat(filepath.Join(x.Library, timeLibrary)); err != nil {
		return fmt.Errorf("%s is not beside libibverbs.so.1: build it by make verbs", timeLibrary)
	}
	if isStatic(x.Argv[0]) {
		return fmt.Errorf("%s is linked statically, so its clocks cannot be replaced: link it with the C library, or leave --clock out", x.Argv[0])
	}
	return nil
}

// isStatic reports whether a program has no dynamic linker, which would load what is preloaded.
func isStatic(name string) bool {
	path, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	f, err := elf.Open(path)
	if err != nil {
		return false // a script
	}
	static := !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	return f.Close() == nil && static
}

// appendPreload has the dynamic linker load one more library, after those that env names.
func appendPreload(env []string, path string) []string {
	if strings.ContainsFunc(path, between) {
		path = filepath.Base(path) // which is found by LD_LIBRARY_PATH
	}
	for i, v := range env {
		if old, ok := strings.CutPrefix(v, preloadEnv+"="); ok {
			if old != "" {
				path = old + ":" + path
			}
			env[i] = preloadEnv + "=" + path
			return env
		}
	}
	return append(env, preloadEnv+"="+path)
}

// LabTime reports whether a program on a node is shown the lab's time, unless it is to see this server's, and how long
// a second of it takes while no run sets another dilation.
func LabTime(d *orchestrator.Deployed, node string, x *Execution) (dilation float64, shown bool) {
	if WithoutNIC(d, node, x.Library) != nil || x.withoutLabTime() != nil || x.byKernelStamps() {
		return 0, false
	}
	r, err := d.RestClock(nil)
	return r.Dilation, err == nil
}
