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

// beginRun tells the controllers of a run, and returns the name by which they know it. They end an earlier
// run that was left open, its faults and its leases; for a run in virtual time all faults end, since its
// nodes are newly built.
func (d *Deployed) beginRun(ctx context.Context, dir string, virtual bool) (run string, err error) {
	if d.plane == nil {
		return "", nil
	}
	run = fmt.Sprintf("%s/%d", filepath.Base(dir), time.Now().UnixNano())
	if _, err := d.tell(ctx, controller.Command{Kind: controller.KindBegin, Run: run, Virtual: virtual}); err != nil {
		return run, err
	}
	prefix := faults.LabPrefix
	if virtual {
		prefix = ""
	}
	return run, d.plane.resetFaults(ctx, prefix)
}

// overWait is how long the end of a run waits for controllers to record it.
const overWait = 10 * time.Second

// runOver tells the controllers that a run has ended. If they do not hear it, it counts as
// abandoned when the next one begins.
func (d *Deployed) runOver(ctx context.Context, run string, err error) {
	if d.plane == nil || run == "" {
		return
	}
	c := controller.Command{Kind: controller.KindEnd, Run: run}
	if err != nil {
		c.Error = err.Error()
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), overWait)
	defer stop()
	if _, err := d.tell(ctx, c); err != nil {
		d.log("the controllers were not told of the run's end: %v", err)
	}
}
