// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"fmt"
	"testing"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/fabric"
	"github.com/mcastlab/mcastlab/drivers/sim"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// TestLossFree: without loss each link of the tree carries each data packet exactly
// once, each receiver gets each byte once, and the source sees no more
// acknowledgements than a unicast sender does (CEP-52 iv, v; promise M3).
func TestLossFree(t *testing.T) {
	const packets = 200
	for _, ack := range []int{1, 16} {
		g, err := topo.FatTree(4, simlab.Link())
		s := newScene(t, g, err)
		s.ack = ack
		data := map[int]*faults.Nth{}
		for id := range s.build().Ports() {
			data[id] = &faults.Nth{Match: simlab.IsData}
			s.nths[id] = faults.Chain{data[id]}
		}
		acks := s.count("leaf0", "h0", simlab.IsAck)
		s.must(message{0, packets})
		tree := 0
		for id := range s.net.Ports() {
			switch data[id].Seen {
			case 0:
			case packets:
				tree++
			default:
				t.Errorf("%s carried %d data packets, want %d or none", g.PortName(s.sender(id)), data[id].Seen, packets)
			}
		}
		// 16 host links; 8 leaves and 4 pods are each joined to the tree once: 1 leaf to
		// its spine, 7 spines to leaves; 1 up and 3 down at the core.
		if want := 16 + 8 + 4; tree != want {
			t.Errorf("the tree has %d links, want %d", tree, want)
		}
		for h := 1; h < 16; h++ {
			if st := s.nic(fmt.Sprintf("h%d", h)); st.BytesReceived != packets*1024 || st.DuplicateRequest != 0 {
				t.Errorf("h%d accepted %d bytes and saw %d packets twice", h, st.BytesReceived, st.DuplicateRequest)
			}
		}
		unicast := (packets + ack - 1) / ack
		if float64(acks.Seen) > 1.1*float64(unicast) {
			t.Errorf("acknowledgement every %d: the source got %d, a unicast sender gets %d", ack, acks.Seen, unicast)
		}
		for i := g.Hosts; i < len(g.Nodes); i++ {
			if gr, ok := s.net.Switch(i).Group(wire.GroupNet | 1); ok && len(gr.Paths) > len(g.Nodes[i].Links) {
				t.Errorf("%s: %d paths, %d ports", g.Nodes[i].Name, len(gr.Paths), len(g.Nodes[i].Links))
			}
		}
	}
}

// TestGroupsSpread: identical groups use the upward ports of a switch evenly, to
// within one (CEP-13).
func TestGroupsSpread(t *testing.T) {
	g, err := topo.LeafSpine(topo.LeafSpineSpec{Leaves: 4, Spines: 5, Hosts: 3}, simlab.Link())
	s := newScene(t, g, err)
	n := s.build()
	params := simlab.Params()
	err = n.Run(sim.Job{Name: "groups", Hosts: s.nodes(), Params: params, Keep: true, Program: func(r *rank.Rank) error {
		for i := range 23 {
			if _, err := r.NewGroup(fmt.Sprint(i), 0); err != nil {
				return err
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	sw := s.sw("leaf0")
	least, most := 1000, 0
	for p := 3; p < 8; p++ {
		least, most = min(least, sw.PortLoad(p)), max(most, sw.PortLoad(p))
	}
	if most-least > 1 || most+least == 0 {
		t.Errorf("the upward ports of leaf0 carry %d to %d groups", least, most)
	}
}

// TestPausedReceiver: one receiver pauses its switch for a while. The message stalls at the source for
// as long, less the time that the path buffers, and nothing is dropped (CEP-44, R-C18).
func TestPausedReceiver(t *testing.T) {
	run := func(hold vtime.Duration) (silent vtime.Duration, s *scene) {
		g, err := topo.FatTree(4, simlab.Link())
		s = newScene(t, g, err)
		s.mtu, s.ack, s.xoff = 4096, 16, 64<<10
		n := s.build()
		gap := &longestGap{match: simlab.IsData}
		s.fault("h0", "leaf0", gap)
		start := 200 * vtime.Time(vtime.Microsecond)
		if hold > 0 {
			h, _ := g.Find("h9")
			for _, step := range simlab.PauseSteps(start, start.Add(hold), 100*vtime.Microsecond) {
				n.At(step.At, func(vtime.Time) { n.Pause(h, 1<<3, step.Quanta) })
			}
		}
		s.must(message{0, 1024}) // 4 MiB
		return gap.longest, s
	}
	free, _ := run(0)
	for _, hold := range []vtime.Duration{200 * vtime.Microsecond, 500 * vtime.Microsecond, 3 * vtime.Millisecond} {
		silent, s := run(hold)
		for i := s.graph.Hosts; i < len(s.graph.Nodes); i++ {
			if d := s.net.Switch(i).Stats().Dropped(); d != 0 {
				t.Errorf("%s dropped %d frames", s.graph.Nodes[i].Name, d)
			}
		}
		s.wantStall(hold, silent, free)
	}
}

// wantStall checks how long the source was silent during a pause of h9.
func (s *scene) wantStall(hold, silent, free vtime.Duration) {
	t := s.t
	t.Helper()
	// The path to h9 has five switches, each of which takes up to its threshold.
	buffered := 0.0
	for _, name := range []string{"leaf0", "agg0", "core0", "agg4", "leaf4"} {
		i, ok := s.graph.Find(name)
		if !ok {
			t.Fatal(name)
		}
		buffered += float64(s.spec.Reserved(i)) / float64(len(s.graph.Nodes[i].Links))
	}
	slack := vtime.Duration(buffered / 12.5e9 * 1e12)
	t.Logf("longest silence of the source: %v free, %v with a pause of %v; buffering %v", free, silent, hold, slack)
	if silent < hold-slack || silent > hold+10*vtime.Microsecond || free > 2*vtime.Microsecond {
		t.Errorf("the source was silent for %v during a pause of %v (buffering %v)", silent, hold, slack)
	}
	if s.nic("h0").PausesReceived == 0 {
		t.Error("the pause never came to the source")
	}
}

// longestGap measures the longest time between two frames that match.
type longestGap struct {
	match   func(*wire.Frame) bool
	last    vtime.Time
	longest vtime.Duration
}

// Arrive implements faults.Link.
func (l *longestGap) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	if l.match(f) {
		if l.last != 0 {
			l.longest = max(l.longest, now.Sub(l.last))
		}
		l.last = now
	}
	return faults.Verdict{}
}

// incast sends from all hosts of a star to one at once and returns the drops by
// reason and the senders' errors.
func incast(t *testing.T, lossless uint8) (map[string]uint64, error) {
	t.Helper()
	g, err := topo.Star(9, simlab.Link())
	if err != nil {
		t.Fatal(err)
	}
	n, err := sim.New(sim.Config{Check: true, Spec: fabric.Spec{
		Graph: g, Seed: 1, NIC: virtrnic.Settings{AckEvery: 4},
		Switch: fabric.Switch{
			Settings: virtswitch.Settings{Buffer: 1 << 20, PFC: virtswitch.PFCConfig{Lossless: lossless}, Rules: virtswitch.RulesFixed()},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	params := simlab.Params()
	params.MTU = 4096
	const size = 1 << 20
	err = n.Run(sim.Job{Name: "incast", Hosts: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, Params: params, Program: func(r *rank.Rank) error {
		return incastRank(r, size)
	}})
	drops := map[string]uint64{}
	st := n.Switch(9).Stats()
	for _, why := range virtswitch.DropReasons() {
		if st.Drops[why] > 0 {
			drops[why.String()] = st.Drops[why]
		}
	}
	return drops, err
}

func incastRank(r *rank.Rank, size int) error {
	buf, err := r.Alloc(size, rank.MemoryBytes)
	if err != nil {
		return err
	}
	if r.ID() > 0 {
		c, err := r.Connect(0)
		if err != nil {
			return err
		}
		r.Sync()
		q, err := c.Send(buf, 0, size)
		if err != nil {
			return err
		}
		return r.Wait(q)
	}
	var reqs []*rank.Request
	for p := 1; p < r.Size(); p++ {
		c, err := r.Connect(p)
		if err != nil {
			return err
		}
		q, err := c.Recv(buf, 0, size)
		if err != nil {
			return err
		}
		reqs = append(reqs, q)
	}
	r.Sync()
	return r.Wait(reqs...)
}

// TestIncast: eight senders to one receiver fill a small buffer. Under PFC nothing is
// dropped; without it frames are, and are counted with their reason.
func TestIncast(t *testing.T) {
	drops, err := incast(t, 1<<3)
	if len(drops) != 0 || err != nil {
		t.Errorf("with PFC: drops %v, error %v", drops, err)
	}
	drops, _ = incast(t, 0) // senders may run out of retries; that is not the point
	if len(drops) != 1 || drops["buffer-full"] == 0 {
		t.Errorf("without PFC: drops %v, want some for a full buffer and for nothing else", drops)
	}
}
