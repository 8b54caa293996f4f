// SPDX-License-Identifier: Apache-2.0

package outofband

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/wire"
)

// TestServer: each kind of request, its replies, and the table entries that it changes.
func TestServer(t *testing.T) {
	leases := uint32(0)
	s := NewServer(2, []bool{false, true}, Lab{
		GroupNet: 0x100, MulticastNet: 0x200,
		Lease: func() (uint32, error) {
			if leases++; leases > 3 {
				return 0, errors.New("none is left")
			}
			return leases, nil
		},
		Tree: func(group uint32, hosts []uint32) ([]wire.MulticastEntry, error) {
			if len(hosts) == 0 {
				return nil, errors.New("nobody is in it")
			}
			return []wire.MulticastEntry{{Switch: 7, Group: group, Ports: []uint16{1, 2}}, {Switch: 8, Group: group, Ports: []uint16{3}}}, nil
		},
	})
	set := []wire.MulticastEntry{{Switch: 9, Group: 5, Ports: []uint16{4}}}
	for i, c := range []struct {
		rank int
		q    Request
		want string
	}{
		{0, Request{Kind: Get, Call: 1, Key: "k"}, "[] []"},
		{1, Request{Kind: Get, Call: 9, Key: "k"}, "[] []"},
		{1, Request{Kind: Withdraw, Of: 9, Key: "k"}, "[] []"},
		{1, Request{Kind: Put, Key: "k", Value: []byte("v")}, "[{0 1 [118] 0 }] []"},
		{1, Request{Kind: Get, Call: 10, Key: "k"}, "[{1 10 [118] 0 }] []"},
		{0, Request{Kind: Arrive, Call: 2}, "[] []"},
		{1, Request{Kind: Arrive, Call: 11}, "[{0 2 [] 0 } {1 11 [] 0 }] []"},
		{0, Request{Kind: Lease, Call: 3}, "[{0 3 [] 257 }] []"},
		{0, Request{Kind: Multicast, Call: 4, Hosts: []uint32{1}}, "[{0 4 [] 514 }] [{7 514 [1 2] []} {8 514 [3] []}]"},
		{0, Request{Kind: EndMulticast, Call: 5, Group: 514}, "[{0 5 [] 0 }] [{7 514 [] []} {8 514 [] []}]"},
		{0, Request{Kind: EndMulticast, Call: 6, Group: 514}, "[{0 6 [] 0 }] []"},
		{0, Request{Kind: Multicast, Call: 7}, "[{0 7 [] 0 nobody is in it}] []"},
		{0, Request{Kind: Lease, Call: 8}, "[{0 8 [] 0 none is left}] []"},
		{1, Request{Kind: SetBranches, Call: 12, Branches: set}, "[{1 12 [] 0 }] [{9 5 [4] []}]"},
		{1, Request{Kind: SetBranches, Call: 13}, "[{1 13 [] 0 }] [{9 5 [] []}]"},
		{0, Request{Kind: Arrive, Call: 14}, "[] []"},
		{1, Request{Kind: Lose}, "[{0 14 [] 0 }] []"},
		{0, Request{Kind: 77, Call: 15}, "[{0 15 [] 0 request of kind 77 is not known to this version}] []"},
	} {
		replies, entries := s.Handle(c.rank, c.q)
		if got := fmt.Sprint(replies, " ", entries); got != c.want {
			t.Errorf("step %d: %s, want %s", i, got, c.want)
		}
	}
	if left := s.End(); left != nil {
		t.Errorf("%v is left", left)
	}
}

// TestServerEnd: a job that ends leaves nothing in the switches.
func TestServerEnd(t *testing.T) {
	n := uint32(0)
	s := NewServer(1, nil, Lab{
		Lease: func() (uint32, error) { n++; return n, nil },
		Tree: func(group uint32, _ []uint32) ([]wire.MulticastEntry, error) {
			return []wire.MulticastEntry{{Switch: int(group), Group: group, Ports: []uint16{1}}}, nil
		},
	})
	for range 3 {
		s.Handle(0, Request{Kind: Multicast, Hosts: []uint32{1}})
	}
	s.Handle(0, Request{Kind: EndMulticast, Group: 2})
	s.Handle(0, Request{Kind: SetBranches, Branches: []wire.MulticastEntry{{Switch: 4, Group: 8, Ports: []uint16{1}}}})
	if got := fmt.Sprint(s.End()); got != "[{1 1 [] []} {3 3 [] []} {4 8 [] []}]" {
		t.Error(got)
	}
	if got := s.End(); got != nil {
		t.Error("what has ended ends again:", got)
	}
}

// TestServerTake: a taken value is not kept, nor is one that came after the wait for it; one whose wait was withdrawn is.
func TestServerTake(t *testing.T) {
	s := NewServer(2, nil, Lab{})
	ask := func(rank int, q Request) []Reply {
		replies, _ := s.Handle(rank, q)
		return replies
	}
	kept := func() int { return len(s.board.values) + len(s.taken) }

	ask(0, Request{Kind: Put, Key: "k", Value: []byte("v")})
	if got := ask(1, Request{Kind: Take, Call: 1, Key: "k"}); len(got) != 1 || string(got[0].Value) != "v" || got[0].Rank != 1 || kept() != 0 {
		t.Errorf("%+v, %d kept", got, kept())
	}
	if got := ask(1, Request{Kind: Take, Call: 2, Key: "l"}); got != nil {
		t.Errorf("%+v before there is a value", got)
	}
	if got := ask(0, Request{Kind: Put, Key: "l", Value: []byte("w")}); len(got) != 1 || string(got[0].Value) != "w" || got[0].Call != 2 || kept() != 0 {
		t.Errorf("%+v, %d kept", got, kept())
	}
	ask(1, Request{Kind: Take, Call: 3, Key: "m"})
	ask(1, Request{Kind: Withdraw, Of: 3, Key: "m"})
	if got := ask(0, Request{Kind: Put, Key: "m", Value: []byte("x")}); got != nil {
		t.Errorf("%+v for a call that was withdrawn", got)
	}
	if got := ask(1, Request{Kind: Get, Call: 4, Key: "m"}); len(got) != 1 || string(got[0].Value) != "x" {
		t.Errorf("%+v", got)
	}
}
