// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// endings are workloads of all kinds and schemes, each on 5 hosts or more.
func endings() (all []string) {
	list := func(kind string, names []string, more string) {
		for _, n := range names {
			if n == "gleam" {
				continue // cepheus by another paper's rules, which switches have to have
			}
			all = append(all, fmt.Sprintf("%s: {schemes: [%s], sizes: [20000B], iterations: 2%s}", kind, n, more))
		}
	}
	list("bcast", collective.Names(), "")
	list("allgather", collective.AllgatherNames(), "")
	list("alltoall", collective.AlltoallNames(), "")
	list("reduce-scatter", collective.ReduceScatterNames(), "")
	return append(all,
		"bcast: {schemes: [{cepheus: {fallback: full}}], sizes: [20000B], iterations: 2}",
		"bcast: {schemes: [{cepheus: {fallback: partial}}], sizes: [200000B], iterations: 2}",
		"fsdp: {schemes: [{allgather: ring, reduce-scatter: ring}], sizes: [20000B], iterations: 2}",
		"fsdp: {schemes: [{allgather: multicast, reduce-scatter: in-network}], sizes: [20000B], iterations: 2}",
		"fsdp: {schemes: [{allgather: cepheus, reduce-scatter: ring}], sizes: [20000B], iterations: 2}",
		"hpl: {ranks: [h0..h3], n: [64], nb: [16], grids: [2x2], bcast: [1ring, cepheus]}",
		"hpl: {ranks: [h0..h3], n: [64], nb: [16], grids: [4x1], bcast: [long], swap: multicast}",
		"storage: {schemes: [unicasts], bs: [4KiB], iodepth: 4, number-ios: 20}",
		"storage: {schemes: [multicast-registered], bs: [4KiB], iodepth: 4, number-ios: 20, durability: fsync, on-failure: degrade}",
		"storage: {schemes: [multicast-shared], bs: [4KiB], iodepth: 4, number-ios: 20, durability: fsync}",
	)
}

// endingFault returns a fault that begins at an instant and never ends, on a link or a switch.
func endingFault(r *rand.Rand, at vtime.Duration) string {
	host := fmt.Sprintf("h%d", r.IntN(4))
	kind := []string{
		"link-down: {links: '" + host + "-*'}",
		"link-down: {links: 'leaf0-spine*'}",
		"crash: {nodes: leaf" + fmt.Sprint(r.IntN(2)) + "}",
		"loss: {links: '" + host + "-*', rate: 0.4}",
		"loss: {links: '" + host + "-*', rate: 1, direction: up}",
	}[r.IntN(5)]
	return fmt.Sprintf("{in: run, at: %dps, %s}", int64(at), kind)
}

// namesPeer matches the error of a run in which a rank gave up: it names the rank, its peer, and the
// verbs' status or the outcome of the registration.
var namesPeer = regexp.MustCompile(`rank \d.*(to|from|with) .*(exceeded|error|flushed)|group cannot be used: .*\d+\.\d+|reduction is not answered: rank \d|replica h\d|rank \d \(h\d\) was given up: `)

// TestRunsEnd: whatever workload a link or a switch fails under, for ever, at whatever instant,
// all its ranks end: they complete, or the error names a rank, its peer and the verbs' status.
// It is never a deadlock, and the same again.
func TestRunsEnd(t *testing.T) {
	t.Parallel()
	seeds := 16
	if testing.Short() {
		seeds = 1
	}
	for i, w := range endings() {
		quiet, _, err := runEnding(t, w, "", 1)
		if err != nil {
			t.Errorf("%s: %v", w, err)
			continue
		}
		failed := 0
		for seed := range seeds {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(i)))
			fault := endingFault(r, vtime.Duration(r.Int64N(int64(quiet))))
			_, digest, err := runEnding(t, w, fault, uint64(seed))
			switch {
			case err == nil:
			case errors.Is(err, rankhost.ErrDeadlock), errors.Is(err, errNoEnd):
				t.Errorf("%s with %s, seed %d: %v", w, fault, seed, err)
			case !namesPeer.MatchString(err.Error()):
				t.Errorf("%s with %s, seed %d does not say who gave up whom: %v", w, fault, seed, err)
			default:
				failed++
			}
			if _, again, other := runEnding(t, w, fault, uint64(seed)); again != digest || fmt.Sprint(other) != fmt.Sprint(err) {
				t.Errorf("%s with %s, seed %d: %016x with %v, and again %016x with %v", w, fault, seed, digest, err, again, other)
			}
		}
		t.Logf("%s: %d of %d failed", strings.SplitN(w, ", sizes", 2)[0], failed, seeds)
		if failed == 0 && !testing.Short() {
			t.Errorf("%s: no fault has hit it", w)
		}
	}
}

var errNoEnd = errors.New("it does not end")

// runEnding runs a workload with a fault, or none, and returns when it ended, and how.
func runEnding(t *testing.T, workload, fault string, seed uint64) (at vtime.Duration, digest uint64, err error) {
	t.Helper()
	text := fmt.Sprintf("name: ends\nseed: %d\ntopology: {leaf-spine: {leaves: 2, spines: 2, hosts: 3}}\nnics: {timeout: 67us, retries: 1, rnr-retries: 1}\nworkloads: [{%s}]\n", seed, workload)
	if fault != "" {
		text += "faults: [" + fault + "]\n"
	}
	l, err := lab.Parse("ends.mcl.yml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r := newFaultRun(t, l, fault != "")
	r.net.Observe = func() error {
		if r.net.Stats().Events > 20_000_000 {
			return errNoEnd
		}
		return nil
	}
	w := r.works[0]
	err = r.net.Run(sim.Job{Name: w.Label, Hosts: w.Hosts, Params: labspec.RankParams(l), Program: func(k *rank.Rank) error {
		err := w.App.Run(k, w.Params)
		at = max(at, k.Now().Sub(0))
		return err
	}})
	return at, r.net.Digest(), err
}
