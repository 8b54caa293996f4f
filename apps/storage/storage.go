// Package storage is a replicated write service (APP-2): a client writes blocks into the
// registered logs of its replicas, and each IO ends when all of them have it: in memory,
// which the acknowledgement of the WRITE says, or in the store, which each replica says
// after its group commit. A NIC never waits for a store.
//
//	1-unicast             to the first replica alone: what one copy costs
//	unicasts              a WRITE to each replica
//	multicast-per-request one WRITE to the group, announced (Gleam §3.3)
//	multicast-registered  one WRITE to the group, addresses told by MRP (Cepheus §III-B2)
//	multicast-shared      one WRITE to the group, addresses alike (Gleam appendix C)
//
// IOs per second are 1 / max(copies x what the stack takes, copies x wire time), latency
// is a + (k-1) d + k S/B for k copies of S bytes (Cepheus §V-B1).
package storage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/prng"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Name is the workload's name in lab files.
const Name = "storage"

// Durabilities: when an IO has ended.
const (
	Memory = "memory" // all replicas have acknowledged the WRITE
	Fsync  = "fsync"  // all replicas have said that their store has it
)

// What the client does when a replica fails.
const (
	Stop    = "stop"    // it ends with an error
	Degrade = "degrade" // it goes on with the others
)

// Schemes returns the names of the ways to write to the replicas.
func Schemes() []string {
	return []string{"1-unicast", "unicasts", "multicast-per-request", "multicast-registered", "multicast-shared"}
}

// mrMode returns how the WRITEs of a multicast scheme find the replicas' memory.
func mrMode(scheme string) (rank.MRMode, bool) {
	mode, ok := strings.CutPrefix(scheme, "multicast-")
	return rank.MRMode(mode), ok
}

// Params are the benchmark's parameters.
type Params struct {
	Workload   string         `json:"workload"` // label in reports
	Schemes    []string       `json:"schemes"`
	Sizes      []int          `json:"sizes"`  // bytes of a block
	Client     int            `json:"client"` // rank; the others are replicas
	Depth      int            `json:"depth"`  // IOs that a job has under way
	Jobs       int            `json:"jobs"`
	Random     bool           `json:"random"` // blocks at random, else in order
	Volume     int            `json:"volume"` // bytes that a job writes to, over and over
	IOs        int            `json:"ios"`    // of each job
	Durability string         `json:"durability"`
	OnFailure  string         `json:"on_failure"`
	Commit     vtime.Duration `json:"commit"`   // what a group commit takes where time is modelled
	Submit     vtime.Duration `json:"submit"`   // what an IO takes on the client before its first copy is posted,
	Copy       vtime.Duration `json:"copy"`     // more for each copy beyond the first, before that, too,
	Complete   vtime.Duration `json:"complete"` // and after its last
	Disk       int64          `json:"disk"`     // bytes that a store may take; 0: no limit
	Crash      *Crash         `json:"crash,omitempty"`
	Seed       uint64         `json:"seed"`
}

// Crash is the loss of a replica: its memory, and what its store has not made durable. It
// comes back when the IOs have ended.
type Crash struct {
	Rank  int            `json:"rank"`
	After vtime.Duration `json:"after"` // the IOs began
}

// Bounds of the parameters.
const (
	depthMax  = 1024    // over all jobs; a slot of a log has a number of 12 bits
	BlocksMax = 1 << 18 // of a volume over all jobs
	bytesMax  = 1 << 29 // of the memory of all ranks
	iosMax    = 1 << 24
)

// blocks returns how many blocks of a size a job's volume has.
func (p *Params) blocks(bs int) int { return p.Volume / bs }

// Check returns what is wrong with the parameters on so many ranks.
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

// logBytes returns the registered memory of a replica for one job: its volume, or, where
// a store holds that, a slot for each IO under way.
func (p *Params) logBytes(bs int) int {
	if p.Durability == Memory {
		return p.blocks(bs) * bs
	}
	return p.Depth * bs
}

// Record is a block as a store has it.
type Record = apps.Record

// Store is the durable memory of a replica.
type Store = apps.Store

// App implements apps.App.
type App struct {
	// Open opens a replica's store of a volume: new, or as it was left. limit bounds its
	// bytes, 0 does not.
	Open func(host, volume string, limit int64) (Store, error)
	// Clocked says that lab time passes by itself while a store works. Elsewhere a commit
	// takes what the parameters say.
	Clocked bool
	// Delivered, if set, is called on each replica before it reads its volume back. It is a
	// hook for tests of the checking itself.
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

// row is one scheme at one block size, as one rank has it.
type row struct {
	app      App
	r        *rank.Rank
	p        *Params
	scheme   string
	bs       int
	si, zi   int
	name     string // of the volume, and before the keys of what ranks tell each other
	replicas []int  // ranks
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

// key names a value that ranks tell each other.
func (w *row) key(format string, args ...any) string {
	return w.name + "/" + fmt.Sprintf(format, args...)
}

// leftKey names what a replica says when it takes no more WRITEs of an epoch: nothing, or that
// it has crashed.
func (w *row) leftKey(epoch, replica int) string { return w.key("left/%d/%d", epoch, replica) }

// seed names the bytes of a write.
func (w *row) seed(job int, number uint64) uint64 {
	return prng.Mix(prng.Mix(w.p.Seed^uint64(w.si)<<48^uint64(w.zi)<<32^uint64(job)<<8) ^ number)
}

// jobOf returns the job that a block of all jobs' volumes belongs to.
func (w *row) jobOf(block uint32) int { return int(block) / w.p.blocks(w.bs) }

// epoch is a time in which the same replicas take part. The client says when the next
// begins, and who is in it.
type epoch struct {
	Number  int      `json:"number"`
	Members []int    `json:"members"` // ranks
	Next    []uint64 `json:"next"`    // by job: the number of the first write
	Broken  bool     `json:"broken"`  // the one before ended with a failure
	End     bool     `json:"end"`     // there are no more IOs
	Present []int    `json:"present"` // at the end: the ranks that are there to be compared
}

// slotBits is where the immediate data of a WRITE is divided: slot of the log, block of
// the job's volume.
const slotBits = 20

func immOf(slot, block int) uint32 { return uint32(slot)<<slotBits | uint32(block) }

func slotOf(imm uint32) (slot, block int) { return int(imm >> slotBits), int(imm & (1<<slotBits - 1)) }

// fill writes the bytes of a write.
func (w *row) fill(b []byte, job int, number uint64) { prng.Fill(b, w.seed(job, number), 0) }
