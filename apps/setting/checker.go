// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/rank/collective"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

// Checker verifies the settings of workloads. It has the parts of their lab that they may use, and the
// checks that they share. One that could only repeat an earlier mistake asks Failed first.
type Checker struct {
	Graph       *topo.Graph
	Peers       map[string]*rankhost.Peer // external hosts, by name
	Rules       string                    // of multicast in the switches
	Controllers int
	Programs    []string // that a workload may name; nil: any
	Broadcasts  []string // programs that may be schemes of a broadcast; nil: any
	Faults      []faults.Kind
	DSCP        uint8 // of RoCE packets
	Priority    int   // that the switches give them
	Lossless    bool  // switches pause their senders rather than drop them
	LowClass    bool  // there is a class that waits for theirs

	// ReadFile returns the text of a file of at most max bytes in the lab file's folder or below it.
	ReadFile func(name string, max int64) ([]byte, error)

	// Fail records a mistake at the path of a value in the file.
	Fail func(path, format string, args ...any)

	failed bool
}

// Bounds of benchmarks.
const (
	SizeMax   = Size(1) << 31 // the largest message of RoCE
	warmUpMax = 1 << 20       // more than anyone needs
)

// BadLabel is the message for a label for which LabelOK is false.
const BadLabel = "%q cannot be a label: use a letter, then up to 39 letters, digits, underscores and hyphens"

var labelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,39}$`)

// LabelOK reports whether s may be a label in reports, or name a program.
func LabelOK(s string) bool { return labelName.MatchString(s) }

// Failf records a mistake.
func (c *Checker) Failf(path, format string, args ...any) {
	c.failed = true
	c.Fail(path, format, args...)
}

// Failed reports whether there was a mistake.
func (c *Checker) Failed() bool { return c.failed }

// Label verifies a workload's label.
func (c *Checker) Label(p, label string) {
	if !LabelOK(label) {
		c.Failf(p+".label", BadLabel, label)
	}
}

// Second makes sure that a time is no more than a second: one that is spent by each packet, message or
// hop, so that the time of a message stays far within a run.
func (c *Checker) Second(path string, d Duration) {
	if vtime.Duration(d) > vtime.Second {
		c.Failf(path, "%s of %v is more than a second", path, d)
	}
}

// NeedsSwitch makes sure that there is a switch for an algorithm that cannot do without.
func (c *Checker) NeedsSwitch(at, algorithm string) {
	if c.Graph.Switches() == 0 {
		c.Failf(at, "%s is multicast by switches, and hosts that are joined back to back have none: use another scheme, or topology: {star: {hosts: 2}}", algorithm)
	}
}

// Sizes verifies sizes of messages of the given number of blocks.
func (c *Checker) Sizes(p string, sizes []Size, warmUp, blocks int) {
	if len(sizes) == 0 {
		c.Failf(p, "%s needs at least one scheme and one size", p)
	}
	for i, s := range sizes {
		at := fmt.Sprintf("%s.sizes[%d]", p, i)
		switch {
		case s > SizeMax:
			c.Failf(at, "%v is more than the 2GiB a RoCE message can have", s)
		case s > SizeMax/Size(blocks):
			c.Failf(at, "%v from each of %d ranks is more than 2GiB", s, blocks)
		}
	}
	if warmUp < 0 || warmUp > warmUpMax {
		c.Failf(p+".warm-up", "warm-up of %d is not 0 to %d", warmUp, warmUpMax)
	}
}

// Numbers makes sure that sizes are of whole numbers.
func (c *Checker) Numbers(p string, sizes []Size) {
	for i, s := range sizes {
		if s%4 != 0 {
			c.Failf(fmt.Sprintf("%s.sizes[%d]", p, i), "%v are not whole numbers of 4 bytes", s)
		}
	}
}

// AnyRanks resolves the ranks of a workload that may have a single one.
func (c *Checker) AnyRanks(p string, names Hosts) []int {
	for i, want := range names {
		at := fmt.Sprintf("%s.ranks[%d]", p, i)
		if _, err := path.Match(want, ""); err != nil {
			c.Failf(at, "%q is not a pattern: %v", want, err)
		} else if len(match(c.Graph, want)) == 0 {
			c.Failf(at, "there is no host %q%s", want, Suggest(want, HostNames(c.Graph)))
		}
	}
	return names.Resolve(c.Graph)
}

// Ranks resolves the ranks of a workload; what is its name in messages.
func (c *Checker) Ranks(p, what string, names Hosts) []int {
	ranks := c.AnyRanks(p, names)
	if !c.failed && len(ranks) < 2 {
		c.Failf(p+".ranks", "a group of %d: %s needs at least two ranks", len(ranks), what)
	}
	return ranks
}

// AllInside makes sure that all ranks of a collective can run a program; what is its name in the
// message.
func (c *Checker) AllInside(p, what string, ranks []int) {
	for _, n := range c.Outside(ranks) {
		c.Failf(p+".ranks", "%s needs every rank to run a program, and %s is external", what, n)
	}
}

// NoneOutside makes sure that ranks are hosts that run programs.
func (c *Checker) NoneOutside(p string, ranks []int) {
	for _, n := range c.Outside(ranks) {
		c.Failf(p+".ranks", "%s is external and runs no program: name other ranks", n)
	}
}

// Outside returns the external hosts among the ranks.
func (c *Checker) Outside(ranks []int) (names []string) {
	for _, r := range ranks {
		if n := c.Graph.Nodes[r].Name; c.Peers[n] != nil {
			names = append(names, n)
		}
	}
	return names
}

// Rank makes sure that a host is one of the ranks.
func (c *Checker) Rank(p, name string, ranks []int) {
	node, ok := c.Graph.Find(name)
	if !ok || node >= c.Graph.Hosts {
		c.Failf(p, "there is no host %q%s", name, Suggest(name, HostNames(c.Graph)))
	} else if !slices.Contains(ranks, node) {
		c.Failf(p, "%s is not among the ranks", name)
	}
}

// Partial makes sure that the class of ranks served apart waits for all others.
func (c *Checker) Partial(at, fallback string) {
	if !c.LowClass && fallback == collective.FallbackPartial {
		c.Failf(at+".fallback", "fallback partial needs a class that waits for that of nics.traffic-class (DSCP %d): "+
			"give it a strict priority above 0, by switches.scheduling, switches.classes or another DSCP", c.DSCP)
	}
}

// HostNames returns the names of all hosts of a graph.
func HostNames(g *topo.Graph) (names []string) {
	for i := range g.Hosts {
		names = append(names, g.Nodes[i].Name)
	}
	return names
}

// match returns the hosts that a name, a pattern or a range means: h3, h*, h0..h511.
func match(g *topo.Graph, want string) (hosts []int) {
	from, to, ranged := strings.Cut(want, "..")
	if ranged {
		a, okA := g.Find(from)
		b, okB := g.Find(to)
		if !okA || !okB || a > b || b >= g.Hosts {
			return nil
		}
		for h := a; h <= b; h++ {
			hosts = append(hosts, h)
		}
		return hosts
	}
	for h := range g.Hosts {
		if ok, _ := path.Match(want, g.Nodes[h].Name); ok {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Resolve returns the hosts meant, in rank order: all, or in the order of the names,
// each once.
func (h Hosts) Resolve(g *topo.Graph) (hosts []int) {
	if len(h) == 0 {
		h = Hosts{"*"}
	}
	seen := map[int]bool{}
	for _, want := range h {
		for _, i := range match(g, want) {
			if !seen[i] {
				seen[i] = true
				hosts = append(hosts, i)
			}
		}
	}
	return hosts
}
