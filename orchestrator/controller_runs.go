// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/controller"
)

// BeginRun tells the controllers of a run, and returns the name by which they know it. They end an earlier
// run that was left open, its faults and its leases; for a run in virtual time all faults end, since its
// nodes are newly built.
func (d *Deployed) BeginRun(ctx context.Context, dir string, virtual bool) (run string, err error) {
	if !d.Plane.HasControllers() {
		return "", nil
	}
	run = fmt.Sprintf("%s/%d", filepath.Base(dir), time.Now().UnixNano())
	if _, err := d.Command(ctx, controller.Command{Kind: controller.KindBegin, Run: run, Virtual: virtual}); err != nil {
		return run, err
	}
	prefix := faults.LabPrefix
	if virtual {
		prefix = ""
	}
	return run, d.Plane.resetFaults(ctx, prefix)
}

// EndWait limits the wait for controllers to record the end of a run.
const EndWait = 10 * time.Second

// EndRun tells the controllers that a run has ended. If they do not hear it, it counts as
// abandoned when the next one begins.
func (d *Deployed) EndRun(ctx context.Context, run string, err error) {
	if !d.Plane.HasControllers() || run == "" {
		return
	}
	c := controller.Command{Kind: controller.KindEnd, Run: run}
	if err != nil {
		c.Error = err.Error()
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), EndWait)
	defer stop()
	if _, err := d.Command(ctx, c); err != nil {
		d.Log("the controllers were not told of the run's end: %v", err)
	}
}
