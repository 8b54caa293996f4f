package lab

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mcastlab/mcastlab/collective"
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

// parameters returns the names of a scheme's parameters.
func (a algorithms) parameters(name string) (names []string) {
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

// checkAllgather verifies an Allgather benchmark.
func (c *checking) checkAllgather(p string, a *Allgather) {
	c.checkLabel(p, a.Label)
	ranks := c.checkRanks(p, "an allgather", a.Ranks)
	if c.err != nil {
		return
	}
	c.checkSizes(p, a.Sizes, a.WarmUp, len(ranks))
	c.checkSchemes(p, allgathers(), a.Schemes, a.Sizes)
	for _, r := range ranks {
		if n := c.g.Nodes[r].Name; c.l.ExternalHost(n) != nil {
			c.failf(p+".ranks", "an allgather needs every rank to run a program, and %s is external", n)
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
		case labels[s.Label]:
			c.failf(at, "two schemes are called %q: give one of them a label of its own", s.Label)
		case s.Name == "gleam" && c.l.Switches.Rules != "gleam":
			c.failf(at, "scheme gleam is multicast by the rules of that paper, and the switches have the rules %s: set switches.rules to gleam, or use cepheus",
				c.l.Switches.Rules)
		}
		labels[s.Label] = true
		c.checkParameters(at, a, s)
		c.checkBlocks(at, s, sizes)
	}
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
	for _, name := range []string{"slices", "radix", "block", "parallel"} {
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
	switch {
	case s.Radix != nil && *s.Radix < 2:
		c.failf(at+".radix", "radix of %d: a tree divides the ranks in two at least", *s.Radix)
	case s.Block != nil && (*s.Block < 1 || *s.Block > sizeMax):
		c.failf(at+".block", "block of %v: use 1B to %v", *s.Block, sizeMax)
	}
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
	if s.Radix != nil {
		o.Radix = *s.Radix
	}
	if s.Block != nil {
		o.Block = int(*s.Block)
	}
	return o
}
