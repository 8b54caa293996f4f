// SPDX-License-Identifier: Apache-2.0

//go:build linux

package command

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/mcastlab/mcastlab/core/prng"
)

// costModel estimates the time of a round, in seconds: first + order times the grants in the command that grants, machine times the servers; node
// times the grants by the processors of all servers, of which none has less than one to do; crowd times that and the nodes by the processors, whether
// they have a turn or wait, since caches and the kernel's queues serve them all; and one round trip. Where frames are delayed, the program that
// delays them takes line times the grants and the servers.
type costModel struct {
	first, order, machine, node, crowd, line float64
}

// testCores is the number of processors that the servers of the test share.
var testCores = float64(runtime.NumCPU())

func (m *costModel) round(c *cost) float64 {
	round := m.of(float64(c.machines), float64(c.nodes), c.grants, testCores, c.rtt)
	if c.delay > 0 {
		round += m.line * c.grants * float64(c.machines)
	}
	return round
}

func (m *costModel) of(machines, nodes, grants, cores, rtt float64) float64 {
	turns := max(1, grants/cores)
	return m.first + m.order*grants + m.machine*machines + m.node*turns + m.crowd*turns*nodes/cores + rtt
}

// fitCost fits the model to what is not held out: what the command takes by itself first, then the rest.
func fitCost(all []cost) *costModel {
	caller := leastSquares(all, func(c *cost) ([]float64, float64) { return []float64{1, c.grants, float64(c.machines)}, c.caller })
	m := &costModel{first: caller[0], order: caller[1]}
	rest := leastSquares(all, func(c *cost) ([]float64, float64) {
		turns, line := c.grants/testCores, 0.0
		if c.delay > 0 {
			line = c.grants * float64(c.machines)
		}
		return []float64{float64(c.machines), turns, turns * float64(c.nodes) / testCores, line}, c.round - c.rtt - m.first - m.order*c.grants
	})
	m.machine, m.node, m.crowd, m.line = rest[0], rest[1], rest[2], rest[3]
	return m
}

// TestFitCost: the fit recovers a model from its own estimates of the cases, each up to 2 % off, and so the cases held out. A
// part that takes no time is fitted as zero, and never below.
func TestFitCost(t *testing.T) {
	s := prng.New(1)
	for _, m := range []costModel{
		{first: 1e-4, order: 4e-6, machine: 3e-4, node: 5e-5, crowd: 7e-6, line: 6e-5}, {order: 1e-6, node: 1e-4}, {first: 1e-3, machine: 1e-3, crowd: 1e-5},
	} {
		var all []cost
		for _, k := range costCases {
			c := cost{costCase: k, nodes: k.k*k.k*k.k/4 + 5*k.k*k.k/4, rtt: 1e-4 + 2*k.delay.Seconds()}
			c.grants = 0.8 * float64(c.nodes)
			c.round, c.caller = m.round(&c)*(0.98+0.04*s.Float64()), m.first+m.order*c.grants
			all = append(all, c)
		}
		found := fitCost(all)
		for _, c := range all {
			if off := found.round(&c)/c.round - 1; math.Abs(off) > 0.05 {
				t.Errorf("%+v, fitted as %+v: %d servers, k = %d, %v: %+.1f %% off", m, *found, c.machines, c.k, c.delay, 100*off)
			}
		}
		if least := min(found.first, found.order, found.machine, found.node, found.crowd, found.line); least < 0 {
			t.Errorf("%+v, fitted as %+v: less than no time", m, *found)
		}
	}
}

// leastSquares returns the coefficients by which the terms make the value, with errors relative to what was measured. None is negative, since each
// is a time: a term that would be is left out.
func leastSquares(all []cost, of func(*cost) (terms []float64, value float64)) []float64 {
	terms, _ := of(&all[0])
	found := make([]float64, len(terms))
	var in []int
	for i := range terms {
		in = append(in, i)
	}
	for len(in) > 0 {
		x := relative(all, in, of)
		least := 0
		for i := range x {
			if x[i] < x[least] {
				least = i
			}
		}
		if x[least] >= 0 {
			for i, term := range in {
				found[term] = x[i]
			}
			break
		}
		in = slices.Delete(in, least, least+1)
	}
	return found
}

// relative returns the coefficients of some of the terms.
func relative(all []cost, in []int, of func(*cost) (terms []float64, value float64)) []float64 {
	var a, b []float64
	for i := range all {
		if all[i].held {
			continue
		}
		terms, v := of(&all[i])
		for _, term := range in {
			a = append(a, terms[term]/v)
		}
		b = append(b, 1)
	}
	var x mat.VecDense
	if err := x.SolveVec(mat.NewDense(len(b), len(in), a), mat.NewVecDense(len(b), b)); err != nil {
		panic(err) // the cases are all alike
	}
	return x.RawVector().Data
}
