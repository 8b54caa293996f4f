// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dilated

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/runner"
	"github.com/mcastlab/mcastlab/orchestrator"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// devices monitors the external hosts of a job. It tells their operators what to do, holds ranks
// back until the devices are ready, and ends the job when one makes no progress.
type devices struct {
	d    *orchestrator.Deployed
	all  []*device
	put  func(key string, value []byte) error
	fail func() // ends the job
	note func(rankhost.Step)

	kick chan struct{} // has devices checked at once

	mu   sync.Mutex
	err  error         // why the job was ended
	open *deviceFinish // what ranks wait for; nil: nothing
}

// device is one external host of the job.
type device struct {
	node int
	view deviceView
	base counters.Device // at the job's beginning

	advances, given uint64    // when it last came further,
	since           time.Time // which was then, or when its operator got a message
	key             string    // key of the job that ranks wait for until the device is ready; empty: none
	asked           bool      // set when its operator has the message that the run waits for it

	end deviceEnd
}

// deviceTick is the interval at which devices are checked; after deviceHint their operators get a
// message that the run waits.
const (
	deviceTick = 200 * time.Millisecond
	deviceHint = 3 * time.Second
)

// lookAfter returns the monitor of a workload's external hosts and resets their adapters. It
// returns nil if there are none.
func lookAfter(ctx context.Context, d *orchestrator.Deployed, w runner.Workload, note func(rankhost.Step)) (*devices, error) {
	v := &devices{d: d, note: note, kick: make(chan struct{}, 1)}
	for i, p := range w.Peers {
		if p == nil {
			continue
		}
		n := w.Hosts[i]
		if _, err := d.Nodes[n].Answer(ctx, &nodeapi.AnswerRequest{Qpn: uint32(p.QPN)}); err != nil {
			return nil, fmt.Errorf("tell the adapter of %s: %w", d.Graph.Nodes[n].Name, err)
		}
		x := &device{node: n, since: time.Now(), view: deviceView{
			name: d.Graph.Nodes[n].Name, address: d.Graph.Addr(d.Graph.Nodes[n].IP).String(), iface: d.Options.Attach[d.Graph.Nodes[n].Name],
			x: *d.Lab.ExternalHost(d.Graph.Nodes[n].Name), source: i == w.Root,
		}}
		if err := v.look(ctx, x); err != nil {
			return nil, err
		}
		x.base = x.view.seen
		v.all = append(v.all, x)
	}
	if v.all == nil {
		return nil, nil
	}
	return v, nil
}

// look records what its adapter has seen of a device.
func (v *devices) look(ctx context.Context, x *device) error {
	r, err := v.d.Nodes[x.node].Inspect(ctx, &nodeapi.InspectRequest{})
	if err != nil {
		return fmt.Errorf("inspect node %s: %w", x.view.name, err)
	}
	s, err := r.Decode()
	if err == nil && s.Device == nil {
		err = fmt.Errorf("node %s is not an external host", x.view.name)
	}
	if err != nil {
		return err
	}
	port, err := v.d.Access.PortOf(ctx, x.view.name)
	x.view.seen, x.view.carrier = *s.Device, port.Carrier
	return err
}

// begin checks the devices until the returned function is called, or the job ends. put sets a key
// of the job, fail ends the job. v may be nil: then there are no devices.
func (v *devices) begin(ctx context.Context, put func(string, []byte) error, fail func()) (stop func()) {
	if v == nil {
		return func() {}
	}
	v.put, v.fail = put, fail
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); v.run(ctx) }()
	return func() { cancel(); <-done }
}

// run checks the devices until ctx ends.
func (v *devices) run(ctx context.Context) {
	tick := time.NewTimer(deviceTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-v.kick:
		case <-tick.C:
		}
		tick.Reset(v.round(ctx))
	}
}

// round checks all devices, and returns after which time they are to be checked again.
func (v *devices) round(ctx context.Context) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.all {
		if err := v.look(ctx, x); err == nil && v.open == nil { // a node that has died ends the job itself
			v.check(ctx, x, time.Now())
		}
	}
	if v.open == nil {
		return deviceTick
	}
	v.confirm(ctx, time.Now())
	return confirmTick
}

// check resumes ranks when the device is ready, and ends the job when it takes too long.
func (v *devices) check(ctx context.Context, x *device, now time.Time) {
	s := &x.view.seen
	wait := wall(vtime.Duration(x.view.x.Wait))
	switch {
	case x.key != "":
		if v.ready(x) {
			if err := v.put(x.key, nil); err != nil {
				v.end(ctx, err)
			}
			x.key, x.since = "", now
			return
		}
		if !x.asked && now.Sub(x.since) > deviceHint {
			x.asked = true
			v.d.Announce("%s: nothing is sent to it until it looks for %s, or mcastlab group ready %s says that it is ready",
				x.view.name, x.view.step.Address, x.view.name)
		}
		if now.Sub(x.since) > wait {
			v.end(ctx, fmt.Errorf("it was not ready within %v", wait))
		}
		return
	case s.Advances != x.advances, s.Given != x.given && s.AckPSN == s.GivenPSN, !x.view.source && (s.Given == 0 || s.Acks > 0 && s.AckPSN == s.GivenPSN):
		x.advances, x.given, x.since = s.Advances, s.Given, now
	case now.Sub(x.since) > wait && x.view.step.Host != "":
		v.end(ctx, fmt.Errorf("no progress within %v", wait))
	}
}

// ready reports whether a device can be sent to.
func (v *devices) ready(x *device) bool {
	if _, err := os.Stat(v.d.Store.ReadyMark(x.view.name)); err == nil || x.view.x.Ready == lab.ReadyNow {
		return true
	}
	to, s := x.view.step.Address, &x.view.seen
	looked := s.TimesAsked(to) > x.base.TimesAsked(to) || s.Last != nil && s.Last.To == to
	// A group's address is known beforehand, a rank's queue pair is not: a carrier alone is not enough.
	return x.view.x.Ready == lab.ReadyAuto && (looked || s.Heard && x.view.step.ToQPN == 0)
}

// end ends the job. The lock is held.
func (v *devices) end(ctx context.Context, why error) {
	if v.err != nil {
		return
	}
	v.err = v.explain(ctx, why)
	v.fail()
}

// tell passes a rank's instructions on to the operators.
func (v *devices) tell(value []byte) error {
	if v == nil {
		return errors.New("a rank has a message for an external host, and the lab has none")
	}
	s, err := rankhost.ParseStep(value)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.all {
		if x.view.name == s.Host {
			x.since = time.Now()
			if s.What == rankhost.StepConnect {
				x.view.step = s
			}
		}
	}
	v.d.Announce("%s", s.Text)
	v.note(s)
	return nil
}

// await notes that ranks wait for a key until a device is ready.
func (v *devices) await(key string) {
	if v == nil {
		return
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(key, rankhost.ExternalKey+rankhost.ReadyKey), "/")
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, x := range v.all {
		if x.view.name == name {
			x.key, x.since = key, time.Now()
		}
	}
}

// failed is called when a rank has failed, before the others are ended: what is seen of the
// devices at that moment belongs to its error.
func (v *devices) failed(ctx context.Context, err error) error {
	if v == nil || ctx.Err() != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return v.err
	}
	for _, x := range v.all {
		_ = v.look(ctx, x) // if it fails, the previous look serves
	}
	v.err = v.explain(ctx, err)
	return v.err
}

// explain adds to an error what is wrong with the devices. The lock is held.
func (v *devices) explain(ctx context.Context, err error) error {
	var trees []orchestrator.GroupTree
	var out []string
	for _, x := range v.all {
		if x.view.cause() == "" && len(v.all) > 1 {
			continue
		}
		if trees == nil {
			trees = v.d.Groups(ctx)
		}
		x.view.slowest = slowestPath(trees, x.view.step.Address, x.view.name)
		out = append(out, x.view.String())
	}
	if out == nil {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(out, "; "))
}

// cause returns why the devices have ended the job, if they have.
func (v *devices) cause() error {
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// Ready marks an external host as ready to receive. It holds for the run that is under way; the
// next one waits again.
func Ready(d *orchestrator.Deployed, host string) error {
	if d.Lab.ExternalHost(host) == nil {
		return fmt.Errorf("%s is not an external host of lab %s (%s)", host, d.Lab.Name, orchestrator.ExternalsOf(d.Lab))
	}
	mark := d.Store.ReadyMark(host)
	err := os.MkdirAll(filepath.Dir(mark), 0o700)
	if err == nil {
		err = os.WriteFile(mark, nil, 0o600)
	}
	if err != nil {
		return fmt.Errorf("say that %s is ready: %w", host, orchestrator.NeedRoot(err))
	}
	return nil
}

// restWait limits the wait of a run until a group that the lab file names is usable again.
const restWait = 20 * time.Second

// rested waits until no switch holds the group, or frames of it, from an earlier run.
func rested(ctx context.Context, d *orchestrator.Deployed, group uint32) error {
	id := wire.AddrOf(group).String()
	for begin := time.Now(); ; {
		states, err := d.States(ctx)
		if err != nil {
			return err
		}
		where := holds(states, id)
		if where == "" {
			return nil
		}
		if time.Since(begin) > restWait {
			return fmt.Errorf("switch %s still has group %s of an earlier run: destroy lab %s and deploy it again", where, id, d.Lab.Name)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(deviceTick):
		}
	}
}

// holds returns a switch that has a group, or has had it lately.
func holds(states []counters.Node, id string) string {
	for i := range states {
		for _, g := range states[i].Groups {
			if g.McstID == id {
				return states[i].Node
			}
		}
		for _, r := range states[i].Resting {
			if r == id {
				return states[i].Node
			}
		}
	}
	return ""
}
