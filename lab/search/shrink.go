// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps/bcast"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// triesMax bounds the number of smaller labs that are tried.
const triesMax = 600

// Shrink returns the smallest lab it finds that breaks the promise in the same way: with
// fewer faults, then simpler ones, then less work.
func Shrink(ctx context.Context, l *lab.Lab, v *Violation, hook Hook) (*lab.Lab, error) {
	best, tries := l, 0
	most := triesMax
	if strings.HasSuffix(v.Class, ", endless") {
		most /= 30 // each takes as long as a trial may
	}
	for again := true; again; {
		again = false
		for _, change := range changes(best) {
			if tries++; tries > most {
				return best, nil
			}
			c, err := copyOf(best)
			if err != nil {
				return best, err
			}
			if !change(c) {
				continue
			}
			// What does not check is no lab; a change may make it so.
			if c, err = copyOf(c); err != nil {
				continue
			}
			out, err := Try(ctx, c, hook)
			if err != nil {
				return best, err
			}
			if out.Violation != nil && out.Violation.Class == v.Class {
				best, again = c, true
				break // the list of changes is that of another lab
			}
		}
	}
	return best, nil
}

// changes returns the changes that make a lab smaller. A change returns false if it is none.
func changes(l *lab.Lab) (all []func(*lab.Lab) bool) {
	for i := range l.Faults {
		all = append(all, func(c *lab.Lab) bool {
			c.Faults = slices.Delete(c.Faults, i, i+1)
			return true
		})
	}
	for i := range l.Workloads {
		all = append(all, func(c *lab.Lab) bool {
			c.Workloads = slices.Delete(c.Workloads, i, i+1)
			return len(c.Workloads) > 0
		})
		if l.Workloads[i].Bcast != nil {
			all = append(all, bcastChanges(l.Workloads[i].Bcast, i)...)
		}
	}
	for i := range l.Faults {
		all = append(all, faultChanges(l, i)...)
	}
	return all
}

// bcastChanges are those of a broadcast.
func bcastChanges(b *bcast.Settings, i int) (all []func(*lab.Lab) bool) {
	of := func(change func(b *bcast.Settings) bool) {
		all = append(all, func(c *lab.Lab) bool { return change(c.Workloads[i].Bcast) })
	}
	for k := range b.Schemes {
		of(func(b *bcast.Settings) bool {
			many := len(b.Schemes) > 1
			b.Schemes = b.Schemes[k : k+1]
			return many
		})
	}
	for k := range b.Sizes {
		of(func(b *bcast.Settings) bool {
			many := len(b.Sizes) > 1
			b.Sizes = b.Sizes[k : k+1]
			return many
		})
	}
	of(func(b *bcast.Settings) bool {
		more := b.Iterations != 1
		b.Iterations = 1
		return more
	})
	of(func(b *bcast.Settings) bool {
		b.Sizes[0] /= 2
		return b.Sizes[0] >= 1
	})
	return all
}

// faultChanges are those of one fault.
func faultChanges(l *lab.Lab, i int) (all []func(*lab.Lab) bool) {
	of := func(change func(f *lab.Fault) bool) {
		all = append(all, func(c *lab.Lab) bool { return change(&c.Faults[i]) })
	}
	of(func(f *lab.Fault) bool {
		comes := f.Every != nil
		f.Every = nil
		return comes
	})
	of(func(f *lab.Fault) bool {
		less := f.Probability < 1
		f.Probability = 1
		return less
	})
	of(func(f *lab.Fault) bool {
		later := f.At > 0
		f.At = 0
		return later
	})
	of(func(f *lab.Fault) bool {
		if f.For == nil || vtime.Duration(*f.For) < 2*vtime.Microsecond {
			return false
		}
		half := *f.For / 2
		f.For, f.Every = &half, nil
		return true
	})
	if g, err := labspec.Graph(l); err == nil {
		for k := range min(len(g.Links), 16) {
			of(func(f *lab.Fault) bool { return narrow(f, g.LinkName(k)) })
		}
	}
	for _, direction := range []string{"up", "down"} {
		of(func(f *lab.Fault) bool {
			x := f.OfFrames()
			if x == nil || x.Direction != "both" {
				return false
			}
			x.Direction = direction
			return true
		})
	}
	of(func(f *lab.Fault) bool {
		x := f.OfFrames()
		if x == nil || x.Frames == nil {
			return false
		}
		x.Frames = nil
		return true
	})
	return all
}

// narrow restricts a fault of all links to a single one. It reports whether that changed the fault.
func narrow(f *lab.Fault, link string) bool {
	var links *lab.Names
	switch {
	case f.OfFrames() != nil:
		links = &f.OfFrames().Links
	case f.RateCut != nil:
		links = &f.RateCut.Links
	}
	if links == nil || !slices.Equal(*links, lab.Names{"*"}) {
		return false
	}
	*links = lab.Names{link}
	return true
}
