// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
)

// grow calls f with that many frames of its own kind on the stack below it.
func grow(frames int, f func()) byte {
	var room [48]byte // a step small enough that some depth ends right before the stack does
	if frames == 0 {
		f()
		return 0
	}
	room[frames%len(room)] = grow(frames-1, f)
	return room[0]
}

// onGrowingStacks runs f in n goroutines, each of which has used another part of its first
// stack by then, so that the stacks grow, and move, at every place that f gets to.
func onGrowingStacks(n int, f func() error) error {
	var all sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		all.Go(func() { grow(i%250, func() { errs[i] = f() }) })
	}
	all.Wait()
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	return errs[i]
}

// TestFeaturesOnGrowingStacks: the kernel's answers about an interface arrive wherever the caller's
// stack has moved by then, and requests reach the kernel.
func TestFeaturesOnGrowingStacks(t *testing.T) {
	e, err := openFeatures()
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	const times = 1000
	want, err := e.read("lo")
	if err != nil {
		t.Fatal(err)
	}
	if !want["loopback"].active {
		t.Errorf("lo has %v", want)
	}
	err = onGrowingStacks(times, func() error {
		got, err := e.read("lo")
		if err == nil && !maps.Equal(got, want) {
			err = errors.New("the features of lo have changed")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.read("a-name-that-is-too-long"); err == nil {
		t.Error("an interface whose name is too long is taken for another")
	}
	n, _ := space(t)
	other, _ := space(t)
	a := end(n, 0, "h0:0")
	if err := Join(a, end(other, 0, "s0:0")); err != nil {
		t.Fatal(err)
	}
	var there features
	if err := ns.WithNetNSPath(n.path, func(ns.NetNS) (err error) { there, err = openFeatures(); return err }); err != nil {
		t.Fatal(err)
	}
	defer there.close()
	const name = "tx-udp-segmentation"
	for _, on := range []bool{false, true, false} {
		if err := onGrowingStacks(times, func() error { return there.change(a.Name(), map[string]bool{name: on}) }); err != nil {
			t.Fatal(err)
		}
		if got, err := there.read(a.Name()); err != nil || got[name].active != on {
			t.Errorf("%s is %+v, want it active: %v (%v)", name, got[name], on, err)
		}
	}
	if err := there.change(a.Name(), map[string]bool{"no-such-feature": true}); err == nil {
		t.Error("a feature that there is not was switched on")
	}
}
