// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// labConfig describes a lab on a graph, with every invariant checked.
func labConfig(g *topo.Graph) Config {
	return Config{Check: true, Spec: simlab.Plain(g)}
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

// runAll runs a program on all hosts and keeps its objects.
func runAll(n *Net, program func(r *rank.Rank) error) error {
	params, first := simlab.Params(), wire.PSN(0)
	params.FirstPSN = &first
	return n.Run(Job{Name: "scene", Hosts: simlab.Hosts(n.graph), Params: params, Keep: true, Program: program})
}

// bringUp takes a queue pair to RTS.
func bringUp(nic *virtrnic.NIC, q *virtrnic.QP, typ virtrnic.QPType, a virtrnic.QPAttr) error {
	masks := []virtrnic.AttrMask{
		virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrAccessFlags,
		virtrnic.AttrAV | virtrnic.AttrPathMTU | virtrnic.AttrDestQPN | virtrnic.AttrRQPSN, virtrnic.AttrSQPSN,
	}
	switch typ {
	case virtrnic.TypeUD:
		masks = []virtrnic.AttrMask{virtrnic.AttrPKeyIndex | virtrnic.AttrPort | virtrnic.AttrQKey, 0, virtrnic.AttrSQPSN}
	case virtrnic.TypeRC:
		masks[1] |= virtrnic.AttrMaxDestRdAtomic | virtrnic.AttrMinRNRTimer
		masks[2] |= virtrnic.AttrTimeout | virtrnic.AttrRetryCnt | virtrnic.AttrRNRRetry | virtrnic.AttrMaxQPRdAtomic
	}
	for i, to := range []virtrnic.QPState{virtrnic.StateInit, virtrnic.StateRTR, virtrnic.StateRTS} {
		a.State = to
		if err := nic.ModifyQP(0, q, a, masks[i]|virtrnic.AttrState); err != nil {
			return err
		}
	}
	return nil
}
