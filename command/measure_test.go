// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
)

// TestHogs runs a lab beside more and more loops that do nothing but keep cores busy. At
// some step the verdict turns; wherever it says ok, times are within 5 % of those of the
// run without. It takes minutes and is run by hand: MCASTLAB_HOGS=1.
func TestHogs(t *testing.T) {
	if os.Getenv("MCASTLAB_HOGS") == "" {
		t.Skip("takes minutes: set MCASTLAB_HOGS")
	}
	need(t)
	// A dilation that is fixed at what the server needs when it is left alone.
	file := write(t, starLab("t-hogs", ""))
	alone := runLab(t, "netns", file)
	dilation := strconv.FormatFloat(alone.Fidelity.Dilation, 'g', -1, 64)
	t.Logf("alone: dilation %s", dilation)
	base := map[string]float64{}
	turned := false
	for _, hogs := range []int{0, 1, 2, 4, 8} {
		stop := burn(t, hogs*runtime.NumCPU())
		o := invoke(t, nil, "run", "-q", "-r", "netns", "--dilation", dilation, "--runs", t.TempDir(), "--format", "csv", file)
		stop()
		if o.code != 0 && o.code != exitFidelity {
			t.Fatalf("exit %d\n%s", o.code, o.err)
		}
		worst := 0.0
		for _, l := range strings.Split(strings.TrimSpace(o.out), "\n")[1:] {
			f := strings.Split(l, ",")
			jct, err := strconv.ParseFloat(f[9], 64)
			if err != nil {
				t.Fatal(err)
			}
			key := f[1] + " " + f[2]
			if hogs == 0 {
				base[key] = jct
			}
			worst = max(worst, math.Abs(jct/base[key]-1))
		}
		t.Logf("%d busy loops a core: exit %d, times at most %.1f %% off; %s", hogs, o.code, 100*worst, strings.TrimSpace(o.err))
		if o.code == 0 && worst > 0.05 {
			t.Errorf("with %d loops a core the verdict is ok and a time is %.1f %% off", hogs, 100*worst)
		}
		turned = turned || o.code == exitFidelity
	}
	if !turned {
		t.Error("the verdict never turned")
	}
}

// burn keeps n loops busy in processes of their own.
func burn(t *testing.T, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range n {
		cmd := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		all.Go(func() { _ = cmd.Wait() }) // it is killed
	}
	return func() { cancel(); all.Wait() }
}

// BenchmarkBringUp brings the k=4 fat-tree up and takes it down, beside the engine's own
// create, start and remove of as many containers of the same image, eight at a time. Run it
// with -benchtime 5x; the figures are medians.
func BenchmarkBringUp(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("root is needed")
	}
	path := b.TempDir() + "/mcastlab"
	if out, err := goBuild(path, "../cmd/mcastlab").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	run := func(args ...string) time.Duration {
		begin := time.Now()
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", args, err, out)
		}
		return time.Since(begin)
	}
	bring := map[string][]float64{}
	note := func(what string, d time.Duration) { bring[what] = append(bring[what], d.Seconds()) }
	run("deploy", "-q", quickstart) // the image is made
	run("destroy", "quickstart")
	for range b.N {
		up, down := bare(b)
		note("bare-up-s", up)
		note("bare-down-s", down)
		note("docker-up-s", run("deploy", "-q", quickstart))
		note("docker-again-s", run("deploy", "-q", quickstart))
		note("docker-down-s", run("destroy", "quickstart"))
		note("netns-up-s", run("deploy", "-q", "-r", "netns", quickstart))
		note("netns-down-s", run("destroy", "quickstart"))
	}
	for what, v := range bring { // independent of each other
		b.ReportMetric(median(v), what)
	}
	run("wipe", "--yes")
}

// bare creates, starts and removes 36 containers through the engine, with only the image and the
// container settings of a node.
func bare(b *testing.B) (up, down time.Duration) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }() // nothing is under way
	images, err := exec.Command("docker", "images", "-q", "--filter", "label=mcastlab.image").Output()
	if err != nil {
		b.Fatal(err)
	}
	image := strings.Fields(string(images))[0]
	ctx := context.Background()
	ids := make([]string, 36)
	each := func(f func(i int) error) time.Duration {
		begin := time.Now()
		gate, errs := make(chan struct{}, 8), make([]error, len(ids))
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				gate <- struct{}{}
				errs[i] = f(i)
				<-gate
			})
		}
		all.Wait()
		for _, err := range errs {
			if err != nil {
				b.Fatal(err)
			}
		}
		return time.Since(begin)
	}
	up = each(func(i int) error {
		r, err := c.ContainerCreate(ctx, &container.Config{Image: image, Cmd: []string{"node", "--dir", "/node"}, NetworkDisabled: true},
			&container.HostConfig{NetworkMode: "none", CapDrop: []string{"ALL"}}, nil, nil, fmt.Sprintf("mcastlab-bare-%d", i))
		if err == nil {
			ids[i] = r.ID
			err = c.ContainerStart(ctx, r.ID, container.StartOptions{})
		}
		return err
	})
	down = each(func(i int) error { return c.ContainerRemove(ctx, ids[i], container.RemoveOptions{Force: true}) })
	return up, down
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
