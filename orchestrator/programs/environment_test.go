// SPDX-License-Identifier: Apache-2.0

//go:build linux

package programs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
)

// TestProgramEnvironments: in a dilated lab a program has the same environment whatever starts it, with the lab's time in it; what mpirun
// starts has this server's time, by the command and as a workload.
func TestProgramEnvironments(t *testing.T) {
	library := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "libmcastsysfs.so", timeLibrary} {
		if err := os.WriteFile(filepath.Join(library, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(libraryEnv, library)
	t.Setenv(preloadEnv, "")
	l, err := lab.Parse("lab", []byte("name: l\ntopology: {star: {hosts: 2}}\nruntime: {clock: dilated, dilation: 20}\n"))
	if err != nil {
		t.Fatal(err)
	}
	g, err := labspec.Graph(l)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := runner.OpenFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &orchestrator.Deployed{Graph: g, Lab: l}
	d.Access = orchestrator.LocalAccess(d)
	argv := []string{"sh", "-c", "true"}
	for _, mpi := range []bool{false, true} {
		label := map[bool]string{false: "alone", true: "mpi"}[mpi]
		_, workload, err := newProgramJob(&orchestrator.ProgramJob{
			Deployed: d, Folder: folder, Workload: runner.Workload{Label: label, Prepared: apps.Prepared{Hosts: []int{0}}},
			Program: apps.HostProgram{Argv: argv, MPI: mpi},
		})
		if err != nil {
			t.Fatal(err)
		}
		var envs [2][]string
		for i, x := range []Execution{NewExecution(argv, library, mpi), workload} {
			p, err := x.program(programSite{lab: "l", node: "h0", dir: "/node", since: 5})
			if err != nil {
				t.Fatal(err)
			}
			envs[i] = p.start.Env
		}
		if !slices.Equal(envs[0], envs[1]) {
			t.Errorf("%s: a workload has the environment %q, and by the command line it is %q", label, envs[1], envs[0])
		}
		preload := preloadEnv + "=" + filepath.Join(library, "libmcastsysfs.so")
		if !mpi {
			preload += ":" + filepath.Join(library, timeLibrary)
		}
		if clock := slices.Contains(envs[1], "MCASTLAB_CLOCK=5"); clock == mpi || !slices.Contains(envs[1], preload) {
			t.Errorf("%s: environment %q", label, envs[1])
		}
	}
}
