// SPDX-License-Identifier: Apache-2.0

package sim

// The simulator looks for objects that jobs have left in hosts and switches.

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/rank/rankrun"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// litter is a program that makes one object after the other, of all kinds that a rank can make,
// and ends in the middle.
type litter struct {
	steps []int
	leave []int // by rank: the step before which it is left, by an error or, if it is odd, for ever
	made  map[int]int
}

// errLeft ends a rank in the middle.
var errLeft = errors.New("left in the middle")

func (l *litter) program(r *rank.Rank) error {
	b, err := r.Alloc(8<<10, rank.MemoryBytes)
	if err != nil {
		return err
	}
	all := make([]int, r.Size())
	for i := range all {
		all[i] = i
	}
	for i, kind := range l.steps {
		if i == l.leave[r.ID()] {
			if i%2 == 1 {
				r.Until("what never comes", func() bool { return false })
			}
			return errLeft
		}
		view, name := r, fmt.Sprint(i)
		if kind >= kinds { // the same in a part of the job
			if view, err = r.Sub(name, all); err != nil {
				return err
			}
		}
		if err := l.make(view, b, kind%kinds, name, i); err != nil {
			return err
		}
		l.made[kind]++
	}
	return nil
}

// kinds is the number of kinds of objects that make knows.
const kinds = 8

// make makes one object and uses it. The program may end while that is in progress.
func (l *litter) make(r *rank.Rank, b *rank.Buffer, kind int, name string, i int) error {
	switch next := (r.ID() + 1) % r.Size(); kind {
	case 0:
		c, err := r.Connect(r.ID() ^ 1)
		if err == nil {
			_, err = c.Send(b, 0, 5000) // no host receives it
		}
		return err
	case 1, 2:
		g, err := r.NewGroup(name, i%r.Size())
		if err != nil {
			return err
		}
		if g.Source() == r.ID() {
			_, err = g.Send(b, 0, 3000)
		} else {
			_, err = g.Recv(b, 0, 3000)
		}
		if err == nil && kind == 2 {
			r.Sync()
			err = g.Drop()
		}
		return err
	case 3:
		_, _, err := r.NewWriteGroup(name, i%r.Size(), []rank.MRMode{rank.MRPerRequest, rank.MRRegistered, rank.MRShared}[i%3], 4096, rank.MemoryBytes)
		return err
	case 4:
		_, err := r.NewReduction(name, i%r.Size(), rank.MemoryBytes)
		return err
	case 5, 6:
		m, err := r.NewMulticast(name, rank.MulticastKind(kind-5), 16)
		if err == nil && kind == 6 {
			err = m.Open(b, uint8(i))
		}
		return err
	default:
		g := r.PrepareGroup(name, i%r.Size())
		r.Go("join", g.Join)
		in, err := rankrun.NewInlet(r, next)
		if err != nil {
			return err
		}
		if err := in.Attach(wire.MulticastNet | uint32(0x4000+i)); err != nil {
			return err
		}
		_, err = rankrun.NewOutlet(r, wire.MulticastNet|uint32(0x4000+i), 0)
		return err
	}
}

// left runs a litter on a lab that loses packets, and may crash a host, then another job that
// has to find a lab as good as new.
func left(t *testing.T, seed uint64, made map[int]int) (deadlock, crashed, gaveUp bool) {
	r := prng.New(seed)
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 3, Spines: 2, Hosts: 2}, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: seed, NIC: virtrnic.Settings{Window: 64}, Switch: fabric.Switch{
		Settings: virtswitch.Settings{Rules: virtswitch.RulesFixed(), Buffer: 16 << 20, Groups: 2 + int(r.Uint64()%8), GroupAge: 10 * vtime.Second},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	hosts := []int{0, 1, 2, 3, 4, 5}
	if loss := []float64{0, 0, 0.02, 0.2}[r.Uint64()%4]; loss > 0 {
		for id := range n.Ports() {
			n.SetFault(id, &faults.Impairment{Loss: loss, Random: n.random.Derive(fmt.Sprintf("fault/%d", id))})
		}
	}
	if crashed = r.Uint64()%4 == 0; crashed {
		n.At(vtime.Time(r.Uint64()%uint64(2*vtime.Millisecond)), func(now vtime.Time) {
			target{n}.Restart(now, int(r.Uint64()%6))
			n.settled()
		})
	}
	l := &litter{made: made}
	for range 12 {
		l.steps = append(l.steps, int(r.Uint64()%(2*kinds)))
	}
	for range hosts {
		l.leave = append(l.leave, int(r.Uint64()%24))
	}
	params := simlab.Params()
	params.RetryCnt = 2
	err = n.Run(Job{Name: "litter", Hosts: hosts, Params: params, Program: l.program})
	if errors.Is(err, ErrInvariant) {
		t.Errorf("seed %d, steps %v, left before %v: %v", seed, l.steps, l.leave, err)
		return
	}
	deadlock = errors.Is(err, rankhost.ErrDeadlock)
	for i := range hosts {
		gaveUp = gaveUp || n.Agent(i).Stats().DeletionsGivenUp > 0
	}
	for id := range n.Ports() {
		n.SetFault(id, nil)
	}
	// Switches that the deletion could not reach make room when the time is over.
	n.At(n.now.Add(11*vtime.Second), func(vtime.Time) {})
	if err := n.Drain(); err != nil {
		t.Fatal(err)
	}
	err = n.Run(Job{Name: "again", Hosts: hosts, Params: simlab.Params(), Program: func(r *rank.Rank) error {
		b, err := r.Alloc(1<<10, rank.MemoryBytes)
		if err != nil {
			return err
		}
		for i := range 2 { // as many as the smallest table has room for
			if _, err := r.NewGroup(fmt.Sprint(i), i); err != nil {
				return err
			}
		}
		_, err = r.NewMulticast("m", rank.Datagrams, 4)
		return errors.Join(err, b.Free())
	}})
	if err != nil {
		t.Errorf("seed %d: the next job ends with %v", seed, err)
	}
	return deadlock, crashed, gaveUp
}

// TestNothingLeft: whatever ranks have made and wherever they were left, by an error of their
// own or of a peer, for ever, by a crash, among lost packets: nothing of it is left in hosts
// and switches, and the next job finds the room and the numbers it needs.
func TestNothingLeft(t *testing.T) {
	from, count := simlab.Seeds(t, 150)
	made := map[int]int{}
	var saw [3]int
	for seed := from; seed < from+count; seed++ {
		deadlock, crashed, gaveUp := left(t, seed, made)
		for i, is := range []bool{deadlock, crashed, gaveUp} {
			if is {
				saw[i]++
			}
		}
		if t.Failed() {
			return
		}
	}
	if count >= 100 && (slices.Contains(saw[:], 0) || len(made) < 2*kinds) {
		t.Errorf("deadlocks, crashes, deletions given up: %v; made %v: the sweep does not reach everything", saw, made)
	}
	t.Logf("deadlocks, crashes, deletions given up: %v; made %v", saw, made)
}

// leftBehind leaves an object of some kind in a host or a switch. The next job, whether or not it
// fails, must end with an error that names it.
func leftBehind(t *testing.T, seed uint64) {
	r := prng.New(seed)
	n := newStar(t)
	host := int(r.Uint64() % uint64(n.graph.Hosts))
	want := "protection domains"
	n.At(vtime.Time(r.Uint64()%uint64(vtime.Millisecond)), func(vtime.Time) {
		switch nic := n.NIC(host); r.Uint64() % 3 {
		case 0:
			nic.AllocPD()
		case 1:
			want = "completion queues"
			if _, err := nic.CreateCQ(1); err != nil {
				t.Error(err)
			}
		default:
			want = "groups it is in"
			n.Agent(host).Join(wire.GroupNet|0x7777, 17)
		}
	})
	err := n.Run(Job{Name: "left", Hosts: []int{0, 1}, Params: simlab.Params(), Program: func(k *rank.Rank) error {
		k.Sleep(vtime.Millisecond)
		if r.Uint64()%2 == 0 {
			return errLeft
		}
		return nil
	}})
	if !errors.Is(err, ErrInvariant) || !strings.Contains(err.Error(), want) {
		t.Errorf("seed %d: %v; want a broken invariant, %s", seed, err, want)
	}
}

// TestLateRegistration: a registration that a fault holds back until switches have forgotten that its
// group was deleted makes a group that no rank deletes: the switches age it out, and it is no mistake.
// One that comes in time makes none.
func TestLateRegistration(t *testing.T) {
	left := map[vtime.Duration]int{}
	for _, hold := range []vtime.Duration{10 * vtime.Microsecond, 2 * vtime.Second} {
		for seed := range uint64(8) {
			g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 2, Spines: 1, Hosts: 2}, simlab.Link())
			if err != nil {
				t.Fatal(err)
			}
			n, err := New(Config{Check: true, Spec: fabric.Spec{Graph: g, Seed: seed, Switch: fabric.Switch{Settings: virtswitch.Settings{
				Rules: virtswitch.RulesFixed(), Buffer: 16 << 20, Groups: 8}}}})
			if err != nil {
				t.Fatal(err)
			}
			n.SetFault(n.PortID(0, 0), &faults.Impairment{
				Match: faults.MatchFunc(simlab.IsMRP), Reorder: 1, Numbers: map[int]bool{1: true}, Delay: hold, Random: n.random.Derive("late"),
			})
			err = n.Run(Job{Name: "late", Hosts: []int{0, 1, 2, 3}, Params: simlab.Params(), Program: func(r *rank.Rank) error {
				group, err := r.NewGroup("late", 0)
				if err != nil {
					return err
				}
				return group.Delete()
			}})
			if err != nil {
				t.Errorf("seed %d, held for up to %v: %v", seed, hold, err)
			}
			for i := g.Hosts; i < len(g.Nodes); i++ {
				left[hold] += n.Switch(i).Holding().Groups
			}
			if hold < vtime.Millisecond && n.orphans != 0 {
				t.Errorf("seed %d, held for up to %v: %d groups may be left", seed, hold, n.orphans)
			}
		}
	}
	if left[10*vtime.Microsecond] != 0 || left[2*vtime.Second] == 0 {
		t.Errorf("groups left, by how long their registration was held: %v", left)
	}
}
