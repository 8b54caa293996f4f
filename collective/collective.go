// Package collective holds the algorithms that move data between all ranks: over
// in-network multicast, and over unicast connections as the systems do that it is
// compared with. Each is a short file whose doc comment gives its closed form.
//
// Symbols of the closed forms: N ranks, r = N-1 receivers, M bytes, B the link rate,
// S(m, L) the time of one message of m bytes over L links, start to last bit:
//
//	S(m, L) = wire(m)/B + (L-1)(t_pkt + switch latency) + L d
//
// where wire(m) is m with all headers and gaps, t_pkt the time of the last packet and
// d a link's delay; A(L) is the time of an acknowledgement over L links. Host cost is
// left out; it adds per message. The forms hold where no two connections share a link
// inside the fabric.
package collective

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/vtime"
)

// Times are the instants at which a rank was done with an operation.
type Times struct {
	Received vtime.Time // it holds the whole result (the root of a broadcast from the start)
	Done     vtime.Time // and everything it sent is acknowledged
}

// Algorithm is one rank's side of a collective operation. It is used for one message
// after another.
type Algorithm interface {
	// Begin posts the receives of a message of n bytes at the start of b. What n and
	// root mean is said where the kind of operation is made. Once all ranks have
	// returned from it, all call Run.
	Begin(b *rank.Buffer, n, root int) error
	// Run moves the message and returns when this rank has no more to do.
	Run() (Times, error)
	// Close takes back what the algorithm holds in the fabric. All ranks call it.
	Close() error
}

// Options are the parameters of a scheme. What is 0 has the default in Parameters.
type Options struct {
	// Label tells several instances of one algorithm in a job apart.
	Label string `json:"-"`
	// Slices is the number of pieces a message is passed on in.
	Slices int `json:"slices,omitempty"`
	// Radix is the number of ways a tree divides the ranks in, from 2 on.
	Radix int `json:"radix,omitempty"`
	// Block is the bytes of a block.
	Block int `json:"block,omitempty"`
	// Parallel is the number of ranks that multicast at a time.
	Parallel int `json:"parallel,omitempty"`
	// Subgroups is the number of multicast groups that a block is divided among, Workers of
	// workers that receive, each from subgroups of its own.
	Subgroups int `json:"subgroups,omitempty"`
	Workers   int `json:"workers,omitempty"`
	// Staging is how many receives of a subgroup are posted at most, up to 8192.
	Staging int `json:"staging,omitempty"`
	// Chunk is the bytes of a multicast WRITE.
	Chunk int `json:"chunk,omitempty"`
	// Pace is the percentage of a link that all ranks which multicast at a time take
	// together; 0: each as much as it gets.
	Pace int `json:"pace,omitempty"`
	// Alpha is what the cutoff timer allows beside the time of the bytes; 0: reckoned from
	// the barrier.
	Alpha vtime.Duration `json:"alpha,omitempty"`
	// Engine is a model of what receives, EngineDPA; empty: it takes no time. PerChunk is
	// what a worker spends on a chunk, in place of the engine's; CopyTime how long after
	// that the chunk has come from staging to its place.
	Engine   string         `json:"engine,omitempty"`
	PerChunk vtime.Duration `json:"per_chunk,omitempty"`
	CopyTime vtime.Duration `json:"copy_time,omitempty"`
	// Fallback is what multicast does when it does not work; empty is FallbackOff.
	Fallback string `json:"fallback,omitempty"`
	// Write makes cepheus use registered WRITEs in place of SENDs.
	Write bool `json:"write,omitempty"`
	// Float32 makes a reduction add floating-point numbers.
	Float32 bool `json:"float32,omitempty"`
}

// Parameter is something that can be chosen about a scheme.
type Parameter struct {
	Name    string // slices, radix, block, parallel, subgroups, workers, staging or chunk
	Default int    // of slices: 0 means as many as there are ranks
}

// Defaults.
const (
	radixDefault = 4
	blockDefault = 1 << 20

	stagingDefault = 1024 // 4 MiB, enough at 200 Gb/s (AG-20)
	chunkDefault   = 4096
)

func sliced(n int) []Parameter { return []Parameter{{"slices", n}} }
func radix() []Parameter       { return []Parameter{{"radix", radixDefault}} }
func blocks() []Parameter      { return []Parameter{{"block", blockDefault}} }

// casts are the parameters of multicast over UD.
func casts(more ...Parameter) []Parameter {
	return append([]Parameter{{"subgroups", 1}, {"workers", 1}, {"staging", stagingDefault}}, more...)
}

// scheme is an entry of the list of algorithms.
type scheme struct {
	name   string
	params []Parameter
	make   func(r *rank.Rank, o Options) (Algorithm, error)
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

// Parameters returns what can be chosen about a broadcast algorithm.
func Parameters(name string) []Parameter { return parametersOf(broadcasts(), name) }

func parametersOf(list []scheme, name string) []Parameter {
	for _, s := range list {
		if s.name == name {
			return s.params
		}
	}
	return nil
}

// TakesHashed says whether a broadcast algorithm works with hashed memory, where nothing
// may be written twice.
func TakesHashed(name string) bool { return name != "uc-multicast" }

// NewBcast prepares a broadcast algorithm on a rank: connections, groups. All ranks
// of the job must call it. A message of n bytes goes from the root to all.
func NewBcast(name string, r *rank.Rank, o Options) (Algorithm, error) {
	return prepare("broadcast", broadcasts(), name, r, o)
}

func prepare(kind string, list []scheme, name string, r *rank.Rank, o Options) (Algorithm, error) {
	for _, s := range list {
		if s.name != name {
			continue
		}
		o, err := s.options(o, r.Size())
		if err != nil {
			return nil, fmt.Errorf("prepare %s %s: %w", kind, name, err)
		}
		a, err := s.make(r, o)
		if err != nil {
			return nil, fmt.Errorf("prepare %s %s: %w", kind, name, err)
		}
		return a, nil
	}
	return nil, fmt.Errorf("no %s algorithm %q: use %s", kind, name, strings.Join(namesOf(list), ", "))
}

// options fills in the defaults and checks the rest. Without a parameter of that name
// a message is one slice.
func (s *scheme) options(o Options, ranks int) (Options, error) {
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
			return o, fmt.Errorf("%s of %d: it has no such parameter", g.name, *g.v)
		case i < 0:
			*g.v = g.min
		case *g.v == 0 && s.params[i].Default == 0:
			*g.v = ranks
		case *g.v == 0:
			*g.v = s.params[i].Default
		case *g.v < g.min:
			return o, fmt.Errorf("%s of %d: need at least %d", g.name, *g.v, g.min)
		}
	}
	timed := o.Pace != 0 || o.Alpha != 0 || o.PerChunk != 0 || o.CopyTime != 0 || o.Engine != ""
	if timed && !slices.ContainsFunc(s.params, func(p Parameter) bool { return p.Name == "staging" }) {
		return o, fmt.Errorf("it has no pace, no cutoff timer and no receive engine")
	}
	if o.Pace < 0 || o.Pace > 100 {
		return o, fmt.Errorf("pace of %d %%: use 1 to 100, or 0 for none", o.Pace)
	}
	switch {
	case o.Fallback == "" || o.Fallback == FallbackOff:
	case !HasFallback(s.name):
		return o, fmt.Errorf("it has no fallback")
	case o.Fallback != FallbackFull && o.Fallback != FallbackPartial:
		return o, fmt.Errorf("fallback %q: use %s, %s or %s", o.Fallback, FallbackOff, FallbackFull, FallbackPartial)
	}
	return o, nil
}

// HasFallback says whether a broadcast algorithm can go round multicast that does not work.
func HasFallback(name string) bool { return name == "cepheus" || name == "gleam" }

// relative numbers the ranks from the root on.
func relative(r *rank.Rank, root int) int { return (r.ID() - root + r.Size()) % r.Size() }

// absolute undoes relative.
func absolute(r *rank.Rank, root, rel int) int { return (rel + root) % r.Size() }

// connectAll connects the rank to each of the given peers in a fixed order. Both
// sides of every connection must do so.
func connectAll(r *rank.Rank, peers []int) error {
	for _, p := range peers {
		if _, err := r.Connect(p); err != nil {
			return err
		}
	}
	return nil
}

// connectAny is connectAll for peers that need not form a tree. In ascending order no
// cycle of ranks waits for each other: the connection whose two numbers are the least
// of all that are missing is always the next one at both its ends.
func connectAny(r *rank.Rank, peers []int) error {
	p := slices.Clone(peers)
	slices.Sort(p)
	return connectAll(r, slices.Compact(p))
}
