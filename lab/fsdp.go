package lab

import "fmt"

// FSDP is the overlap of fully sharded data parallel training: an Allgather and a
// Reduce-scatter start together and share the hosts' links.
type FSDP struct {
	Label      string     `yaml:"label" doc:"name in reports" default:"fsdp"`
	Schemes    []Pair     `yaml:"schemes" doc:"pairs of algorithms" required:"true"`
	Ranks      Hosts      `yaml:"ranks" doc:"hosts that take part: all, or names, patterns and ranges: h3, h*, h0..h7" default:"all"`
	Sizes      []Size     `yaml:"sizes" doc:"bytes per rank that are gathered, and of sums, whole 32-bit numbers, at most 2GiB over all ranks" required:"true"`
	Numbers    string     `yaml:"numbers" doc:"what is added up: int32 wraps, float32 is added in an order that the scheme fixes" default:"int32" enum:"int32,float32"`
	Iterations Iterations `yaml:"iterations" doc:"auto: 10 up to 64KiB, 3 up to 1MiB, 1 above" default:"auto"`
	WarmUp     int        `yaml:"warm-up" doc:"iterations before those that are measured" default:"0"`
	Memory     string     `yaml:"memory" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes up to 512MiB over all ranks, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// Pair is what runs at one time.
type Pair struct {
	Label         string `yaml:"label" doc:"name in reports; default: the names of the two, as in ring-ring"`
	Allgather     Scheme `yaml:"allgather" doc:"algorithm of the Allgather: ring, linear, recursive-doubling, multicast" required:"true"`
	ReduceScatter Scheme `yaml:"reduce-scatter" doc:"algorithm of the Reduce-scatter: ring, in-network" required:"true"`
}

// check verifies a benchmark of Allgather and Reduce-scatter together.
func (f *FSDP) check(c *checking, p string) {
	c.checkLabel(p, f.Label)
	ranks := c.checkRanks(p, "fsdp", f.Ranks)
	if c.err != nil {
		return
	}
	c.checkSizes(p, f.Sizes, f.WarmUp, len(ranks))
	c.checkNumbers(p, f.Sizes)
	if len(f.Schemes) == 0 {
		c.failf(p, "%s needs at least one pair of schemes and one size", p)
	}
	labels := map[string]bool{}
	for i := range f.Schemes {
		x := &f.Schemes[i]
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		c.checkScheme(at+".allgather", allgathers(), &x.Allgather, f.Sizes)
		c.checkScheme(at+".reduce-scatter", reduceScatters(), &x.ReduceScatter, f.Sizes)
		for _, s := range []*Scheme{&x.Allgather, &x.ReduceScatter} {
			if s.Label != s.Name {
				c.failf(at, "label %q is of one half: give the pair a label", s.Label)
			}
		}
		if x.Label == "" {
			x.Label = x.Allgather.Name + "-" + x.ReduceScatter.Name
		}
		switch {
		case !labelName.MatchString(x.Label):
			c.failf(at, badLabel, x.Label)
		case labels[x.Label]:
			c.failf(at, "two pairs are called %q: give one of them a label of its own", x.Label)
		}
		labels[x.Label] = true
	}
	c.checkNoExternals(p, "fsdp", ranks)
}
