// SPDX-License-Identifier: Apache-2.0

// Package storage is a replicated write service (APP-2). A client writes blocks into the registered
// logs of its replicas. An IO ends when all replicas have the block: in memory, which the
// acknowledgement of the WRITE proves, or in their stores, of which each replica sends a notice
// after its group commit. A NIC never waits for a store.
//
//	1-unicast             a WRITE to the first replica alone, which shows the cost of one copy
//	unicasts              a WRITE to each replica
//	multicast-per-request one WRITE to the group, whose addresses a message announces (Gleam §3.3)
//	multicast-registered  one WRITE to the group, whose addresses MRP registers (Cepheus §III-B2)
//	multicast-shared      one WRITE to the group, whose members use the same address (Gleam appendix C)
//
// For k copies of S bytes the rate of IOs is 1 / max(k x stack time, k x wire time), and the latency
// is a + (k-1) d + k S/B (Cepheus §V-B1).
package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Name is the workload's name in lab files.
const Name = "storage"

// Values of Params.Durability: the event at which an IO has ended.
const (
	Memory = "memory" // all replicas have acknowledged the WRITE
	Fsync  = "fsync"  // all replicas have sent a notice that their store has the block
)

// Values of Params.OnFailure: the client's reaction to the failure of a replica.
const (
	Stop    = "stop"    // it ends with an error
	Degrade = "degrade" // it continues with the others
)

// Schemes returns the names of all schemes.
func Schemes() []string {
	return []string{"1-unicast", "unicasts", "multicast-per-request", "multicast-registered", "multicast-shared"}
}

// mrMode returns how the WRITEs of a scheme find the replicas' memory, and whether the scheme is a
// multicast.
func mrMode(scheme string) (rank.MRMode, bool) {
	mode, ok := strings.CutPrefix(scheme, "multicast-")
	return rank.MRMode(mode), ok
}

// Params holds the benchmark's parameters.
type Params struct {
	Workload   string         `json:"workload"` // label in reports
	Schemes    []string       `json:"schemes"`
	Sizes      []int          `json:"sizes"`  // bytes of a block
	Client     int            `json:"client"` // rank; the others are replicas
	Depth      int            `json:"depth"`  // IOs of a job in progress at a time
	Jobs       int            `json:"jobs"`
	Random     bool           `json:"random"` // write blocks at random; otherwise in order
	Volume     int            `json:"volume"` // bytes of a job's volume, which the job overwrites repeatedly
	IOs        int            `json:"ios"`    // of each job
	Durability string         `json:"durability"`
	OnFailure  string         `json:"on_failure"`
	Commit     vtime.Duration `json:"commit"`   // duration of a group commit where time is modelled
	Submit     vtime.Duration `json:"submit"`   // time that an IO takes on the client before its first copy is posted
	Copy       vtime.Duration `json:"copy"`     // additional time before that for each copy beyond the first
	Complete   vtime.Duration `json:"complete"` // time that an IO takes on the client after its last acknowledgement or notice
	Disk       int64          `json:"disk"`     // largest size of a store in bytes; 0 means no limit
	Crash      *Crash         `json:"crash,omitempty"`
	Seed       uint64         `json:"seed"`
}

// Crash is the crash of a replica, which loses its memory and the writes that its store has not made
// durable. The replica restarts when the IOs have ended.
type Crash struct {
	Rank  int            `json:"rank"`
	After vtime.Duration `json:"after"` // time from the beginning of the IOs
}

// Bounds of the parameters.
const (
	depthMax  = 1024    // IOs in progress over all jobs, since the number of a slot has 12 bits
	BlocksMax = 1 << 18 // blocks of a replica's volumes over all jobs
	bytesMax  = 1 << 29 // bytes of registered memory over all ranks
	iosMax    = 1 << 24 // IOs over all jobs
)

// blocks returns the number of blocks of a size in a job's volume.
func (p *Params) blocks(bs int) int { return p.Volume / bs }

// Check returns an error if the parameters are not valid for the given number of ranks.
func (p *Params) Check(ranks int) error {
	switch {
	case len(p.Schemes) == 0 || len(p.Sizes) == 0:
		return fmt.Errorf("at least one scheme and one bs are needed")
	case ranks < 2 || p.Client < 0 || p.Client >= ranks:
		return fmt.Errorf("client %d of %d ranks: there must be a client and a replica", p.Client, ranks)
	case p.Depth < 1 || p.Jobs < 1 || p.Depth > depthMax/p.Jobs:
		return fmt.Errorf("iodepth %d and numjobs %d: both are at least 1, and together at most %d IOs", p.Depth, p.Jobs, depthMax)
	case p.IOs < 1 || p.IOs > iosMax/p.Jobs:
		return fmt.Errorf("%d IOs in each of %d jobs: use 1 to %d in all", p.IOs, p.Jobs, iosMax)
	case p.Durability != Memory && p.Durability != Fsync:
		return fmt.Errorf("durability %q: use %s or %s", p.Durability, Memory, Fsync)
	case p.OnFailure != Stop && p.OnFailure != Degrade:
		return fmt.Errorf("on-failure %q: use %s or %s", p.OnFailure, Stop, Degrade)
	case p.Commit < 0 || p.Submit < 0 || p.Copy < 0 || p.Complete < 0 || p.Disk < 0:
		return fmt.Errorf("commit, submit, copy, complete and disk cannot be negative")
	case p.Crash != nil && (p.Crash.Rank < 0 || p.Crash.Rank >= ranks || p.Crash.Rank == p.Client || p.Crash.After < 0):
		return fmt.Errorf("a crash of rank %d: it must be a replica", p.Crash.Rank)
	}
	for _, s := range p.Schemes {
		if !slices.Contains(Schemes(), s) {
			return fmt.Errorf("no scheme %q: use %s", s, strings.Join(Schemes(), ", "))
		}
	}
	for _, bs := range p.Sizes {
		switch {
		case bs < 1:
			return fmt.Errorf("a bs of %d bytes: a block has at least one", bs)
		case p.blocks(bs) < 1:
			return fmt.Errorf("a size of %d bytes holds no block of %d: use a larger size or a smaller bs", p.Volume, bs)
		case p.blocks(bs) > BlocksMax/p.Jobs:
			return fmt.Errorf("%d jobs with %d bytes each have more than %d blocks of %d: use a smaller size or a larger bs", p.Jobs, p.Volume, BlocksMax, bs)
		case p.logBytes(bs) > bytesMax/(p.Jobs*ranks):
			return fmt.Errorf("%d bytes on each of %d ranks for each of %d jobs are more than %d in all: use a smaller size", p.logBytes(bs), ranks, p.Jobs, bytesMax)
		}
	}
	return nil
}

// logBytes returns the bytes of a replica's registered memory for one job: the volume, or one slot
// per IO in progress if a store holds the volume.
func (p *Params) logBytes(bs int) int {
	if p.Durability == Memory {
		return p.blocks(bs) * bs
	}
	return p.Depth * bs
}

// Record is a block in a store.
type Record = apps.Record

// Store is the durable storage of a replica.
type Store = apps.Store

// App is the benchmark. It implements apps.App and apps.Printer.
type App struct {
	// Open opens a replica's store of a volume, and makes one if there is none. limit is the largest
	// size in bytes; 0 means no limit.
	Open func(host, volume string, limit int64) (Store, error)
	// Clocked is set if lab time passes while a store works. Otherwise the program sleeps for
	// Params.Commit at each commit.
	Clocked bool
	// Delivered, if set, is called on each replica before it reads its volume back. Tests use it to
	// damage the volume and see that the check fails.
	Delivered func(r *rank.Rank, volume [][]byte)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	var p Params
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("storage: read parameters: %w", err)
	}
	if err := p.Check(r.Size()); err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	for si := range p.Schemes {
		for zi := range p.Sizes {
			if err := a.runRow(r, &p, si, zi); err != nil {
				return fmt.Errorf("%s %s, bs %d: %w", p.Workload, p.Schemes[si], p.Sizes[zi], err)
			}
		}
	}
	return nil
}

// row is one rank's part of one scheme at one block size.
type row struct {
	app      App
	r        *rank.Rank
	p        *Params
	scheme   string
	bs       int
	si, zi   int
	name     string // name of the volume, and prefix of the keys of published values
	replicas []int  // ranks of the replicas
}

func (a App) runRow(r *rank.Rank, p *Params, si, zi int) error {
	w := &row{app: a, r: r, p: p, scheme: p.Schemes[si], bs: p.Sizes[zi], si: si, zi: zi}
	w.name = fmt.Sprintf("%s/%s/%d", p.Workload, w.scheme, w.bs)
	for i := range r.Size() {
		if i != p.Client && !(w.scheme == "1-unicast" && len(w.replicas) == 1) {
			w.replicas = append(w.replicas, i)
		}
	}
	if r.ID() == p.Client {
		r.Report(fmt.Sprintf("%s %s, bs %d, %d IOs", p.Workload, w.scheme, w.bs, p.IOs*p.Jobs))
	}
	r.Sync()
	var err error
	switch {
	case r.ID() == p.Client:
		err = newClient(w).run()
	case slices.Contains(w.replicas, r.ID()):
		err = newReplica(w).run()
	}
	if err != nil {
		return err
	}
	r.Sync()
	return nil
}

// key returns the key under which a rank publishes a value.
func (w *row) key(format string, args ...any) string {
	return w.name + "/" + fmt.Sprintf(format, args...)
}

// leftKey returns the key under which a replica publishes that it has left an epoch. The value is
// empty, or marks that the replica has crashed.
func (w *row) leftKey(epoch, replica int) string { return w.key("left/%d/%d", epoch, replica) }

// seed returns the seed of the contents of a write.
func (w *row) seed(job int, number uint64) uint64 {
	return prng.Mix(prng.Mix(w.p.Seed^uint64(w.si)<<48^uint64(w.zi)<<32^uint64(job)<<8) ^ number)
}

// jobOf returns the job to which a block belongs, numbered over the volumes of all jobs.
func (w *row) jobOf(block uint32) int { return int(block) / w.p.blocks(w.bs) }

// epoch is a period in which the same replicas take part. The client decides when the next one
// begins and who its members are.
type epoch struct {
	Number  int      `json:"number"`
	Members []int    `json:"members"` // ranks of the replicas that take part
	Next    []uint64 `json:"next"`    // by job: number of the first write
	Broken  bool     `json:"broken"`  // the epoch before ended with a failure
	End     bool     `json:"end"`     // all IOs have ended
	Present []int    `json:"present"` // at the end: ranks of the replicas to compare
}

// slotBits is the number of low bits of a WRITE's immediate data that hold the block of the job's
// volume. The bits above hold the slot of the log.
const slotBits = 20

func immOf(slot, block int) uint32 { return uint32(slot)<<slotBits | uint32(block) }

func slotOf(imm uint32) (slot, block int) { return int(imm >> slotBits), int(imm & (1<<slotBits - 1)) }

// fill fills b with the contents of a write.
func (w *row) fill(b []byte, job int, number uint64) { prng.Fill(b, w.seed(job, number), 0) }
