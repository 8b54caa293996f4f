package apps

import (
	"github.com/mcastlab/mcastlab/lab/setting"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
)

// Kind is a kind of workload, with its settings as a lab file has them. What is called the
// settings' Label is the workload's name in reports. Package registry has a line for each.
type Kind interface {
	// Check verifies the settings, which are at a path of the file, and fills in what
	// depends on other values of the lab.
	Check(c *setting.Checker, path string)
	// Prepare makes the workload ready to run.
	Prepare(s *Setup) (Prepared, error)
	// App returns the program that its ranks run. It does not depend on the settings.
	App(e Env) App
	// Links returns on how many links, one after the other, the last byte of a row depends,
	// whose frames carry mtu bytes of payload.
	Links(g *topo.Graph, mtu int, row *Row) int
	// Only returns the workload that has nothing but a row of this one, so that it can be
	// measured again; nil: the row is nothing by itself.
	Only(row *Row) Kind
}

// Measurer is a Kind whose rows have quantities that others have not.
type Measurer interface {
	// Quantities returns them with their parts, as lines of expect name them.
	Quantities() map[string][]string
}

// Statistics returns the parts of a quantity that is a time or another Summary.
func Statistics() []string { return []string{"avg", "min", "max", "p50", "p99"} }

// Setup is what a workload is made ready with.
type Setup struct {
	Graph *topo.Graph
	Seed  uint64
	// Peers returns, by rank, the external hosts among hosts on which no program runs; nil
	// if there are none.
	Peers func(hosts []int) []*rank.Peer
}

// Prepared is a workload made ready to run.
type Prepared struct {
	Input any   // parameters of its App, which gets them as JSON
	Hosts []int // node of each rank
	Steps int   // iterations
	// Peers are, by rank, the external hosts, on which no program runs; nil if there are
	// none.
	Peers []*rank.Peer
	// Root is the rank that sends, of a workload with external hosts, and Group the McstID
	// that the lab file names for it, or 0.
	Root  int
	Group uint32
	// Spare says, by rank, which may die in a running lab: the workload has a policy for it.
	Spare []bool
}

// Env is what the process that ranks run in gives their programs.
type Env struct {
	Programs []rank.Program // of the user's own
	// OpenStore opens the store of a host for a volume of at most limit bytes; 0: no limit.
	OpenStore func(host, volume string, limit int64) (Store, error)
	// Clocked says that a store takes the time it takes; else its program models that.
	Clocked bool
	// Delivered, if set, is called on each receiver of a broadcast before its bytes are
	// checked. It is a hook for tests of the checking itself.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// The following interfaces are of kinds that differ from the others in one point.

// Trier is a Kind that stands for itself when it is tried what the host can do; for others
// a broadcast to their ranks does.
type Trier interface {
	// Trial returns a smaller form of the workload, of one scheme, and the scheme's label;
	// nil: it has no scheme of that index.
	Trial(t Trial) (k Kind, scheme string)
}

// Trial says what is tried.
type Trial struct {
	Graph  *topo.Graph
	Scheme int            // index
	Sizes  []setting.Size // that a rank gets
	// Among are hosts of the lab's own to whom the first of them sends by unicast, where a
	// workload has external ranks; nil: the workload's own ranks, by its own scheme.
	Among setting.Hosts
}

// TrialIterations is how often a size is measured in a trial.
const TrialIterations = 3

// Collective is a Kind whose schemes are algorithms of one collective.
type Collective interface{ Algorithms() setting.Algorithms }

// Schemed is a Kind with schemes of another form.
type Schemed interface {
	// SchemeNames returns the names that may stand at a path below the settings.
	SchemeNames(path string) []string
}

// CostOnly is a Kind that may move no bytes though it has no key memory.
type CostOnly interface{ NoBytes() bool }

// SimOnly is a Kind that runs on the event clock alone.
type SimOnly interface {
	// WhySimOnly says why, as an error has it after the workload's kind.
	WhySimOnly() string
}

// Keeper is a Kind some of whose hosts keep something when they die.
type Keeper interface {
	// Keeps returns their names.
	Keeps(g *topo.Graph) []string
}

// Faller is a Kind with schemes that go over to unicast where multicast does not work.
type Faller interface{ FallsBack() bool }
