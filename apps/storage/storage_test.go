// SPDX-License-Identifier: Apache-2.0

package storage_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/apps/storage/pebblestore"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// A sweep runs over seeds from..from+seeds-1.
var (
	fromSeed  = flag.Uint64("from", 0, "first seed of the sweep")
	seedCount = flag.Uint64("seeds", 0, "number of seeds of the sweep; 0: the test's own")
)

// trial is a run of the workload on a star.
type trial struct {
	p       storage.Params
	app     storage.App
	ranks   int
	seed    uint64
	mtu     int
	cost    rankhost.HostCost
	loss    float64
	timeout uint8 // as the NIC counts it
	link    topo.LinkParams
	check   bool

	net *sim.Net
}

func newTrial(p storage.Params) *trial {
	if p.Workload == "" {
		p.Workload = "storage"
	}
	if p.OnFailure == "" {
		p.OnFailure = storage.Stop
	}
	return &trial{
		p: p, ranks: 4, seed: 1, mtu: 4096, timeout: 4, check: true, app: storage.App{Open: pebblestore.NewMemory().Open},
		link: topo.LinkParams{Rate: 100e9, Delay: 600 * vtime.Nanosecond},
	}
}

// run returns the rows, and the error of the run.
func (v *trial) run(t *testing.T) ([]apps.Row, error) {
	t.Helper()
	g, err := topo.Star(v.ranks, v.link)
	if err != nil {
		t.Fatal(err)
	}
	rules := virtswitch.RulesFixed()
	v.net, err = sim.New(sim.Config{Check: v.check, RetryAfter: 200 * vtime.Microsecond, RetriesMax: 5, Spec: fabric.Spec{
		Graph: g, Seed: v.seed, NIC: virtrnic.Settings{AckEvery: 16},
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 32 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: rules, Groups: 1024},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for id := range v.net.Ports() {
		if v.loss > 0 {
			root := prng.New(v.seed)
			v.net.SetFault(id, &faults.Impairment{Loss: v.loss, Random: root.Derive(fmt.Sprint("loss/", id))})
		}
	}
	raw, err := json.Marshal(v.p)
	if err != nil {
		t.Fatal(err)
	}
	hosts := make([]int, v.ranks)
	for i := range hosts {
		hosts[i] = i
	}
	records := make([][][]byte, v.ranks)
	runErr := v.net.Run(sim.Job{
		Name: "storage", Hosts: hosts,
		Params: rankhost.Params{
			MTU: v.mtu, TrafficClass: 26<<2 | wire.ECNECT0, Timeout: v.timeout, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 8, Activate: rules.Activate, Cost: v.cost,
		},
		Program: func(r *rank.Rank) error { return v.app.Run(r, raw) },
		Emit:    func(i int, rec []byte) { records[i] = append(records[i], rec) },
	})
	rows, err := v.app.Reduce(raw, records)
	if err != nil {
		t.Fatal(err)
	}
	return rows, runErr
}

// must is run of a trial that must succeed.
func (v *trial) must(t *testing.T) []apps.Row {
	t.Helper()
	rows, err := v.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := v.net.Leftover(); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !*r.Verified || ios(r).Problem != "" || ios(r).IOs != v.p.IOs*v.p.Jobs {
			t.Errorf("%s at %d: %d IOs, %s", r.Scheme, r.SizeBytes, ios(r).IOs, ios(r).Problem)
		}
	}
	if want := len(v.p.Schemes) * len(v.p.Sizes); len(rows) != want {
		t.Fatalf("%d rows, want %d", len(rows), want)
	}
	return rows
}

// TestEveryWay: every scheme, durability and order of blocks, several jobs, block sizes that
// are no power of two, with and without loss: every acknowledged write is on every replica.
func TestEveryWay(t *testing.T) {
	for _, durability := range []string{storage.Memory, storage.Fsync} {
		for _, random := range []bool{false, true} {
			for _, loss := range []float64{0, 1e-3} {
				v := newTrial(storage.Params{
					Schemes: storage.Schemes(), Sizes: []int{512, 5000}, Depth: 4, Jobs: 2, Random: random, Volume: 40000, IOs: 60,
					Durability: durability, Commit: 20 * vtime.Microsecond, Seed: 9,
				})
				v.loss = loss
				v.must(t)
			}
		}
	}
}

// TestBusyClient: a client that takes long to submit a block asks no replica for a sign of life
// meanwhile, for it waits for nothing. It may while a block is on its way.
func TestBusyClient(t *testing.T) {
	hops := map[vtime.Duration]uint64{}
	for _, submit := range []vtime.Duration{vtime.Millisecond, 50 * vtime.Millisecond} {
		v := newTrial(storage.Params{
			Schemes: []string{"unicasts"}, Sizes: []int{4096}, Depth: 1, Jobs: 2, Volume: 1 << 16, IOs: 5,
			Durability: storage.Fsync, Commit: 20 * vtime.Microsecond, Submit: submit,
		})
		v.must(t)
		hops[submit] = v.net.Stats().Hops
	}
	if quick, slow := hops[vtime.Millisecond], hops[50*vtime.Millisecond]; quick == 0 || slow > quick*5/4 {
		t.Errorf("%d packet-hops where a block takes a millisecond to submit, %d where it takes fifty", quick, slow)
	}
}

// TestSameRun: equal runs have one digest, also with stores and their goroutines.
func TestSameRun(t *testing.T) {
	var digests []uint64
	for range 2 {
		v := newTrial(storage.Params{
			Schemes: []string{"unicasts", "multicast-registered"}, Sizes: []int{4096}, Depth: 8, Jobs: 2, Random: true, Volume: 1 << 20, IOs: 200,
			Durability: storage.Fsync, OnFailure: storage.Degrade, Commit: 20 * vtime.Microsecond, Crash: &storage.Crash{Rank: 2, After: 300 * vtime.Microsecond},
		})
		v.must(t)
		digests = append(digests, v.net.Digest())
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %016x and %016x", digests[0], digests[1])
	}
}

// TestCrashes: a replica fails at a random moment of a run, and loses its memory and the writes that
// its store has not made durable. No acknowledged write is missing on any of the others, and the
// replica becomes equal to them when it returns: the client checks both.
func TestCrashes(t *testing.T) {
	count := *seedCount
	switch {
	case count > 0: // as asked
	case testing.Short():
		count = 25
	case os.Getenv("MCASTLAB_SOAK") != "":
		count = 5000
	default:
		count = 500
	}
	noticed, copied := 0, 0
	for seed := *fromSeed; seed < *fromSeed+count; seed++ {
		r := rand.New(rand.NewPCG(seed, 5))
		schemes := storage.Schemes()
		v := newTrial(storage.Params{
			Schemes: []string{schemes[1+r.IntN(len(schemes)-1)]}, Sizes: []int{256 << r.IntN(5)}, Depth: 1 + r.IntN(8), Jobs: 1 + r.IntN(2),
			Random: r.IntN(2) == 0, Volume: 1 << 14, IOs: 20 + r.IntN(60), Durability: []string{storage.Fsync, storage.Fsync, storage.Memory}[r.IntN(3)],
			OnFailure: []string{storage.Stop, storage.Degrade, storage.Degrade}[r.IntN(3)], Commit: vtime.Duration(1+r.IntN(40)) * vtime.Microsecond,
			Seed: seed, Crash: &storage.Crash{Rank: 1 + r.IntN(3), After: vtime.Duration(r.IntN(600)) * vtime.Microsecond},
		})
		v.seed, v.loss = seed, []float64{0, 0, 1e-3}[r.IntN(3)]
		rows, err := v.run(t)
		fail := func(format string, args ...any) {
			t.Errorf("seed %d: %s\n%+v\n(go test ./apps/storage -run '^TestCrashes$' -from %d -seeds 1)", seed, fmt.Sprintf(format, args...), v.p, seed)
		}
		if len(rows) != 1 {
			fail("%d rows, %v", len(rows), err)
			continue
		}
		o := ios(rows[0])
		stopped := v.p.OnFailure == storage.Stop && len(o.Lost) > 0
		name := fmt.Sprintf("h%d", v.p.Crash.Rank)
		switch {
		case o.Problem != "":
			fail("%s", o.Problem)
		case len(o.Lost) > 1 || len(o.Lost) == 1 && o.Lost[0] != name:
			fail("%v are lost, it was %s that crashed", o.Lost, name)
		case stopped != (err != nil):
			fail("ended with %v", err)
		case err != nil && (!strings.Contains(err.Error(), "replica "+name+" failed after") || o.Error == ""):
			fail("ended with %v", err)
		case !stopped && o.IOs != v.p.IOs*v.p.Jobs:
			fail("%d of %d IOs ended", o.IOs, v.p.IOs*v.p.Jobs)
		}
		noticed += len(o.Lost)
		if o.Copied > 0 {
			copied++
		}
	}
	t.Logf("of %d crashes %d were noticed by the client, %d left something to copy", count, noticed, copied)
	if noticed < int(count)/4 || copied < int(count)/4 {
		t.Errorf("of %d crashes %d were noticed and %d left anything to copy: the trials miss what they are for", count, noticed, copied)
	}
}

// TestOnlyReplica: the only replica of a volume in memory crashes, at any instant before, while and
// after the client sees its writes acknowledged. Either all is there, or nothing was acknowledged, or
// no replica is left to be read back: no client reads an empty memory.
func TestOnlyReplica(t *testing.T) {
	seen := map[string]int{}
	for after := vtime.Duration(0); after < 24*vtime.Microsecond; after += 250 * vtime.Nanosecond {
		for _, scheme := range storage.Schemes() {
			v := newTrial(storage.Params{
				Schemes: []string{scheme}, Sizes: []int{1}, Depth: 1, Jobs: 1, Volume: 3, IOs: 3, Durability: storage.Memory,
				Crash: &storage.Crash{Rank: 1, After: after},
			})
			v.ranks = 2
			rows, err := v.run(t)
			if len(rows) != 1 {
				t.Fatalf("%s, after %v: %d rows, %v", scheme, after, len(rows), err)
			}
			o := ios(rows[0])
			if o.Problem != "" && o.Problem != "no replica is left to be read back" {
				t.Errorf("%s, after %v: %s", scheme, after, o.Problem)
			}
			switch {
			case o.Problem == "":
				seen["equal"]++
			case err == nil:
				seen["crashed unseen"]++
			default:
				seen["crashed"]++
			}
		}
	}
	for _, how := range []string{"equal", "crashed unseen", "crashed"} {
		if seen[how] == 0 {
			t.Errorf("no instant was met with %s: %v", how, seen)
		}
	}
}

// forgetful is a store whose Sync reports success without making writes durable.
type forgetful struct{ storage.Store }

func (f forgetful) Sync() error { return nil }

// TestForgetfulStore: the check of the crashes can fail: a store whose Sync does nothing loses
// acknowledged writes when it crashes, and the client names them.
func TestForgetfulStore(t *testing.T) {
	v := newTrial(storage.Params{
		Schemes: []string{"multicast-shared"}, Sizes: []int{512}, Depth: 4, Jobs: 1, Volume: 1 << 14, IOs: 30, Durability: storage.Fsync,
		OnFailure: storage.Degrade, Commit: 5 * vtime.Microsecond, Crash: &storage.Crash{Rank: 2, After: 40 * vtime.Microsecond},
	})
	for _, forget := range []bool{false, true} {
		mem := pebblestore.NewMemory()
		v.app.Open = func(host, volume string, limit int64) (storage.Store, error) {
			s, err := mem.Open(host, volume, limit)
			if forget && host == "h2" && err == nil {
				return forgetful{s}, nil
			}
			return s, err
		}
		rows, err := v.run(t)
		if err != nil || len(rows) != 1 {
			t.Fatal(err)
		}
		if got := strings.HasPrefix(ios(rows[0]).Problem, "h2 has write 0 of block 0, acknowledged is "); got != forget {
			t.Errorf("forgetful %v: %+v", forget, ios(rows[0]))
		}
	}
}

// spoiled is a store that flips a byte of a block.
type spoiled struct{ storage.Store }

func (s spoiled) Put(records []storage.Record) error {
	for i, r := range records {
		if r.Block == 2 {
			records[i].Data = append([]byte(nil), r.Data...)
			records[i].Data[0] ^= 1
		}
	}
	return s.Store.Put(records)
}

// partial is a store that loses the writes to a block.
type partial struct{ storage.Store }

func (s partial) Put(records []storage.Record) error {
	var kept []storage.Record
	for _, r := range records {
		if r.Block != 2 {
			kept = append(kept, r)
		}
	}
	return s.Store.Put(kept)
}

// TestReadBackNotices: wrong bytes on one replica, or a write that is not there although it
// was said to be, fail the row.
func TestReadBackNotices(t *testing.T) {
	mem := pebblestore.NewMemory()
	wrap := func(w func(storage.Store) storage.Store) func(string, string, int64) (storage.Store, error) {
		return func(host, volume string, limit int64) (storage.Store, error) {
			s, err := mem.Open(host, fmt.Sprintf("%p/%s", w, volume), limit)
			if host == "h2" && err == nil {
				return w(s), nil
			}
			return s, err
		}
	}
	for name, c := range map[string]struct {
		durability, want string
		app              storage.App
	}{
		"flipped": {storage.Fsync, "h2: block 2 is not what write 3 wrote", storage.App{Open: wrap(func(s storage.Store) storage.Store { return spoiled{s} })}},
		"missing": {storage.Fsync, "h2 has write 0 of block 2, acknowledged is 3", storage.App{Open: wrap(func(s storage.Store) storage.Store { return partial{s} })}},
		"in place": {storage.Memory, "h2: block 1 is not what write 2 wrote", storage.App{Delivered: func(r *rank.Rank, volume [][]byte) {
			if r.ID() == 2 {
				volume[0][600] ^= 1
			}
		}}},
	} {
		v := newTrial(storage.Params{
			Schemes: []string{"multicast-shared"}, Sizes: []int{512}, Depth: 2, Jobs: 1, Volume: 4096, IOs: 8, Durability: c.durability, Commit: vtime.Microsecond,
		})
		v.app = c.app
		rows, err := v.run(t)
		if err != nil || len(rows) != 1 || *rows[0].Verified || ios(rows[0]).Problem != c.want {
			t.Errorf("%s: %v, %+v", name, err, ios(rows[0]))
		}
	}
}

// TestDiskFull: a replica whose disk is full gives no notice; the client names it and the reason, and
// earlier acknowledged writes are there. With degrade the others continue.
func TestDiskFull(t *testing.T) {
	for _, policy := range []string{storage.Stop, storage.Degrade} {
		v := newTrial(storage.Params{
			Schemes: []string{"multicast-registered"}, Sizes: []int{4096}, Depth: 4, Jobs: 1, Volume: 1 << 20, IOs: 256, Durability: storage.Fsync,
			OnFailure: policy, Commit: 10 * vtime.Microsecond,
		})
		mem := pebblestore.NewMemory()
		v.app.Open = func(host, volume string, limit int64) (storage.Store, error) {
			if host == "h3" {
				limit = 300 << 10
			}
			return mem.Open(host, volume, limit)
		}
		rows, err := v.run(t)
		if len(rows) != 1 || ios(rows[0]).Problem != "" || len(ios(rows[0]).Lost) != 1 || ios(rows[0]).Lost[0] != "h3" {
			t.Fatalf("%s: %v, %+v", policy, err, rows)
		}
		o := ios(rows[0])
		if policy == storage.Stop {
			if err == nil || !strings.Contains(err.Error(), "replica h3 failed after ") || !strings.Contains(err.Error(), "it cannot commit: store: no space left on device") {
				t.Errorf("ended with %v", err)
			}
			if o.IOs < 40 || o.IOs > 75 {
				t.Errorf("%d IOs of 4 KiB ended on a disk of 300 KiB", o.IOs)
			}
		} else if err != nil || o.IOs != 256 || o.Replicas != 2 {
			t.Errorf("ended with %v: %+v", err, o)
		}
	}
}

// TestNoStore: a store that cannot be opened, at first or again after a crash, ends the run
// with the replica's name and why, by either policy; it is not a replica less.
func TestNoStore(t *testing.T) {
	for _, policy := range []string{storage.Stop, storage.Degrade} {
		for _, good := range []int{0, 1} {
			v := newTrial(storage.Params{
				Schemes: []string{"multicast-registered"}, Sizes: []int{512}, Depth: 4, Jobs: 1, Volume: 1 << 14, IOs: 30, Durability: storage.Fsync,
				OnFailure: policy, Commit: 5 * vtime.Microsecond, Crash: &storage.Crash{Rank: 2, After: 40 * vtime.Microsecond},
			})
			mem, opened := pebblestore.NewMemory(), 0
			v.app.Open = func(host, volume string, limit int64) (storage.Store, error) {
				if host == "h2" {
					if opened++; opened > good {
						return nil, errors.New("open store: pebble: the manifest is damaged")
					}
				}
				return mem.Open(host, volume, limit)
			}
			_, err := v.run(t)
			if err == nil || !strings.Contains(err.Error(), "replica h2: open store: pebble: the manifest is damaged (on-failure does not cover it") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, the store is opened %d times: %v", policy, good, err)
			}
		}
	}
}

// TestClosedForms: IOs per second are F-20, 1 / max(copies x stack, copies x wire), latency
// F-19, a + (k-1) d + k S/B, within 5 %.
func TestClosedForms(t *testing.T) {
	if testing.Short() {
		t.Skip("some thousand IOs")
	}
	wireUS := func(bytes, mtu int) float64 { // at 100 Gb/s
		full := bytes / mtu
		n := float64(bytes + full*82)
		if rest := bytes % mtu; rest > 0 {
			n += float64(82)
		}
		return (n + 16) * 8 / 100e3
	}
	near := func(what string, got, want float64) {
		t.Helper()
		t.Logf("%s: %.4g, closed form %.4g (%+.1f %%)", what, got, want, 100*(got/want-1))
		if math.Abs(got/want-1) > 0.05 {
			t.Errorf("%s: %.4g, closed form %.4g", what, got, want)
		}
	}
	copies := map[string]float64{"1-unicast": 1, "unicasts": 3, "multicast-per-request": 1, "multicast-registered": 1, "multicast-shared": 1}
	for _, stack := range []vtime.Duration{842 * vtime.Nanosecond, 100 * vtime.Nanosecond} {
		for _, mtu := range []int{1024, 4096} {
			v := newTrial(storage.Params{Schemes: storage.Schemes(), Sizes: []int{8192}, Depth: 64, Jobs: 1, Volume: 1 << 20, IOs: 4000, Durability: storage.Memory})
			v.cost, v.mtu, v.check = rankhost.HostCost{Stack: stack}, mtu, false
			for _, r := range v.must(t) {
				perIO := wireUS(8192, mtu)
				if r.Scheme == "multicast-per-request" {
					perIO += 146 * 8 / 100e3
				}
				k := copies[r.Scheme]
				near(fmt.Sprintf("%s, stack %v, MTU %d, kIOPS", r.Scheme, stack, mtu), ios(r).IOPS/1000, 1000/math.Max(k*stack.Microseconds(), k*perIO))
			}
		}
	}
	sizes := []int{4 << 10, 64 << 10, 512 << 10, 4 << 20}
	v := newTrial(storage.Params{
		Schemes: []string{"1-unicast", "unicasts", "multicast-shared"}, Sizes: sizes, Depth: 1, Jobs: 1, Volume: 8 << 20, IOs: 4, Durability: storage.Memory,
		Submit: 5 * vtime.Microsecond, Copy: 3 * vtime.Microsecond, Complete: 8 * vtime.Microsecond,
	})
	v.cost, v.check, v.mtu = rankhost.HostCost{Stack: 2 * vtime.Microsecond}, false, 1024
	for _, r := range v.must(t) {
		k := copies[r.Scheme]
		// Two links, a store-and-forward hop, and the acknowledgement's way back.
		base := 5 + 3*(k-1) + 8 + 2 + 4*0.6 + (1024+82)*8/100e3 + 2*84*8/100e3
		// While copies wait for the stack the link is idle.
		copied := math.Max((k-1)*2+wireUS(r.SizeBytes, 1024), k*wireUS(r.SizeBytes, 1024))
		near(fmt.Sprintf("%s at %d, us", r.Scheme, r.SizeBytes), r.JCT.P50, base+copied)
		if got, want := r.JCT.P50-r.Source.P50, 8.0; math.Abs(got-want) > 1e-6 {
			t.Errorf("%s at %d: %.3f us from the acknowledgement to the end, want %v", r.Scheme, r.SizeBytes, got, want)
		}
	}
}

// TestNotices: with fsync an IO ends a commit and a notice after its acknowledgement, and
// at depth the commits are shared.
func TestNotices(t *testing.T) {
	const commit = 50
	for _, depth := range []int{1, 16} {
		v := newTrial(storage.Params{
			Schemes: []string{"unicasts", "multicast-registered"}, Sizes: []int{4096}, Depth: depth, Jobs: 1, Volume: 1 << 20, IOs: 160,
			Durability: storage.Fsync, Commit: commit * vtime.Microsecond,
		})
		for _, r := range v.must(t) {
			after := r.JCT.P50 - r.Source.P50
			t.Logf("%s at depth %d: %.1f us to the acknowledgement, %.1f more to the notices, %.0f IOPS", r.Scheme, depth, r.Source.P50, after, ios(r).IOPS)
			if r.Source.Max > commit {
				t.Errorf("%s at depth %d: an acknowledgement took %.1f us: it has waited for a store", r.Scheme, depth, r.Source.Max)
			}
			if depth == 1 && (after < commit || after > commit+5) {
				t.Errorf("%s: %.1f us from the acknowledgement to the notices, a commit takes %d", r.Scheme, after, commit)
			}
			if perCommit := ios(r).IOPS * commit / 1e6; depth == 16 && perCommit < 4 {
				t.Errorf("%s: %.1f IOs per commit: there is no group commit", r.Scheme, perCommit)
			}
		}
	}
}

// TestMRBytes: the cost of WRITEs to a group on the client's link beside the bytes of WRITEs whose
// addresses are alike: an announcement of 122 bytes for each, or nothing (GLE-8: 82 + 16 + 16 x 3,
// preamble, gap and FCS in it).
func TestMRBytes(t *testing.T) {
	sent := map[string]uint64{}
	const ios = 500
	for _, scheme := range storage.Schemes()[2:] {
		v := newTrial(storage.Params{Schemes: []string{scheme}, Sizes: []int{8192}, Depth: 64, Jobs: 1, Volume: 1 << 20, IOs: ios, Durability: storage.Memory})
		v.mtu = 1024
		v.must(t)
		sent[scheme] = v.net.Link(v.net.PortID(0, 0)).Bytes
	}
	shared := float64(sent["multicast-shared"])
	for scheme, want := range map[string]float64{"multicast-per-request": 146 - 24, "multicast-registered": 0} {
		got := (float64(sent[scheme]) - shared) / ios
		t.Logf("%s: %.2f bytes more for each IO, %.2f %% of 8864", scheme, got, got/88.64)
		if math.Abs(got-want) > 2 {
			t.Errorf("%s: %.2f bytes more for each IO, want %v", scheme, got, want)
		}
	}
}

// TestCheck: parameters that make no sense.
func TestCheck(t *testing.T) {
	good := storage.Params{Schemes: []string{"unicasts"}, Sizes: []int{512}, Depth: 1, Jobs: 1, Volume: 4096, IOs: 1, Durability: storage.Memory, OnFailure: storage.Stop}
	if err := good.Check(4); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(p *storage.Params){
		"at least one scheme":     func(p *storage.Params) { p.Schemes = nil },
		`no scheme "raid"`:        func(p *storage.Params) { p.Schemes = []string{"raid"} },
		"a bs of 0 bytes":         func(p *storage.Params) { p.Sizes = []int{0} },
		"holds no block of 8192":  func(p *storage.Params) { p.Sizes = []int{8192} },
		"iodepth 0":               func(p *storage.Params) { p.Depth = 0 },
		"iodepth 600 and numjobs": func(p *storage.Params) { p.Depth, p.Jobs = 600, 2 },
		"0 IOs":                   func(p *storage.Params) { p.IOs = 0 },
		"client 4 of 4 ranks":     func(p *storage.Params) { p.Client = 4 },
		`durability "disk"`:       func(p *storage.Params) { p.Durability = "disk" },
		`on-failure "panic"`:      func(p *storage.Params) { p.OnFailure = "panic" },
		"cannot be negative":      func(p *storage.Params) { p.Commit = -1 },
		"a crash of rank 0":       func(p *storage.Params) { p.Crash = &storage.Crash{} },
		"more than 262144 blocks": func(p *storage.Params) { p.Volume, p.Sizes = 1<<20, []int{1} },
		"are more than 536870912": func(p *storage.Params) { p.Volume, p.Sizes = 1<<28, []int{1 << 20} },
	} {
		p := good
		change(&p)
		if err := p.Check(4); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestTorn: on links so slow that timers expire the client gives up while WRITEs are under way. Such a
// block may have packets of them and of its earlier data, alike on all replicas, and no other bytes.
func TestTorn(t *testing.T) {
	const bs, mtu = 60000, 1024
	torn, noticed := 0, 0
	for timeout := uint8(4); timeout < 10; timeout++ {
		for _, ranks := range []int{3, 6, 11} {
			for _, spoil := range []bool{false, true} {
				v := newTrial(storage.Params{Schemes: []string{"unicasts"}, Sizes: []int{bs}, Depth: 2, Jobs: 1, Volume: 2 * bs, IOs: 5, Durability: storage.Memory})
				v.mtu, v.ranks, v.timeout, v.link.Rate = mtu, ranks, timeout, 1e9
				halves, spoiled := 0, false
				v.app.Delivered = func(r *rank.Rank, volume [][]byte) {
					for at := 0; at < len(volume[0]); at += bs {
						b := volume[0][at : at+bs]
						if b[0] == 0 || b[bs-1] != 0 {
							continue
						}
						if halves++; spoil {
							b[mtu], spoiled = b[mtu]^1, true
						}
					}
				}
				rows, _ := v.run(t) // also a recovery may fail: then there is no row
				for _, r := range rows {
					if torn += halves; (ios(r).Problem != "") != spoiled {
						t.Errorf("timeout %d, %d ranks, %d torn blocks, spoiled %v: %q", timeout, ranks, halves, spoiled, ios(r).Problem)
					}
					if ios(r).Problem != "" {
						noticed++
					}
				}
			}
		}
	}
	t.Logf("%d torn blocks, %d spoiled runs noticed", torn, noticed)
	if torn == 0 || noticed == 0 {
		t.Errorf("%d torn blocks, %d spoiled runs noticed: the trials miss what they are for", torn, noticed)
	}
}

// ios returns the IO details of a row.
func ios(r apps.Row) *storage.IO { return apps.DetailsOf[storage.IO](r) }
