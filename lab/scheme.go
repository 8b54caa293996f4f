package lab

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/mcastlab/mcastlab/collective"
)

// warmUpMax is more than anyone needs.
const warmUpMax = 1 << 20

// checkSchemes verifies the schemes of a workload and fills in the defaults of their
// parameters.
func (c *checking) checkSchemes(p string, b *Bcast) {
	labels := map[string]bool{}
	for i := range b.Schemes {
		s := &b.Schemes[i]
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		if !slices.Contains(collective.Names(), s.Name) {
			hint := suggest(s.Name, collective.Names())
			if hint == "" {
				hint = ": use " + list(collective.Names())
			}
			c.failf(at, "no broadcast scheme %q%s", s.Name, hint)
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
		c.checkParameters(at, s)
		c.checkBlocks(at, s, b.Sizes)
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

// parameters returns the names of a scheme's parameters.
func parameters(name string) (names []string) {
	for _, p := range collective.Parameters(name) {
		names = append(names, p.Name)
	}
	return names
}

// checkParameters verifies that a scheme has the parameters that are given, and gives it
// the others.
func (c *checking) checkParameters(at string, s *Scheme) {
	v := reflect.ValueOf(s).Elem()
	for _, name := range []string{"slices", "radix", "block"} {
		f := v.Field(fieldByKey(v.Type(), name))
		i := slices.Index(parameters(s.Name), name)
		switch {
		case i < 0 && !f.IsNil():
			hint := ""
			if own := parameters(s.Name); len(own) > 0 {
				hint = ": it has " + list(own)
			}
			c.failf(at+"."+name, "scheme %s has no %s%s", s.Name, name, hint)
		case i >= 0 && f.IsNil():
			f.Set(reflect.New(f.Type().Elem()))
			f.Elem().SetInt(int64(collective.Parameters(s.Name)[i].Default))
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
	if s.Slices != nil {
		if o.Slices = int(*s.Slices); o.Slices == 0 {
			o.Slices = ranks
		}
	}
	if s.Radix != nil {
		o.Radix = *s.Radix
	}
	if s.Block != nil {
		o.Block = int(*s.Block)
	}
	return o
}
