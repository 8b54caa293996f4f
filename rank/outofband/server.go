// SPDX-License-Identifier: Apache-2.0

package outofband

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/core/wire"
)

// Kind is the type of a Request.
type Kind uint8

// The kinds of requests. A runtime sends their numbers between processes, so they do not change.
const (
	Put          Kind = 1  // publish Value as Key; there is no reply
	Get          Kind = 2  // the value of Key, as soon as it has one
	Withdraw     Kind = 3  // end the wait of the call Of for Key; there is no reply
	Arrive       Kind = 4  // arrive at the barrier; the reply is due when all ranks have arrived
	Lease        Kind = 5  // a McstID that no group of the run has or had
	Multicast    Kind = 6  // a plain multicast group of Hosts
	EndMulticast Kind = 7  // the end of the plain multicast group Group
	SetBranches  Kind = 8  // replace the entries of SetBranches in the switches by Branches
	Lose         Kind = 9  // the rank's host has crashed; there is no reply
	Take         Kind = 10 // Get by the only reader of Key, after which its value is not kept
)

// Request is a call of a rank as a message.
type Request struct {
	Kind     Kind                  `json:"kind"`
	Call     uint64                `json:"call,omitempty"` // the rank's number of the call; its reply carries it
	Of       uint64                `json:"of,omitempty"`   // the call that Withdraw is about
	Key      string                `json:"key,omitempty"`
	Value    []byte                `json:"value,omitempty"`
	Hosts    []uint32              `json:"hosts,omitempty"`
	Group    uint32                `json:"group,omitempty"`
	Branches []wire.MulticastEntry `json:"branches,omitempty"`
}

// Reply answers a Request.
type Reply struct {
	Rank  int    `json:"rank"`
	Call  uint64 `json:"call"`
	Value []byte `json:"value,omitempty"` // of Get and Take
	Group uint32 `json:"group,omitempty"` // of Lease and Multicast
	Error string `json:"error,omitempty"`
}

// Server answers the requests of the ranks of one job. It is a value without I/O, as Board is: the
// requests and their order determine its answers. A runtime in which the messages of the channel take
// time carries Request to it, and Reply and table entries from it.
type Server struct {
	board *Board[uint64]
	lab   Lab

	// groups are the entries of the job's plain multicast groups that have not ended, oldest
	// group first.
	groups [][]wire.MulticastEntry

	// branches are the entries of the last SetBranches.
	branches []wire.MulticastEntry

	// taken are the keys for which the call of a Take waits.
	taken map[string]bool
}

// Lab gives a Server access to the lab.
type Lab struct {
	// Lease returns the lower 16 bits of a group's address that the run has not used.
	Lease func() (uint32, error)
	// Tree returns the table entries of a plain multicast group of the hosts with the given
	// addresses.
	Tree func(group uint32, hosts []uint32) ([]wire.MulticastEntry, error)
	// GroupNet and MulticastNet are the networks of McstIDs and of plain multicast groups.
	GroupNet, MulticastNet uint32
}

// NewServer returns the server of a job of size ranks; spare is as in New.
func NewServer(size int, spare []bool, lab Lab) *Server {
	return &Server{board: New[uint64](size, spare), lab: lab, taken: map[string]bool{}}
}

// Handle carries out a request of a rank. It returns the replies that are due now, which may be to
// other ranks, and the table entries that change.
func (s *Server) Handle(rank int, q Request) (replies []Reply, entries []wire.MulticastEntry) {
	me := call(rank, q.Call)
	switch q.Kind {
	case Put:
		calls := s.board.Put(q.Key, q.Value)
		if len(calls) == 1 && s.taken[q.Key] {
			delete(s.taken, q.Key)
			s.board.Take(rank, me, q.Key)
		}
		return answer(calls, q.Value), nil
	case Get:
		if v, ok := s.board.Get(rank, me, q.Key); ok {
			return answer([]uint64{me}, v), nil
		}
	case Take:
		if v, ok := s.board.Take(rank, me, q.Key); ok {
			return answer([]uint64{me}, v), nil
		}
		s.taken[q.Key] = true
	case Withdraw:
		s.board.Withdraw(rank, call(rank, q.Of), q.Key)
		delete(s.taken, q.Key)
	case Arrive:
		return answer(s.board.Arrive(rank, me), nil), nil
	case Lose:
		return answer(s.board.Lose(rank), nil), nil
	case Lease:
		lower, err := s.lab.Lease()
		return []Reply{leased(rank, q.Call, s.lab.GroupNet|lower, err)}, nil
	case Multicast:
		group, entries, err := s.multicast(q.Hosts)
		return []Reply{leased(rank, q.Call, group, err)}, entries
	case EndMulticast:
		return answer([]uint64{me}, nil), s.end(q.Group)
	case SetBranches:
		entries = append(without(s.branches), q.Branches...)
		s.branches = q.Branches
		return answer([]uint64{me}, nil), entries
	default:
		return []Reply{{Rank: rank, Call: q.Call, Error: fmt.Sprintf("request of kind %d is not known to this version", q.Kind)}}, nil
	}
	return nil, nil
}

// End ends all that the job has set in the switches, and returns the table entries that change.
func (s *Server) End() (entries []wire.MulticastEntry) {
	for _, g := range s.groups {
		entries = append(entries, without(g)...)
	}
	entries = append(entries, without(s.branches)...)
	s.groups, s.branches = nil, nil
	return entries
}

func (s *Server) multicast(hosts []uint32) (group uint32, entries []wire.MulticastEntry, err error) {
	lower, err := s.lab.Lease()
	if err != nil {
		return 0, nil, err
	}
	group = s.lab.MulticastNet | lower
	if entries, err = s.lab.Tree(group, hosts); err == nil && len(entries) > 0 {
		s.groups = append(s.groups, entries)
	}
	return group, entries, err
}

// end removes a plain multicast group. A group that has ended already changes nothing.
func (s *Server) end(group uint32) []wire.MulticastEntry {
	for i, g := range s.groups {
		if g[0].Group == group {
			s.groups = slices.Delete(s.groups, i, i+1)
			return without(g)
		}
	}
	return nil
}

// without returns the entries that remove the given ones.
func without(entries []wire.MulticastEntry) (gone []wire.MulticastEntry) {
	for _, e := range entries {
		gone = append(gone, wire.MulticastEntry{Switch: e.Switch, Group: e.Group})
	}
	return gone
}

// callBits is the number of bits of a call in the board's numbers of calls. A rank makes fewer calls in
// a job.
const callBits = 40

// call returns the board's number of a rank's call.
func call(rank int, n uint64) uint64 { return uint64(rank)<<callBits | n }

// answer returns a reply with the value for each of the board's calls.
func answer(calls []uint64, value []byte) (replies []Reply) {
	for _, c := range calls {
		replies = append(replies, Reply{Rank: int(c >> callBits), Call: c & (1<<callBits - 1), Value: value})
	}
	return replies
}

func leased(rank int, n uint64, group uint32, err error) Reply {
	r := Reply{Rank: rank, Call: n, Group: group}
	if err != nil {
		r.Group, r.Error = 0, err.Error()
	}
	return r
}
