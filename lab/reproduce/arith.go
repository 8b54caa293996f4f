// SPDX-License-Identifier: Apache-2.0

package reproduce

import (
	"math"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// computed returns the computations that lines with the basis ARITH name. Where the tree has code that decides
// the figure, it is asked; the others are arithmetic on the paper's own inputs.
func computed() map[string]func() float64 {
	all := map[string]func() float64{
		"mrp-records-per-packet":        func() float64 { return wire.MRPRecordsMax },
		"mft-bytes-64-ports":            func() float64 { return float64(virtswitch.MFTBytes(64, false)) },
		"mft-mib-1024-groups":           func() float64 { return 1024 * float64(virtswitch.MFTBytes(64, false)) / (1 << 20) },
		"gleam-table-bytes-1024-groups": func() float64 { return 1024 * float64(virtswitch.GleamTableBytes(64, false)) },
		"ntree-8-3-hosts":               func() float64 { return ntree(8, 3, (*topo.NTree).Hosts) },
		"ntree-8-3-switches":            func() float64 { return ntree(8, 3, (*topo.NTree).Switches) },
		"subgroup-sends-mib":            func() float64 { return 8.0 / 4 },                            // R-A12: a rank's block over 4 subgroups
		"subgroup-receives-mib":         func() float64 { return 15 * 8.0 / 4 },                       // R-A12: the blocks of 15 others
		"llc-bitmap-gb":                 func() float64 { return 1.5 * (1 << 20) * 8 * 4096 / 1e9 },   // R-A10
		"communicators-in-llc":          func() float64 { return math.Floor(1.5 * 1024 / (64 + 16)) }, // R-A11
		"bitmap-64-kib-covers-gib":      func() float64 { return 64 * 1024 * 8 * 4096 / float64(1<<30) },
		"cores-for-4x1.6T":              func() float64 { return 4 * 1600 / 100 },                             // R-A17
		"cores-both-directions":         func() float64 { return 2 * 4 * 1600 / 100 },                         // R-A17
		"datagrams-200g":                func() float64 { return 200e9 / 8 / 4096 / 1e6 },                     // R-A19
		"datagrams-400g":                func() float64 { return 400e9 / 8 / 4096 / 1e6 },                     // R-A19
		"drop-1e-12":                    func() float64 { return -math.Expm1(4170 * 8 * math.Log1p(-1e-12)) }, // R-A18: 4,096 bytes and headers
		"drop-1e-15":                    func() float64 { return -math.Expm1(4170 * 8 * math.Log1p(-1e-15)) },
		"chunk-rate-1.6t":               func() float64 { return 1.6e12 / 8 / 4096 / 1e6 }, // R-A16
	}
	for n, name := range map[int]string{512: "mrp-packets-512", 1024: "mrp-packets-1024", 4394: "mrp-packets-4394", 16384: "mrp-packets-16384"} {
		all[name] = func() float64 { return math.Ceil(float64(n-1) / wire.MRPRecordsMax) }
	}
	for bits, name := range map[int]string{20: "bitmap-20-bits", 22: "bitmap-22-bits", 23: "bitmap-23-bits", 24: "bitmap-24-bits", 32: "bitmap-32-bits"} {
		all[name+"-kib"] = func() float64 { return math.Pow(2, float64(bits)) / 8 / 1024 }
		all[name+"-gib"] = func() float64 { return math.Pow(2, float64(bits)) * 4096 / (1 << 30) }
	}
	for k, name := range map[int]string{9: "group-of-fan-out-8", 26: "group-of-fan-out-25"} {
		all[name] = func() float64 { return float64(k / 2 * (k / 2) * k) } // R-C21: the hosts of the largest fat-tree of k - 1 ports down
	}
	return all
}

// ntree returns a count of an m-port n-tree.
func ntree(m, n int, count func(*topo.NTree) int) float64 {
	t, err := topo.NewNTree(m, n)
	if err != nil {
		return math.NaN()
	}
	return float64(count(t))
}
