// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// Algorithms are the schemes of one kind of collective.
type Algorithms struct {
	Kind       string // in messages
	Names      []string
	Parameters func(name string) []collective.Parameter // nil: none has any
}

// broadcast is the kind of algorithm that programs of the user's own may be.
const broadcast = "broadcast"

// Broadcasts returns the schemes of broadcasts.
func Broadcasts() Algorithms {
	return Algorithms{broadcast, collective.Names(), collective.Parameters}
}

// Allgathers returns the schemes of Allgathers.
func Allgathers() Algorithms {
	return Algorithms{"allgather", collective.AllgatherNames(), collective.AllgatherParameters}
}

// ReduceScatters returns the schemes of Reduce-scatters.
func ReduceScatters() Algorithms {
	return Algorithms{"reduce-scatter", collective.ReduceScatterNames(), collective.ReduceScatterParameters}
}

// parameters returns the names of a scheme's parameters.
func (a Algorithms) parameters(name string) (names []string) {
	if a.Parameters == nil {
		return nil
	}
	for _, p := range a.Parameters(name) {
		names = append(names, p.Name)
	}
	return names
}

// ParameterNames returns the names of the parameters of a scheme of any kind.
func ParameterNames(name string) []string {
	return append(Broadcasts().parameters(name), Allgathers().parameters(name)...)
}

// Scheme is an algorithm: its name, or its name with parameters.
type Scheme struct {
	Name     string `yaml:"name" json:"name,omitzero" doc:"algorithm, or as program:NAME a broadcast program of your own (docs/programs.md)" required:"true"`
	Label    string `yaml:"label" json:"label,omitzero" doc:"name in reports; default: the algorithm's"`
	Slices   *Count `yaml:"slices" json:"slices,omitzero" doc:"slices of a message: a number, or ranks; default: ranks, for 1ring to 2ringM 1"`
	Radix    *int   `yaml:"radix" json:"radix,omitzero" doc:"branches of a tree, from 2 on; default: 4"`
	Block    *Size  `yaml:"block" json:"block,omitzero" doc:"bytes of a block; default: 1MiB"`
	Parallel *Count `yaml:"parallel" json:"parallel,omitzero" doc:"ranks that multicast at a time: a number, or ranks; default: 1"`

	Transport string `yaml:"transport" json:"transport,omitzero" doc:"of unicast: rc, whole messages to all at once; rc-chunks or ud, one receiver after the other in chunks of the MTU, which one thread of a host cuts; ud repairs losses itself; default: rc" enum:"rc,rc-chunks,ud,"`

	Fallback string `yaml:"fallback" json:"fallback,omitzero" doc:"of cepheus and gleam as a broadcast, when multicast fails: off, the run ends; full, all ranks change to unicast; partial, only those that delay the others (docs/fallback.md); default: off" enum:"off,full,partial,"`

	Subgroups *int      `yaml:"subgroups" json:"subgroups,omitzero" doc:"multicast groups for the parts of a block, 1 to 256; default: 1"`
	Workers   *int      `yaml:"workers" json:"workers,omitzero" doc:"workers that receive, each from subgroups of its own; default: 1"`
	Staging   *int      `yaml:"staging" json:"staging,omitzero" doc:"most posted receives of a subgroup, 1 to 8192; default: 1024"`
	Chunk     *Size     `yaml:"chunk" json:"chunk,omitzero" doc:"bytes of a multicast WRITE; default: 4KiB"`
	Pace      *int      `yaml:"pace" json:"pace,omitzero" doc:"share of a link in percent, 1 to 100, for all ranks that multicast at a time; default: no limit"`
	Alpha     *Duration `yaml:"alpha" json:"alpha,omitzero" doc:"margin of the cutoff timer beside the time of the bytes; default: 1ms, or four barriers, and two for each activation; of unicast over ud, timeout of an acknowledgement; default: 1ms, and the time of a window of chunks"`
	Cutoff    string    `yaml:"cutoff" json:"cutoff,omitzero" doc:"when the cutoff timer starts: after-barrier, or before-barrier as its paper has it, where alpha has to cover the barrier; default: after-barrier" enum:"after-barrier,before-barrier,"`
	Engine    string    `yaml:"engine" json:"engine,omitzero" doc:"model of the receiver: dpa, threads of a SmartNIC; default: receiving takes no time" enum:"dpa,"`
	PerChunk  *Duration `yaml:"per-chunk" json:"perChunk,omitzero" doc:"time of a worker, or of the thread of unicast over rc-chunks or ud, for a chunk; default: by engine"`
	CopyTime  *Duration `yaml:"copy-time" json:"copyTime,omitzero" doc:"time to copy a chunk from staging to its place, beside other copies; default: 0"`
	FlagTime  *Duration `yaml:"flag-time" json:"flagTime,omitzero" doc:"latency of the completion flag of the last worker to the host; default: 0"`
}

// Short reads a scheme by its name.
func (s *Scheme) Short(name string) error {
	s.Name = name
	return nil
}

// Schemes verifies the schemes of a workload and fills in the defaults of their
// parameters.
func (c *Checker) Schemes(p string, a Algorithms, schemes []Scheme, sizes []Size) {
	if len(schemes) == 0 {
		c.Failf(p, "%s needs at least one scheme and one size", p)
	}
	labels := map[string]bool{}
	for i := range schemes {
		s := &schemes[i]
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		c.Scheme(at, a, s, sizes)
		if labels[s.Label] {
			c.Failf(at, "two schemes are called %q: give one of them a label of its own", s.Label)
		}
		labels[s.Label] = true
	}
}

// Scheme verifies one scheme.
func (c *Checker) Scheme(at string, a Algorithms, s *Scheme, sizes []Size) {
	program, own := OwnScheme(s.Name)
	if s.Label == "" {
		s.Label = program
	}
	if own && a.Kind == broadcast {
		c.ownScheme(at, program, s)
		return
	}
	if !slices.Contains(a.Names, s.Name) {
		hint := Suggest(s.Name, a.Names)
		if hint == "" {
			hint = ": use " + List(a.Names)
		}
		c.Failf(at, "no %s scheme %q%s", a.Kind, s.Name, hint)
		return // which parameters it would have cannot be said
	}
	switch {
	case !LabelOK(s.Label) && s.Label != s.Name:
		c.Failf(at, BadLabel, s.Label)
	case s.Name == "gleam" && c.Rules != "gleam":
		c.Failf(at, "scheme gleam is multicast by the rules of that paper, and the switches have the rules %s: set switches.rules to gleam, or use cepheus",
			c.Rules)
	}
	if collective.ByGroup(s.Name) {
		c.NeedsSwitch(at, s.Name)
	}
	c.parameters(at, a, s)
	c.fallback(at, a, s)
	c.blocks(at, s, sizes)
}

// OwnPrefix begins the names of schemes that are programs of the user's own.
const OwnPrefix = "program:"

// OwnScheme returns the program that a scheme's name means if it is one of the user's own,
// program:NAME, else the name.
func OwnScheme(name string) (program string, ok bool) { return strings.CutPrefix(name, OwnPrefix) }

// ownScheme verifies a scheme that is a program of the user's own. It has no parameters.
func (c *Checker) ownScheme(at, program string, s *Scheme) {
	bare := Scheme{Name: s.Name, Label: s.Label}
	switch {
	case !reflect.DeepEqual(*s, bare):
		c.Failf(at, "scheme %s is a program of your own and has no parameters: leave all but label out", s.Name)
	case c.Broadcasts != nil && !slices.Contains(c.Broadcasts, program):
		hint := ", which has none: run the lab with a binary of your own (docs/programs.md)"
		if len(c.Broadcasts) > 0 {
			hint = ": it has " + List(c.Broadcasts)
		}
		c.Failf(at, "there is no broadcast program %q in this binary%s", program, hint)
	case !LabelOK(s.Label):
		c.Failf(at, BadLabel, s.Label)
	}
}

// blocks makes sure that a connection takes all blocks of a message at once.
func (c *Checker) blocks(at string, s *Scheme, sizes []Size) {
	if s.Block == nil || c.failed {
		return
	}
	if n := slices.Max(sizes); (n+*s.Block-1) / *s.Block > collective.RDMCBlocksMax {
		c.Failf(at+".block", "%v in blocks of %v are more than the %d a connection takes: use at least %v", n, *s.Block, collective.RDMCBlocksMax,
			(n+collective.RDMCBlocksMax-1)/collective.RDMCBlocksMax)
	}
}

// parameters verifies that a scheme has the parameters that are given, and gives it
// the others.
func (c *Checker) parameters(at string, a Algorithms, s *Scheme) {
	v := reflect.ValueOf(s).Elem()
	for _, name := range []string{"slices", "radix", "block", "parallel", "subgroups", "workers", "staging", "chunk"} {
		f := v.Field(FieldByKey(v.Type(), name))
		i := slices.Index(a.parameters(s.Name), name)
		switch {
		case i < 0 && !f.IsNil():
			hint := ""
			if own := a.parameters(s.Name); len(own) > 0 {
				hint = ": it has " + List(own)
			}
			c.Failf(at+"."+name, "scheme %s has no %s%s", s.Name, name, hint)
		case i >= 0 && f.IsNil():
			f.Set(reflect.New(f.Type().Elem()))
			f.Elem().SetInt(int64(a.Parameters(s.Name)[i].Default))
		}
	}
	c.overMulticast(at, a, s)
	switch {
	case s.Radix != nil && *s.Radix < 2:
		c.Failf(at+".radix", "radix of %d: a tree needs a radix of at least 2", *s.Radix)
	case s.Block != nil && (*s.Block < 1 || *s.Block > SizeMax):
		c.Failf(at+".block", "block of %v: use 1B to %v", *s.Block, SizeMax)
	}
}

// Bounds of a scheme over plain multicast.
const (
	subgroupsMax = 256
	stagingMax   = 8192 // the longest receive queue of a ConnectX
	chunkMax     = 1 << 30
)

// overMulticast verifies the settings that only schemes over plain multicast have.
func (c *Checker) overMulticast(at string, a Algorithms, s *Scheme) {
	c.Second(at+".per-chunk", value(s.PerChunk))
	c.Second(at+".copy-time", value(s.CopyTime))
	c.Second(at+".flag-time", value(s.FlagTime))
	if c.transport(at, a, s) {
		return
	}
	if !slices.Contains(a.parameters(s.Name), "staging") {
		for _, k := range []struct {
			name  string
			given bool
		}{
			{"pace", s.Pace != nil}, {"alpha", s.Alpha != nil}, {"cutoff", s.Cutoff != ""}, {"engine", s.Engine != ""},
			{"per-chunk", s.PerChunk != nil}, {"copy-time", s.CopyTime != nil}, {"flag-time", s.FlagTime != nil},
		} {
			if k.given {
				also := ""
				if k.name == "per-chunk" || k.name == "alpha" {
					also = ", and for broadcasts by unicast with transport: rc-chunks or ud"
				}
				c.Failf(at+"."+k.name, "scheme %s has no %s: it is for %s%s", s.Name, k.name, List(a.overMulticast()), also)
			}
		}
		return
	}
	switch {
	case c.failed:
	case *s.Subgroups < 1 || *s.Subgroups > subgroupsMax:
		c.Failf(at+".subgroups", "%d subgroups: use 1 to %d", *s.Subgroups, subgroupsMax)
	case *s.Workers < 1 || *s.Workers > *s.Subgroups:
		c.Failf(at+".workers", "%d receive workers for %d subgroups: each needs one of its own, so use 1 to %d or more subgroups", *s.Workers, *s.Subgroups, *s.Subgroups)
	case *s.Staging < 1 || *s.Staging > stagingMax:
		c.Failf(at+".staging", "%d receives: use 1 to %d", *s.Staging, stagingMax)
	case s.Pace != nil && (*s.Pace < 1 || *s.Pace > 100):
		c.Failf(at+".pace", "pace of %d: use 1 to 100 percent of a link", *s.Pace)
	case s.Chunk != nil && (*s.Chunk < 1 || *s.Chunk > chunkMax):
		c.Failf(at+".chunk", "chunk of %v: use 1B to %v", *s.Chunk, Size(chunkMax))
	}
}

// transport checks a scheme that has a transport, and reports whether it is one of chunks.
func (c *Checker) transport(at string, a Algorithms, s *Scheme) (chunks bool) {
	if s.Transport == "" {
		return false
	}
	if a.Kind != broadcast || s.Name != "unicast" {
		c.Failf(at+".transport", "%s scheme %s has no transport: it is for broadcasts by unicast", a.Kind, s.Name)
		return false
	}
	if s.Transport == collective.TransportRC {
		return false
	}
	for _, k := range []struct {
		name  string
		given bool
	}{
		{"pace", s.Pace != nil}, {"cutoff", s.Cutoff != ""}, {"engine", s.Engine != ""}, {"copy-time", s.CopyTime != nil}, {"flag-time", s.FlagTime != nil},
	} {
		if k.given {
			c.Failf(at+"."+k.name, "scheme unicast over %s has no %s: it has per-chunk and alpha", s.Transport, k.name)
		}
	}
	return true
}

// overMulticast returns the schemes over plain multicast: those of the kind, or, where it has
// none, of any.
func (a Algorithms) overMulticast() (names []string) {
	for _, k := range []Algorithms{a, Broadcasts(), Allgathers()} {
		if len(names) > 0 {
			break
		}
		for _, n := range k.Names {
			if slices.Contains(k.parameters(n), "staging") {
				names = append(names, n)
			}
		}
	}
	return names
}

// Options returns a scheme's parameters for the given number of ranks.
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
	o.FlagTime = vtime.Duration(value(s.FlagTime))
	o.Engine, o.Fallback, o.Cutoff, o.Transport = s.Engine, s.Fallback, s.Cutoff, s.Transport
	return o
}

// FallsBack reports whether the scheme goes over to unicast where multicast does not work.
func (s *Scheme) FallsBack() bool { return FallsBack(s.Fallback) }

// FallsBack reports whether a value of fallback means that there is one.
func FallsBack(mode string) bool { return mode != "" && mode != collective.FallbackOff }

// SchemeIndex returns the index of the scheme that is called label in reports, or -1.
func SchemeIndex(all []Scheme, label string) int {
	return slices.IndexFunc(all, func(s Scheme) bool { return s.Label == label })
}

// value returns the value of a pointer, or zero for nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// fallback verifies a scheme's reaction to multicast that does not work.
func (c *Checker) fallback(at string, a Algorithms, s *Scheme) {
	switch {
	case s.Fallback == "" || c.failed:
	case a.Kind != broadcast || !collective.HasFallback(s.Name):
		c.Failf(at+".fallback", "%s scheme %s has no fallback: it is for broadcasts by cepheus and gleam", a.Kind, s.Name)
	default:
		c.Partial(at, s.Fallback)
	}
}
