// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mcastlab/mcastlab/lab/runner"
)

// planeLabFile is a lab with controllers that leases an address for each of its workloads, and for plain
// multicast groups.
func planeLabFile(t *testing.T, lab, faults string) string {
	t.Helper()
	text := "name: " + lab + "\ntopology: {star: {hosts: 4}}\ncontrollers: 3\nfaults: [" + faults + "]\nworkloads:\n"
	for i := range 5 {
		text += fmt.Sprintf("  - {bcast: {label: w%d, schemes: [cepheus, ud-multicast], sizes: [64KiB], iterations: 60}}\n", i)
	}
	return write(t, text)
}

// leasesOf returns the lines of a run's record of leases, without epochs and indexes.
func leasesOf(t *testing.T, dir, lab, number string) (all []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, lab+"-"+number, runner.LeasesFile))
	if err != nil {
		return nil
	}
	for line := range bytes.Lines(b) {
		short, _, _ := strings.Cut(string(line), `,"epoch"`)
		all = append(all, short)
	}
	return all
}

// TestLockstepControllers: a run of a lab with controllers is its simulation: with faults of controllers, a
// second time on the same lab, when the one that leads is killed and when two are stopped while they are asked.
func TestLockstepControllers(t *testing.T) {
	need(t)
	unchanged(t)
	for _, runtime := range []string{"netns", "docker"} {
		t.Run(runtime, func(t *testing.T) {
			need(t, runtime)
			t.Parallel()
			lab, dir := "t-step-ctl-"+runtime, t.TempDir()
			file := planeLabFile(t, lab, "{at: 20us, for: 300us, controller-crash: {controllers: controller0}}, {at: 400us, for: 150us, control-partition: {controllers: controller1}}")
			want := exact(t, "sim", file)
			must(t, "deploy", "-q", "-r", runtime, file)
			t.Cleanup(func() { invokeCtx(context.Background(), t, nil, "destroy", lab) })
			sameRun(t, exact(t, runtime, file, "--check-digest"), want)
			c := planeOf(t, lab)
			waitLong(t, func() bool { // the faults have ended with the run
				ls := controllerLs(t, lab)
				return ls["controller0"].State != "crashed" && ls["controller0"].Leader != "" && ls["controller1"].Leader != ""
			})

			run := underWay(t, "run", "-q", "-r", runtime, "--check-digest", "--runs", dir, file)
			waitLong(t, func() bool { return len(leasesOf(t, dir, lab, "1")) > 0 })
			killNode(t, lab, leaderOf(t, c))
			if code, said := run(); code != exitOK {
				t.Fatalf("exit %d, %s", code, said)
			}
			leases := leasesOf(t, dir, lab, "1")
			if len(leases) < 5 || !strings.HasSuffix(leases[4], `"lower":5`) {
				t.Errorf("leases %v", leases)
			}
			must(t, "deploy", "-q", "-r", runtime, file)

			pids := nodePIDs(t, lab) // folder 2 is that of the simulation that the first run was held against
			run = underWay(t, "run", "-q", "-r", runtime, "--check-digest", "--runs", dir, file)
			waitLong(t, func() bool { return len(leasesOf(t, dir, lab, "3")) > 0 })
			for _, id := range []string{"controller1", "controller2"} {
				if err := syscall.Kill(pids[id], syscall.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			r := make(chan string)
			go func() { code, said := run(); r <- fmt.Sprintf("exit %d, %s", code, said) }()
			for _, id := range []string{"controller1", "controller2"} {
				if err := syscall.Kill(pids[id], syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
			}
			if said := <-r; !strings.HasPrefix(said, "exit 0,") {
				t.Fatal(said)
			}
			if again := leasesOf(t, dir, lab, "3"); fmt.Sprint(again) != fmt.Sprint(leases) {
				t.Errorf("leases %v, %v the second time", leases, again)
			}
		})
	}
}
