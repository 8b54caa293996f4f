// SPDX-License-Identifier: Apache-2.0

package hpl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Input holds the contents of HPL.dat: lists of values, every combination of which is a test.
type Input struct {
	N, NB                 []int
	Grids                 [][2]int // P, Q
	ColumnMajor           bool
	Threshold             float64
	PFact, RFact, Bcast   []string
	NBMin, NDiv, Depth    []int
	Swap                  string
	SwapThreshold, Slices int
}

// Tests returns a test for every combination of values, in HPL's order.
func (in *Input) Tests() (all []Test) {
	each := func(n int, f func(i int)) {
		for i := range n {
			f(i)
		}
	}
	var t Test
	t.ColumnMajor, t.Swap, t.SwapThreshold, t.Slices = in.ColumnMajor, in.Swap, in.SwapThreshold, in.Slices
	inner := func() {
		each(len(in.RFact), func(i int) {
			each(len(in.NDiv), func(j int) {
				each(len(in.PFact), func(k int) {
					each(len(in.NBMin), func(l int) {
						t.RFact, t.NDiv, t.PFact, t.NBMin = in.RFact[i], in.NDiv[j], in.PFact[k], in.NBMin[l]
						t.Label = in.label(&t)
						all = append(all, t)
					})
				})
			})
		})
	}
	each(len(in.Grids), func(i int) {
		each(len(in.N), func(j int) {
			each(len(in.NB), func(k int) {
				each(len(in.Depth), func(l int) {
					each(len(in.Bcast), func(m int) {
						t.P, t.Q, t.N, t.NB, t.Depth, t.Bcast = in.Grids[i][0], in.Grids[i][1], in.N[j], in.NB[k], in.Depth[l], in.Bcast[m]
						inner()
					})
				})
			})
		})
	})
	return all
}

// label returns a test's name in reports: the broadcast, and the values that distinguish it from the
// other tests.
func (in *Input) label(t *Test) string {
	s := t.Bcast
	for _, part := range []struct {
		values int
		text   string
	}{
		{len(in.Grids), fmt.Sprintf("%dx%d", t.P, t.Q)}, {len(in.NB), fmt.Sprintf("nb%d", t.NB)}, {len(in.Depth), fmt.Sprintf("depth%d", t.Depth)},
		{len(in.RFact) * len(in.NDiv) * len(in.PFact) * len(in.NBMin), t.TV()},
	} {
		if part.values > 1 {
			s += "_" + part.text
		}
	}
	return s
}

// valuesMax is the largest number of values in a list of HPL.dat.
const valuesMax = 20

// datLines is the number of lines of HPL.dat.
const datLines = 31

// datReader reads the lines of HPL.dat and keeps the first error. An error names the line and does
// not quote its text, because the file may be another one with private contents.
type datReader struct {
	lines []string
	at    int // line, from 1
	err   error
}

func (r *datReader) failf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("line %d: %s", r.at, fmt.Sprintf(format, args...))
	}
}

// words returns the first n words of the next line. The rest of the line is a comment.
func (r *datReader) words(n int) []string {
	r.at++
	if r.at > len(r.lines) {
		r.failf("the file ends here: HPL.dat has %d lines", datLines)
		return make([]string, n)
	}
	w := strings.Fields(r.lines[r.at-1])
	if len(w) < n {
		r.failf("%d values, it needs %d", len(w), n)
		return make([]string, n)
	}
	return w[:n]
}

func (r *datReader) number(s string) int {
	v, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		r.failf("a value is not a whole number")
	}
	return int(v)
}

// count reads the number of values of the next list.
func (r *datReader) count() int {
	n := r.number(r.words(1)[0])
	if n < 1 || n > valuesMax {
		r.failf("a list has 1 to %d values", valuesMax)
		return 1
	}
	return n
}

func (r *datReader) numbers(n int) (out []int) {
	for _, w := range r.words(n) {
		out = append(out, r.number(w))
	}
	return out
}

// choices reads n choices, each given by HPL's number or by its name.
func (r *datReader) choices(n int, names []string) (out []string) {
	for _, w := range r.words(n) {
		if slices.Contains(names, w) {
			out = append(out, w)
			continue
		}
		i := r.number(w)
		if i < 0 || i >= len(names) {
			r.failf("a value is no choice there is: use 0 to %d, or %s", len(names)-1, strings.Join(names, ", "))
			i = 0
		}
		out = append(out, names[i])
	}
	return out
}

// ParseDat reads the text of HPL.dat. It accepts the names of choices in place of HPL's numbers, so
// that a file can select choices that HPL does not have, such as BCAST cepheus and SWAP multicast. The
// storage of L1 and U, equilibration and alignment are read and ignored, and spread-roll always
// equalises. An error names the line.
func ParseDat(text string) (*Input, error) {
	r := &datReader{lines: strings.Split(strings.TrimRight(text, "\n"), "\n"), at: 4}
	in := &Input{}
	facts := []string{Left, Crout, Right}
	in.N = r.numbers(r.count())
	in.NB = r.numbers(r.count())
	in.ColumnMajor = r.choices(1, []string{"row", "column"})[0] == "column"
	n := r.count()
	ps, qs := r.numbers(n), r.numbers(n)
	for i := range ps {
		in.Grids = append(in.Grids, [2]int{ps[i], qs[i]})
	}
	threshold := r.words(1)[0]
	var err error
	if in.Threshold, err = strconv.ParseFloat(threshold, 64); err != nil {
		r.failf("the threshold is not a number")
	}
	in.PFact = r.choices(r.count(), facts)
	in.NBMin = r.numbers(r.count())
	in.NDiv = r.numbers(r.count())
	in.RFact = r.choices(r.count(), facts)
	in.Bcast = r.choices(r.count(), Bcasts())
	in.Depth = r.numbers(r.count())
	in.Swap = r.choices(1, []string{SwapExchange, SwapLong, SwapMix, SwapMulticast})[0]
	in.SwapThreshold = r.numbers(1)[0]
	for range datLines - 27 {
		r.numbers(1)
	}
	return in, r.err
}
