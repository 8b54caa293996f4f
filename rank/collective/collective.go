// SPDX-License-Identifier: Apache-2.0

// Package collective implements collective operations: Broadcast, Allgather, Alltoall, Reduce-scatter
// and the barrier. Some algorithms use in-network multicast; the others use unicast connections, like
// the systems with which multicast is compared. A New function (NewBcast, NewAllgather and so on)
// prepares the algorithm of a given name on a rank. Each algorithm is a short file whose doc comment
// gives the closed form of its time.
//
// The closed forms use these symbols: N ranks, r = N-1 receivers, M bytes, B the link rate,
// and S(m, L) the time of one message of m bytes over L links, from its start to its last bit:
//
//	S(m, L) = wire(m)/B + (L-1)(t_pkt + switch latency) + L d
//
// where wire(m) is the size of m with all headers and gaps, t_pkt the time of the last packet
// and d the delay of a link. A(L) is the time of an acknowledgement over L links. The forms
// leave out host cost, which adds to each message. They hold where no two connections share a
// link inside the fabric.
package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Times are the instants at which a rank had finished the two parts of an operation.
type Times struct {
	Received vtime.Time // the rank holds the whole result (the root of a broadcast: from the start)
	Done     vtime.Time // the rank also has everything that it sent acknowledged
}

// Algorithm is one rank's side of a collective operation. It serves one message after another.
type Algorithm interface {
	// Begin prepares a message of n bytes at the start of b and posts its receives. The New function of
	// each kind of operation defines n and root. All ranks call Run once all have returned from Begin.
	Begin(b *rank.Buffer, n, root int) error
	// Run moves the message and returns when this rank's part is done.
	Run() (Times, error)
	// Close releases the algorithm's objects in the fabric. All ranks must call it.
	Close() error
}

// Options are the parameters of an algorithm. A zero field takes the default that Parameters
// gives.
type Options struct {
	// Label distinguishes several instances of one algorithm in a job.
	Label string `json:"-"`
	// Slices is the number of pieces that a message is passed on in.
	Slices int `json:"slices,omitempty"`
	// Radix is the number of subtrees that a tree divides the ranks into, 2 or more.
	Radix int `json:"radix,omitempty"`
	// Block is the size of a block in bytes.
	Block int `json:"block,omitempty"`
	// Parallel is the number of ranks that multicast at the same time.
	Parallel int `json:"parallel,omitempty"`
	// Subgroups is the number of multicast groups that a block is divided among. Workers is
	// the number of receive workers, each of which has subgroups of its own.
	Subgroups int `json:"subgroups,omitempty"`
	Workers   int `json:"workers,omitempty"`
	// Staging is the largest number of posted receives of a subgroup, up to 8192.
	Staging int `json:"staging,omitempty"`
	// Chunk is the size of a multicast WRITE in bytes.
	Chunk int `json:"chunk,omitempty"`
	// Pace is the percentage of a link that all ranks which multicast at the same time use
	// together; 0: no limit.
	Pace int `json:"pace,omitempty"`
	// Alpha is the time that the cutoff timer allows beyond the transmission time; 0: it is derived
	// from the duration of the barrier.
	Alpha vtime.Duration `json:"alpha,omitempty"`
	// Cutoff is the start of the cutoff timer: CutoffBeforeBarrier, or after the barrier if it is empty
	// or CutoffAfterBarrier (AG-12).
	Cutoff string `json:"cutoff,omitempty"`
	// Engine names the model of the receiving hardware, EngineDPA; if it is empty receiving takes no
	// time. PerChunk replaces the engine's time of a worker per chunk. CopyTime is the time after that
	// until the chunk has been copied from staging to its place.
	Engine   string         `json:"engine,omitempty"`
	PerChunk vtime.Duration `json:"per_chunk,omitempty"`
	CopyTime vtime.Duration `json:"copy_time,omitempty"`
	// FlagTime is the time that the completion flag of the last worker takes to host memory.
	FlagTime vtime.Duration `json:"flag_time,omitempty"`
	// Fallback selects the reaction of a broadcast to multicast that does not work; empty is
	// FallbackOff.
	Fallback string `json:"fallback,omitempty"`
	// Transport selects how unicast sends: TransportRC, or if empty, whole messages; TransportRCChunks or
	// TransportUD, chunks that a thread cuts, which spends PerChunk on each.
	Transport string `json:"transport,omitempty"`
	// Write makes cepheus use registered WRITEs in place of SENDs.
	Write bool `json:"write,omitempty"`
	// Float32 makes a reduction add floating-point numbers.
	Float32 bool `json:"float32,omitempty"`
}

// Parameter is one of the parameters that an algorithm has.
type Parameter struct {
	Name    string // slices, radix, block, parallel, subgroups, workers, staging or chunk
	Default int    // 0 means as many slices as there are ranks
}

// Default values of parameters.
const (
	radixDefault = 4
	blockDefault = 1 << 20

	stagingDefault = 1024 // 4 MiB, enough at 200 Gb/s (AG-20)
	chunkDefault   = 4096
)

func sliced(n int) []Parameter { return []Parameter{{"slices", n}} }
func radix() []Parameter       { return []Parameter{{"radix", radixDefault}} }
func blocks() []Parameter      { return []Parameter{{"block", blockDefault}} }

// casts returns the parameters of algorithms over UD multicast, and more.
func casts(more ...Parameter) []Parameter {
	return append([]Parameter{{"subgroups", 1}, {"workers", 1}, {"staging", stagingDefault}}, more...)
}

// scheme is an entry in the list of algorithms.
type scheme struct {
	name   string
	params []Parameter
	make   func(r *rank.Rank, o *Options) (Algorithm, error)
}

func broadcasts() []scheme {
	return []scheme{
		{"1ring", sliced(1), newRelay(ring)},
		{"1ringM", sliced(1), newRelay(ringM)},
		{"2ring", sliced(1), newRelay(twoRings)},
		{"2ringM", sliced(1), newRelay(twoRingsM)},
		{"binary-tree", nil, newRelay(binaryTree)},
		{"binomial", nil, newRelay(binomial)},
		{"cepheus", nil, newCepheus},
		{"chain", sliced(0), newRelay(ring)},
		{"double-binary-tree", sliced(0), newRelay(inOrder, inOrderShifted)},
		{"gleam", nil, newCepheus},
		{"k-nomial", radix(), newKnomial},
		{"long", nil, newLong},
		{"longM", nil, newLongM},
		{"pipelined-binary-tree", sliced(0), newRelay(binaryTree)},
		{"rdmc", blocks(), newRDMC},
		{"scatter-allgather", radix(), newScatterAllgather},
		{"uc-multicast", casts(Parameter{"chunk", chunkDefault}), newUCMulticast},
		{"ud-multicast", casts(), newUDMulticast},
		{"unicast", nil, newUnicast},
	}
}

// Names returns the names of all broadcast algorithms in alphabetical order.
func Names() []string { return namesOf(broadcasts()) }

func namesOf(list []scheme) (names []string) {
	for _, s := range list {
		names = append(names, s.name)
	}
	slices.Sort(names)
	return names
}

// Parameters returns the parameters of a broadcast algorithm.
func Parameters(name string) []Parameter { return parametersOf(broadcasts(), name) }

func parametersOf(list []scheme, name string) []Parameter {
	for _, s := range list {
		if s.name == name {
			return s.params
		}
	}
	return nil
}

// TakesHashed reports whether a broadcast algorithm works with hashed memory, in which no byte
// may be written twice.
func TakesHashed(name string) bool { return name != "uc-multicast" }

// NewBcast prepares a broadcast algorithm on a rank: it makes connections and groups. All
// ranks of the job must call it. A message of n bytes goes from the root to all.
func NewBcast(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("broadcast", broadcasts(), name, r, &o)
}

// prepare makes an algorithm of a list. It sets the options that are not given.
func prepare(kind string, list []scheme, name string, r *rank.Rank, o *Options) (Algorithm, error) {
	s, err := find(kind, list, name)
	if err != nil {
		return nil, err
	}
	if err = s.options(o, r.Size()); err == nil {
		var a Algorithm
		if a, err = s.make(r, o); err == nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("prepare %s %s: %w", kind, name, err)
}

func find(kind string, list []scheme, name string) (*scheme, error) {
	for i := range list {
		if list[i].name == name {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("no %s algorithm %q: use %s", kind, name, strings.Join(namesOf(list), ", "))
}

// options fills in the defaults and checks the rest. In an algorithm without the parameter
// slices a message is one slice.
func (s *scheme) options(o *Options, ranks int) error {
	given := []struct {
		name string
		v    *int
		min  int
	}{{"slices", &o.Slices, 1}, {"radix", &o.Radix, 2}, {"block", &o.Block, 1}, {"parallel", &o.Parallel, 1},
		{"subgroups", &o.Subgroups, 1}, {"workers", &o.Workers, 1}, {"staging", &o.Staging, 1}, {"chunk", &o.Chunk, 1}}
	for _, g := range given {
		i := slices.IndexFunc(s.params, func(p Parameter) bool { return p.Name == g.name })
		switch {
		case i < 0 && *g.v != 0:
			return fmt.Errorf("%s of %d: it has no such parameter", g.name, *g.v)
		case i < 0:
			*g.v = g.min
		case *g.v == 0 && s.params[i].Default == 0:
			*g.v = ranks
		case *g.v == 0:
			*g.v = s.params[i].Default
		case *g.v < g.min:
			return fmt.Errorf("%s of %d: need at least %d", g.name, *g.v, g.min)
		}
	}
	if o.Transport != "" {
		return s.threaded(o)
	}
	timed := o.FlagTime != 0 || o.Pace != 0 || o.Alpha != 0 || o.Cutoff != "" || o.PerChunk != 0 || o.CopyTime != 0 || o.Engine != ""
	if timed && !slices.ContainsFunc(s.params, func(p Parameter) bool { return p.Name == "staging" }) {
		return fmt.Errorf("it has no pace, no cutoff timer and no receive engine")
	}
	if o.Pace < 0 || o.Pace > 100 {
		return fmt.Errorf("pace of %d %%: use 1 to 100, or 0 for none", o.Pace)
	}
	switch {
	case o.Fallback == "" || o.Fallback == FallbackOff:
	case !HasFallback(s.name):
		return fmt.Errorf("it has no fallback")
	case o.Fallback != FallbackFull && o.Fallback != FallbackPartial:
		return fmt.Errorf("fallback %q: use %s, %s or %s", o.Fallback, FallbackOff, FallbackFull, FallbackPartial)
	}
	return nil
}

// threaded checks the options of an algorithm that has a transport.
func (s *scheme) threaded(o *Options) error {
	switch {
	case s.name != "unicast":
		return fmt.Errorf("it has no transport")
	case !slices.Contains(Transports(), o.Transport):
		return fmt.Errorf("transport %q: use %s", o.Transport, strings.Join(Transports(), ", "))
	case o.Pace != 0 || o.Cutoff != "" || o.CopyTime != 0 || o.FlagTime != 0 || o.Engine != "" || o.Fallback != "":
		return fmt.Errorf("with a transport it has per-chunk and alpha alone")
	case o.Transport == TransportRC && (o.PerChunk != 0 || o.Alpha != 0):
		return fmt.Errorf("transport %s cuts no chunks: it has neither per-chunk nor alpha", TransportRC)
	}
	return nil
}

// Transports returns the transports of unicast, the default first.
func Transports() []string { return []string{TransportRC, TransportRCChunks, TransportUD} }

// HasFallback reports whether a broadcast algorithm can avoid multicast that does not work.
func HasFallback(name string) bool { return name == "cepheus" || name == "gleam" }

// Values of Options.Cutoff.
const (
	CutoffAfterBarrier  = "after-barrier"
	CutoffBeforeBarrier = "before-barrier"
)

// ByGroup reports whether an algorithm of the given name, of any kind, uses a group that switches
// register, replicate for and aggregate for. It cannot run where there is no switch.
func ByGroup(name string) bool { return HasFallback(name) || name == "in-network" }

// relative returns this rank's number when ranks are counted from the root.
func relative(r *rank.Rank, root int) int { return (r.ID() - root + r.Size()) % r.Size() }

// absolute is the inverse of relative.
func absolute(r *rank.Rank, root, rel int) int { return (rel + root) % r.Size() }

// connectAll connects the rank to each of the given peers in a fixed order. Both sides of
// every connection must call it.
func connectAll(r *rank.Rank, peers []int) error {
	for _, p := range peers {
		if _, err := r.Connect(p); err != nil {
			return err
		}
	}
	return nil
}

// connectAny is connectAll for peers that need not form a tree. Each rank connects in
// ascending order of its peers, so no cycle of ranks waits for each other: of all missing
// connections, the one with the smallest pair of ranks is the next at both its ends.
func connectAny(r *rank.Rank, peers []int) error {
	p := slices.Clone(peers)
	slices.Sort(p)
	return connectAll(r, slices.Compact(p))
}
