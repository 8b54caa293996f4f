// SPDX-License-Identifier: Apache-2.0

package sweep

import "math"

// confidence is the level of the confidence intervals: the share of them that contain the mean over all seeds.
const confidence = 0.95

// spread summarises a set of values.
type spread struct {
	Mean, Min, Max float64
	Deviation      float64 // of a single value, with n - 1; NaN for one value
	Half           float64 // of the confidence interval about the mean; NaN for one value
}

// spreadOf returns the mean of values and its confidence interval by Student's t. There must be at least one value.
// The interval supposes that means of several runs are about normal.
func spreadOf(values []float64) spread {
	n := float64(len(values))
	s := spread{Min: math.Inf(1), Max: math.Inf(-1), Deviation: math.NaN(), Half: math.NaN()}
	sum := 0.0
	for _, v := range values {
		sum += v
		s.Min, s.Max = min(s.Min, v), max(s.Max, v)
	}
	// The sum of equal values may be rounded, and the mean is not outside of its values.
	s.Mean = min(max(sum/n, s.Min), s.Max)
	if n < 2 {
		return s
	}
	squares := 0.0
	for _, v := range values {
		squares += (v - s.Mean) * (v - s.Mean)
	}
	s.Deviation = math.Sqrt(squares / (n - 1))
	s.Half = quantile(confidence, n-1) * s.Deviation / math.Sqrt(n)
	return s
}

// quantile returns the number of standard errors to each side of the mean that hold a share of Student's t
// distribution with that many degrees of freedom.
func quantile(share, degrees float64) float64 {
	// The share of the distribution beyond +-t is I_x(degrees/2, 1/2) at x = degrees/(degrees + t^2), which falls with t.
	beyond := func(t float64) float64 { return betaShare(degrees/(degrees+t*t), degrees/2, 0.5) }
	low, high := 0.0, 1.0
	for beyond(high) > 1-share {
		low, high = high, 2*high
	}
	for range 200 { // halves until floating point has no value between
		mid := (low + high) / 2
		if mid == low || mid == high {
			break
		}
		if beyond(mid) > 1-share {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// betaShare returns the regularized incomplete beta function I_x(a, b), for x from 0 to 1.
func betaShare(x, a, b float64) float64 {
	if x <= 0 || x >= 1 {
		return x
	}
	la, _ := math.Lgamma(a)
	lb, _ := math.Lgamma(b)
	lab, _ := math.Lgamma(a + b)
	front := math.Exp(lab - la - lb + a*math.Log(x) + b*math.Log1p(-x))
	// The fraction converges fast on this side only; the other side is the rest of 1.
	if x < (a+1)/(a+b+2) {
		return front * betaFraction(x, a, b) / a
	}
	return 1 - front*betaFraction(1-x, b, a)/b
}

// betaFraction returns the continued fraction of the incomplete beta function (DLMF 8.17.22) by Lentz's method.
func betaFraction(x, a, b float64) float64 {
	const tiny = 1e-300 // in place of a 0 that would be divided by
	nonzero := func(v float64) float64 {
		if math.Abs(v) < tiny {
			return tiny
		}
		return v
	}
	c, d := 1.0, 1/nonzero(1-(a+b)*x/(a+1))
	f := d
	for i := 1.0; i < 1000; i++ {
		even := i * (b - i) * x / ((a + 2*i - 1) * (a + 2*i))
		d = 1 / nonzero(1+even*d)
		c = nonzero(1 + even/c)
		f *= d * c
		odd := -(a + i) * (a + b + i) * x / ((a + 2*i) * (a + 2*i + 1))
		d = 1 / nonzero(1+odd*d)
		c = nonzero(1 + odd/c)
		f *= d * c
		if math.Abs(d*c-1) < 1e-16 {
			break
		}
	}
	return f
}
