// SPDX-License-Identifier: Apache-2.0

package apps

import (
	"math"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Kind is a kind of workload with its settings in a lab file. It is a struct whose field Label is
// the workload's name in reports. Package registry lists all kinds.
type Kind interface {
	// Check verifies the settings, which are at the given path of the lab file, and fills in
	// defaults that depend on other values of the lab.
	Check(c *setting.Checker, path string)
	// Prepare turns the settings into the parameters of a run.
	Prepare(s *Setup) (Prepared, error)
	// App returns the program that its ranks run. It does not depend on the settings.
	App(e Env) App
	// Links returns the number of links that the data on which the last byte of a row depends has
	// crossed one after the other. Frames carry mtu bytes of payload. It is 0 if the row is not of
	// this workload.
	Links(g *topo.Graph, mtu int, row *Row) int
	// Only returns a workload that measures nothing but the given row again, or nil if the row
	// cannot be measured alone.
	Only(row *Row) Kind
}

// Measurer is a Kind whose rows have quantities beyond those of all rows.
type Measurer interface {
	// Quantities returns the names of the quantities and of their parts, as lines of expect use
	// them.
	Quantities() map[string][]string
}

// Lister is a Kind whose rows are known before it runs, though it has no schemes and sizes in its settings.
type Lister interface {
	// Listed returns the names that rows have for a scheme, and their sizes.
	Listed() (schemes []string, sizes []setting.Size)
}

// Statistics returns the parts of a quantity that is a Summary.
func Statistics() []string { return []string{"avg", "min", "max", "p50", "p99"} }

// Setup is the lab for which a workload is prepared.
type Setup struct {
	Graph *topo.Graph
	Seed  uint64
	// Peers returns, by rank, the external hosts among the given hosts. No program runs on those.
	// It returns nil if there are none.
	Peers func(hosts []int) []*rankhost.Peer
}

// Prepared is a workload that is ready to run.
type Prepared struct {
	Input any   // parameters of the App, which receives them as JSON
	Hosts []int // node of each rank
	Steps int   // number of iterations, for progress
	// Peers holds, by rank, the external hosts. No program runs on those. It is nil if there are
	// none.
	Peers []*rankhost.Peer
	// Root is the sending rank of a workload with external hosts. Group is the McstID that the lab
	// file gives it, or 0.
	Root  int
	Group uint32
	// Spare marks, by rank, the hosts whose crash the workload survives.
	Spare []bool
}

// Env is the environment that a process provides to the programs of its ranks.
type Env struct {
	Programs []rank.Program // the user's programs
	// OpenStore opens the store of a host for a volume of at most limit bytes. A limit of 0 means
	// none.
	OpenStore func(host, volume string, limit int64) (Store, error)
	// Clocked is set if the store's operations take real time. Otherwise the program models their
	// duration.
	Clocked bool
	// Delivered, if set, is called on each receiver of a broadcast or of a flow before its bytes are checked.
	// Tests use it to damage the bytes and see that the check fails.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// Kinds implement the following interfaces where they differ from the others in one respect.

// Trier is a Kind that provides its own trial when the capacity of the computer is measured. For
// other kinds the trial is a broadcast to their ranks.
type Trier interface {
	// Trial returns a smaller form of the workload with one scheme, and the scheme's label. It
	// returns nil if there is no scheme with that index.
	Trial(t Trial) (k Kind, scheme string)
}

// Trial describes a trial.
type Trial struct {
	Graph  *topo.Graph
	Scheme int            // index of the scheme
	Sizes  []setting.Size // bytes that a rank receives
	// Among, if set, lists hosts that are not external, for a workload with external ranks: the
	// first of them sends to the others by unicast. nil means the workload's own ranks and scheme.
	Among setting.Hosts
}

// TrialIterations is the number of iterations of a size in a trial.
const TrialIterations = 3

// Collective is a Kind whose schemes are algorithms of one collective.
type Collective interface{ Algorithms() setting.Algorithms }

// Schemed is a Kind whose schemes are not algorithms of a collective.
type Schemed interface {
	// SchemeNames returns the names that may stand at a path below the settings.
	SchemeNames(path string) []string
}

// CostOnly is a Kind without a key memory that may transfer lengths without bytes.
type CostOnly interface {
	// NoBytes reports whether the workload transfers no bytes.
	NoBytes() bool
}

// SimOnly is a Kind that runs in virtual time only: in simulations, and in running labs in lockstep.
type SimOnly interface {
	// WhySimOnly returns the reason. An error puts it after the workload's kind.
	WhySimOnly() string
}

// Keeper is a Kind some of whose hosts have durable state that survives a crash.
type Keeper interface {
	// Keeps returns the names of those hosts.
	Keeps(g *topo.Graph) []string
}

// Faller is a Kind that may have schemes with a fallback to unicast.
type Faller interface {
	// FallsBack reports whether some scheme of the workload has a fallback.
	FallsBack() bool
}

// Rower is a Kind each of whose rows can be measured alone (Only).
type Rower interface {
	// Rows returns the schemes and sizes of the rows, in the order in which they are measured.
	Rows() []Row
}

// LinksAtMost returns the number of links that can have been crossed one after the other in a row's
// time. A crossing takes at least the delay of a link and the time of the smallest frame.
func LinksAtMost(g *topo.Graph, row *Row) int {
	least := math.Inf(1)
	for i := range g.Links {
		l := &g.Links[i]
		least = min(least, l.Delay.Microseconds()+smallestFrameBits/float64(l.Rate)*1e6)
	}
	return int(math.Ceil(row.JCT.Max / least))
}

// smallestFrameBits is the size of the smallest frame with its preamble and gap, in bits.
const smallestFrameBits = 8 * (wire.MinFrameLen + wire.LinkOverhead)
