package lab

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/vtime"
)

// warmUpMax is more than anyone needs.
const warmUpMax = 1 << 20

// algorithms are those of one kind of workload.
type algorithms struct {
	kind   string
	names  []string
	params func(name string) []collective.Parameter
}

func broadcasts() algorithms {
	return algorithms{"broadcast", collective.Names(), collective.Parameters}
}

func allgathers() algorithms {
	return algorithms{"allgather", collective.AllgatherNames(), collective.AllgatherParameters}
}

func reduceScatters() algorithms {
	return algorithms{"reduce-scatter", collective.ReduceScatterNames(), collective.ReduceScatterParameters}
}

// parameters returns the names of a scheme's parameters.
func (a algorithms) parameters(name string) (names []string) {
	if a.params == nil {
		return nil
	}
	for _, p := range a.params(name) {
		names = append(names, p.Name)
	}
	return names
}

// parameters returns the names of the parameters of a scheme of any kind.
func parameters(name string) []string {
	return append(broadcasts().parameters(name), allgathers().parameters(name)...)
}

func (c *checking) checkLabel(p, label string) {
	if !labelName.MatchString(label) {
		c.failf(p+".label", badLabel, label)
	}
}

// checkSizes verifies sizes of which a message has so many.
func (c *checking) checkSizes(p string, sizes []Size, warmUp, blocks int) {
	if len(sizes) == 0 {
		c.failf(p, "%s needs at least one scheme and one size", p)
	}
	for i, s := range sizes {
		at := fmt.Sprintf("%s.sizes[%d]", p, i)
		switch {
		case s > sizeMax:
			c.failf(at, "%v is more than the 2GiB a RoCE message can have", s)
		case s > sizeMax/Size(blocks):
			c.failf(at, "%v from each of %d ranks is more than 2GiB", s, blocks)
		}
	}
	if warmUp < 0 || warmUp > warmUpMax {
		c.failf(p+".warm-up", "warm-up of %d is not 0 to %d", warmUp, warmUpMax)
	}
}

// check verifies an Allgather benchmark.
func (a *Allgather) check(c *checking, p string) {
	c.checkLabel(p, a.Label)
	ranks := c.checkRanks(p, "an allgather", a.Ranks)
	if c.err != nil {
		return
	}
	c.checkSizes(p, a.Sizes, a.WarmUp, len(ranks))
	c.checkSchemes(p, allgathers(), a.Schemes, a.Sizes)
	c.checkNoExternals(p, "an allgather", ranks)
}

// check verifies a Reduce-scatter benchmark.
func (a *ReduceScatter) check(c *checking, p string) {
	c.checkLabel(p, a.Label)
	ranks := c.checkRanks(p, "a reduce-scatter", a.Ranks)
	if c.err != nil {
		return
	}
	c.checkSizes(p, a.Sizes, a.WarmUp, len(ranks))
	c.checkNumbers(p, a.Sizes)
	c.checkSchemes(p, reduceScatters(), a.Schemes, a.Sizes)
	c.checkNoExternals(p, "a reduce-scatter", ranks)
}

// checkNumbers makes sure that sizes are of whole numbers.
func (c *checking) checkNumbers(p string, sizes []Size) {
	for i, s := range sizes {
		if s%4 != 0 {
			c.failf(fmt.Sprintf("%s.sizes[%d]", p, i), "%v are not whole numbers of 4 bytes", s)
		}
	}
}

// checkNoExternals makes sure that all ranks can run a program.
func (c *checking) checkNoExternals(p, what string, ranks []int) {
	for _, r := range ranks {
		if n := c.g.Nodes[r].Name; c.l.ExternalHost(n) != nil {
			c.failf(p+".ranks", "%s needs every rank to run a program, and %s is external", what, n)
		}
	}
}

// check verifies a program of the user's own.
func (w *Program) check(c *checking, p string) {
	if c.programs != nil && !slices.Contains(c.programs, w.Name) {
		hint := ", which has none: run the lab with a binary of your own (docs/programs.md)"
		if len(c.programs) > 0 {
			if hint = suggest(w.Name, c.programs); hint == "" {
				hint = ": it has " + strings.Join(c.programs, ", ")
			}
		}
		c.failf(p+".name", "there is no program %q in this binary%s", w.Name, hint)
	}
	if w.Label == "" {
		w.Label = w.Name
	}
	c.checkLabel(p, w.Label)
	ranks := c.checkRanks(p, "a program", w.Ranks)
	for _, r := range ranks {
		if n := c.g.Nodes[r].Name; c.l.ExternalHost(n) != nil {
			c.failf(p+".ranks", "%s is external and runs no program: name other ranks", n)
		}
	}
}

// checkSchemes verifies the schemes of a workload and fills in the defaults of their
// parameters.
func (c *checking) checkSchemes(p string, a algorithms, schemes []Scheme, sizes []Size) {
	if len(schemes) == 0 {
		c.failf(p, "%s needs at least one scheme and one size", p)
	}
	labels := map[string]bool{}
	for i := range schemes {
		s := &schemes[i]
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		c.checkScheme(at, a, s, sizes)
		if labels[s.Label] {
			c.failf(at, "two schemes are called %q: give one of them a label of its own", s.Label)
		}
		labels[s.Label] = true
	}
}

// checkScheme verifies one scheme.
func (c *checking) checkScheme(at string, a algorithms, s *Scheme, sizes []Size) {
	if !slices.Contains(a.names, s.Name) {
		hint := suggest(s.Name, a.names)
		if hint == "" {
			hint = ": use " + list(a.names)
		}
		c.failf(at, "no %s scheme %q%s", a.kind, s.Name, hint)
	}
	if s.Label == "" {
		s.Label = s.Name
	}
	switch {
	case !labelName.MatchString(s.Label) && s.Label != s.Name:
		c.failf(at, badLabel, s.Label)
	case s.Name == "gleam" && c.l.Switches.Rules != "gleam":
		c.failf(at, "scheme gleam is multicast by the rules of that paper, and the switches have the rules %s: set switches.rules to gleam, or use cepheus",
			c.l.Switches.Rules)
	}
	c.checkParameters(at, a, s)
	c.checkFallback(at, a, s)
	c.checkBlocks(at, s, sizes)
}

// checkBlocks makes sure that a connection takes all blocks of a message at once.
func (c *checking) checkBlocks(at string, s *Scheme, sizes []Size) {
	if s.Block == nil || c.err != nil {
		return
	}
	if n := slices.Max(sizes); (n+*s.Block-1) / *s.Block > collective.RDMCBlocksMax {
		c.failf(at+".block", "%v in blocks of %v are more than the %d a connection takes: use at least %v", n, *s.Block, collective.RDMCBlocksMax,
			(n+collective.RDMCBlocksMax-1)/collective.RDMCBlocksMax)
	}
}

// checkParameters verifies that a scheme has the parameters that are given, and gives it
// the others.
func (c *checking) checkParameters(at string, a algorithms, s *Scheme) {
	v := reflect.ValueOf(s).Elem()
	for _, name := range []string{"slices", "radix", "block", "parallel", "subgroups", "workers", "staging", "chunk"} {
		f := v.Field(fieldByKey(v.Type(), name))
		i := slices.Index(a.parameters(s.Name), name)
		switch {
		case i < 0 && !f.IsNil():
			hint := ""
			if own := a.parameters(s.Name); len(own) > 0 {
				hint = ": it has " + list(own)
			}
			c.failf(at+"."+name, "scheme %s has no %s%s", s.Name, name, hint)
		case i >= 0 && f.IsNil():
			f.Set(reflect.New(f.Type().Elem()))
			f.Elem().SetInt(int64(a.params(s.Name)[i].Default))
		}
	}
	c.checkMulticast(at, a, s)
	switch {
	case s.Radix != nil && *s.Radix < 2:
		c.failf(at+".radix", "radix of %d: a tree divides the ranks in two at least", *s.Radix)
	case s.Block != nil && (*s.Block < 1 || *s.Block > sizeMax):
		c.failf(at+".block", "block of %v: use 1B to %v", *s.Block, sizeMax)
	}
}

// Bounds of a scheme over plain multicast.
const (
	subgroupsMax = 64
	stagingMax   = 8192 // the longest receive queue of a ConnectX
	chunkMax     = 1 << 30
)

// checkMulticast verifies what only schemes over plain multicast have.
func (c *checking) checkMulticast(at string, a algorithms, s *Scheme) {
	if !slices.Contains(a.parameters(s.Name), "staging") {
		for _, k := range []struct {
			name  string
			given bool
		}{{"pace", s.Pace != nil}, {"alpha", s.Alpha != nil}, {"engine", s.Engine != ""}, {"per-chunk", s.PerChunk != nil}, {"copy-time", s.CopyTime != nil}} {
			if k.given {
				c.failf(at+"."+k.name, "scheme %s has no %s: it is for %s", s.Name, k.name, list(a.overMulticast()))
			}
		}
		return
	}
	switch {
	case c.err != nil:
	case *s.Subgroups < 1 || *s.Subgroups > subgroupsMax:
		c.failf(at+".subgroups", "%d subgroups: use 1 to %d", *s.Subgroups, subgroupsMax)
	case *s.Workers < 1 || *s.Workers > *s.Subgroups:
		c.failf(at+".workers", "%d receive workers for %d subgroups: each needs one of its own, so use 1 to %d or more subgroups", *s.Workers, *s.Subgroups, *s.Subgroups)
	case *s.Staging < 1 || *s.Staging > stagingMax:
		c.failf(at+".staging", "%d receives: use 1 to %d", *s.Staging, stagingMax)
	case s.Pace != nil && (*s.Pace < 1 || *s.Pace > 100):
		c.failf(at+".pace", "pace of %d: use 1 to 100 percent of a link", *s.Pace)
	case s.Chunk != nil && (*s.Chunk < 1 || *s.Chunk > chunkMax):
		c.failf(at+".chunk", "chunk of %v: use 1B to %v", *s.Chunk, Size(chunkMax))
	}
	c.checkSecond(at+".per-chunk", value(s.PerChunk))
	c.checkSecond(at+".copy-time", value(s.CopyTime))
}

// overMulticast returns the schemes over plain multicast: those of the kind, or, where it has
// none, of any.
func (a algorithms) overMulticast() (names []string) {
	for _, k := range []algorithms{a, broadcasts(), allgathers()} {
		if len(names) > 0 {
			break
		}
		for _, n := range k.names {
			if slices.Contains(k.parameters(n), "staging") {
				names = append(names, n)
			}
		}
	}
	return names
}

// Options returns a scheme's parameters for so many ranks.
func (s *Scheme) Options(ranks int) (o collective.Options) {
	count := func(c *Count) int {
		switch {
		case c == nil:
			return 0
		case *c == 0:
			return ranks
		}
		return int(*c)
	}
	o.Slices, o.Parallel = count(s.Slices), count(s.Parallel)
	o.Radix, o.Block = value(s.Radix), int(value(s.Block))
	o.Subgroups, o.Workers, o.Staging, o.Chunk = value(s.Subgroups), value(s.Workers), value(s.Staging), int(value(s.Chunk))
	o.Pace = value(s.Pace)
	o.Alpha, o.PerChunk, o.CopyTime = vtime.Duration(value(s.Alpha)), vtime.Duration(value(s.PerChunk)), vtime.Duration(value(s.CopyTime))
	o.Engine, o.Fallback = s.Engine, s.Fallback
	return o
}

// value returns what is given, or zero.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
