// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// Where the papers differ from each other: the outcome of the rule in use, and that of the other one.

// printedMinimum is lines 4 to 9 of Gleam's algorithm 3 as printed, over the members' acknowledgements: the
// comparison replaces a value by a larger one.
func printedMinimum(ack []wire.PSN) (least wire.PSN) {
	least = ack[0]
	for _, a := range ack {
		if a.After(least) {
			least = a
		}
	}
	return least
}

// TestMinimumSign (CON-1): the aggregated ACK is the smallest of the members', by draw and around the end of the
// PSNs. The sign that Gleam prints would acknowledge packets that a member lacks.
func TestMinimumSign(t *testing.T) {
	beyond := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0xc01))
		first := wire.PSN(0).Add(-r.IntN(40)) // the next 60 wrap for most draws
		a := newAggregation(RulesFixed(), 4, first)
		ack := []wire.PSN{first.Add(-1), first.Add(-1), first.Add(-1), first.Add(-1)}
		told := first.Add(-1)
		for range 100 {
			i := r.IntN(4)
			ack[i] = ack[i].Add(r.IntN(4))
			least := ack[0]
			for _, x := range ack {
				if least.After(x) {
					least = x
				}
			}
			if d := a.onAck(i+1, ack[i], 0); d.ack {
				told = d.ackPSN
			}
			if told != least {
				t.Fatalf("seed %d: members have %v, the source is told %d", seed, ack, told)
			}
			if printedMinimum(ack).After(least) {
				beyond++
			}
		}
	}
	if beyond == 0 {
		t.Error("the draw never tells the two signs apart")
	}
}

// TestLockStep (CON-2): members that keep step acknowledge every packet, each round in an order by draw. What is
// later than the last aggregated ACK alone makes one of them, so the source gets an ACK a packet whatever the
// number of members. Under Gleam's rule equal ones do, too: each time that the member which was behind
// acknowledges, another one of those that are still to come is looked at, which makes as many
// ACKs a packet as the sum of 1/i over the members, in random order.
func TestLockStep(t *testing.T) {
	const rounds = 2000
	for _, members := range []int{2, 4, 16} {
		for _, rules := range []Rules{RulesFixed(), RulesGleam()} {
			r := rand.New(rand.NewPCG(1, 0xc02))
			a := newAggregation(rules, members, 1)
			acks := 0
			for psn := wire.PSN(1); psn <= rounds; psn++ {
				for _, i := range r.Perm(members) {
					if a.onAck(i+1, psn, 0).ack {
						acks++
					}
				}
			}
			each, harmonic := float64(acks)/rounds, 0.0
			for i := range members {
				harmonic += 1 / float64(i+1)
			}
			t.Logf("%d members, equal ones trigger %v: %.2f ACKs a packet", members, rules.TriggerOnEqual, each)
			switch {
			case !rules.TriggerOnEqual && acks != rounds:
				t.Errorf("%d members: %d ACKs for %d packets", members, acks, rounds)
			case rules.TriggerOnEqual && math.Abs(each/harmonic-1) > 0.03:
				t.Errorf("%d members by Gleam's rule: %.3f ACKs a packet, want %.3f", members, each, harmonic)
			}
		}
	}
}

// TestLoads (CON-10, CON-12): a port's load counts groups by Cepheus and nodes by Gleam, and the port to the
// leader, which is no node of the list, is a path of the group, too.
func TestLoads(t *testing.T) {
	remote := func(block, host uint32) wire.MRPRecord { return wire.MRPRecord{IP: 10<<24 | block<<8 | host, QPN: 5} }
	for _, c := range []struct {
		rules Rules
		want  string
	}{{RulesFixed(), "[2 1 2]"}, {RulesGleam(), "[2 1 6]"}} {
		l := newLone(t, func(c2 *Config) { c2.Rules = c.rules })
		l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100},
			wire.MRPRecord{IP: hostIP(1), QPN: 7}, remote(2, 1), remote(2, 2), remote(2, 3)))
		l.run()
		l.stub[0].send(l.mrp(hostIP(0), group1+1, wire.MRPHeader{Total: 1, LeaderQPN: 101}, remote(2, 4), remote(2, 5), remote(2, 6)))
		l.run()
		got := fmt.Sprint([]int{l.sw.PortLoad(0), l.sw.PortLoad(1), l.sw.PortLoad(loneHosts + 1)})
		if got != c.want {
			t.Errorf("by node %v: loads of the leader's, a host's and the second port up are %s, want %s", c.rules.LoadPerNode, got, c.want)
		}
		if text := fmt.Sprintf("%+v", l.sw.Groups()[0]); !strings.Contains(text, "Port:0 ") {
			t.Errorf("the leader's port is no path: %s", text)
		}
	}
}
