package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// labConfig describes a lab on a graph, with every invariant checked.
func labConfig(g *topo.Graph) Config {
	return Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 1}, Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 16 << 20, PFC: virtswitch.PFCConfig{Lossless: 1 << 3}, Rules: virtswitch.RulesFixed()},
		},
	}}
}

// newLab builds a lab.
func newLab(t *testing.T, c Config) *Net {
	t.Helper()
	n, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newStar is a lab of a source, three receivers and a switch.
func newStar(t *testing.T) *Net {
	t.Helper()
	g, err := topo.Star(4, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	return newLab(t, labConfig(g))
}

// runAll runs a program on all hosts and leaves what it has made.
func runAll(n *Net, program func(r *rank.Rank) error) error {
	params, first := simlab.Params(), wire.PSN(0)
	params.FirstPSN = &first
	return n.Run(Job{Name: "scene", Hosts: simlab.Hosts(n.graph), Params: params, Keep: true, Program: program})
}
