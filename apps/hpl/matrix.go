// SPDX-License-Identifier: Apache-2.0

package hpl

// HPL's random matrix holds the numbers of a linear congruential generator in column-major order
// of the N by N+1 matrix [A b], so that each process can generate its own part (HPL_rand.c,
// HPL_pdmatgen.c). The seed is the generator's state before the first step, and the first element
// is computed from the state after it.
const (
	lcgMul  = 6364136223846793005
	lcgAdd  = 1
	lcgSeed = 100
)

// jump is the effect of a number of steps of the generator: x becomes mul x + add.
type jump struct{ mul, add uint64 }

// then returns the jump that is j followed by k.
func (j jump) then(k jump) jump { return jump{j.mul * k.mul, j.add*k.mul + k.add} }

func (j jump) of(x uint64) uint64 { return j.mul*x + j.add }

// steps returns the jump of n steps.
func steps(n uint64) jump {
	out, power := jump{1, 0}, jump{lcgMul, lcgAdd}
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out = out.then(power)
		}
		power = power.then(power)
	}
	return out
}

// element turns the generator's state into a number from -0.5 to 0.5.
func element(x uint64) float64 {
	const half, divisor = 0.5, 1 << 31
	lo, hi := float64(uint32(x)), float64(uint32(x>>32))
	return half - (lo/divisor*half+hi)/divisor*half
}

// fill generates a process's part of [A b], row-major with lda columns.
func (g *geometry) fill(a []float64) {
	next := steps(1)
	for c := range g.nq {
		col := uint64(globalOf(c, g.NB, g.myCol, g.Q))
		var x uint64
		for r := range g.mp {
			if r%g.NB == 0 {
				x = steps(col*uint64(g.N) + uint64(globalOf(r, g.NB, g.myRow, g.P)) + 1).of(lcgSeed)
			}
			a[r*g.nq+c] = element(x)
			x = next.of(x)
		}
	}
}
