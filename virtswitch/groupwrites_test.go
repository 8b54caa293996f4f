// SPDX-License-Identifier: Apache-2.0

package virtswitch_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/internal/test/simlab"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// watchRETHs puts a watcher on every link to a host.
func (s *scene) watchRETHs() {
	for h := range s.graph.Hosts {
		name, leaf := s.graph.Nodes[h].Name, s.graph.Nodes[s.graph.Peer(h, 0).Node].Name
		s.fault(leaf, name, simlab.NewOneRETH(s.t, leaf+">"+name))
	}
}

// alternate has rank 0 send WRITEs of the given number of packets, all posted together, into two
// windows in turn, and every rank compare both windows with the expected bytes.
func (s *scene) alternate(mode rank.MRMode, writes, packets int) func(r *rank.Rank) error {
	size := packets * s.mtu
	return func(r *rank.Rank) error {
		g, first, err := r.NewWriteGroup("g", 0, mode, writes*size, rank.MemoryBytes)
		if err != nil {
			return err
		}
		windows := []*rank.Window{first}
		if mode != rank.MRRegistered {
			second, err := g.NewWindow(writes*size, rank.MemoryBytes)
			if err != nil {
				return err
			}
			windows = append(windows, second)
		}
		buf, err := r.Alloc(writes*size, rank.MemoryBytes)
		if err != nil {
			return err
		}
		buf.Fill(7, writes*size)
		r.Sync()
		if r.ID() == 0 {
			var reqs []*rank.Request
			for k := range writes {
				q, err := g.Write(windows[k%len(windows)], k*size, buf, k*size, size)
				if err != nil {
					return err
				}
				reqs = append(reqs, q)
			}
			if err := r.Wait(reqs...); err != nil {
				return err
			}
		}
		r.Sync()
		if r.ID() == 0 {
			return nil
		}
		for i, w := range windows {
			want := make([]byte, writes*size)
			for k := i; k < writes; k += len(windows) {
				prng.Fill(want[k*size:(k+1)*size], 7, uint64(k*size))
			}
			if !bytes.Equal(w.Bytes(), want) {
				return fmt.Errorf("rank %d: wrong bytes in window %d", r.ID(), i)
			}
		}
		return nil
	}
}

// isAnnouncement reports whether a frame announces regions, isWrite whether it is another
// WRITE's first packet.
func isAnnouncement(f *wire.Frame) bool { return isRETH(f) && f.RETH().VA == wire.MRUpdateVA }

func isWrite(f *wire.Frame) bool { return isRETH(f) && f.RETH().VA != wire.MRUpdateVA }

func isRETH(f *wire.Frame) bool { return simlab.IsData(f) && f.OpCode().Info().RETH }

// TestReceiverPausesGroups (FLT-12): a receiver pauses. Two groups with the same source, and so with the ingress
// port in common, halt until it is over and then complete, or, when that takes longer than
// any retry, end in bounded time; nothing is dropped, and hosts that have nothing to do
// with it talk on.
func TestReceiverPausesGroups(t *testing.T) {
	const bound = 9 * 4 * 1049 * vtime.Microsecond // (retries + 1) x 4 x timeout of code 8, and one more
	for _, hold := range []vtime.Duration{300 * vtime.Microsecond, 3 * vtime.Millisecond, 60 * vtime.Millisecond} {
		g, err := topo.Star(6, simlab.Link())
		s := newScene(t, g, err)
		s.mtu, s.ack, s.xoff = 4096, 16, 64<<10
		start := vtime.Time(200 * vtime.Microsecond)
		for _, step := range simlab.PauseSteps(start, start.Add(hold), 100*vtime.Microsecond) {
			s.build().At(step.At, func(vtime.Time) { s.net.Pause(3, 1<<3, step.Quanta) })
		}
		const size = 4 << 20
		var ended, talked vtime.Time
		var result [2]error
		err = s.job(func(r *rank.Rank) error {
			var groups [2]*rank.Group
			for i := range groups {
				var err error
				if groups[i], err = r.NewGroup(fmt.Sprint(i), 0); err != nil {
					return err
				}
			}
			buf, err := r.Alloc(size, rank.MemoryBytes)
			if err != nil {
				return err
			}
			var reqs []*rank.Request
			for _, g := range groups {
				post := g.Recv
				if r.ID() == 0 {
					r.Sleep(start.Sub(r.Now()) - 20*vtime.Microsecond)
					post = g.Send
				}
				q, err := post(buf, 0, size)
				if err != nil {
					return err
				}
				reqs = append(reqs, q)
			}
			switch r.ID() {
			case 0:
				for i, q := range reqs {
					result[i] = r.Wait(q)
				}
				ended = r.Now()
			case 4, 5:
				if err := talk(r, 9-r.ID(), start.Add(50*vtime.Microsecond)); err != nil {
					return err
				}
				talked = max(talked, r.Now())
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		over := start.Add(hold)
		if talked == 0 || talked >= over {
			t.Errorf("pause of %v: the others were done at %v, not before its end at %v", hold, talked, over)
		}
		if d := s.sw("leaf0").Stats().Dropped(); d != 0 {
			t.Errorf("pause of %v: %d frames dropped", hold, d)
		}
		if hold < 10*vtime.Millisecond {
			if result != [2]error{} || ended < over {
				t.Errorf("pause of %v: both groups ended at %v with %v, want success after %v", hold, ended, result, over)
			}
			continue
		}
		for _, err := range result {
			if err == nil || !strings.Contains(err.Error(), virtrnic.WCRetryExcErr.String()) || ended > start.Add(bound) {
				t.Errorf("pause of %v: a group ended at %v with %v, want %v by %v", hold, ended, err, virtrnic.WCRetryExcErr, start.Add(bound))
			}
		}
	}
}

// talk exchanges a message with a peer from an instant on.
func talk(r *rank.Rank, peer int, from vtime.Time) error {
	c, err := r.Connect(peer)
	if err != nil {
		return err
	}
	buf, err := r.Alloc(256<<10, rank.MemoryBytes)
	if err != nil {
		return err
	}
	in, err := c.Recv(buf, 0, 128<<10)
	if err != nil {
		return err
	}
	r.Sleep(from.Sub(r.Now()))
	out, err := c.Send(buf, 128<<10, 128<<10)
	if err != nil {
		return err
	}
	return r.Wait(in, out)
}

// TestNoRoomForRegions (FLT-16): tables with regions take more memory; a switch that lacks it refuses
// the group to all members and keeps nothing of it.
func TestNoRoomForRegions(t *testing.T) {
	s := starScene(t)
	s.groups = 1
	refused := 0
	err := s.job(func(r *rank.Rank) error {
		_, _, err := r.NewWriteGroup("large", 0, rank.MRRegistered, 4096, rank.MemoryBytes)
		if !errors.Is(err, rank.ErrGroup) || !strings.Contains(err.Error(), "no room") {
			return fmt.Errorf("rank %d: %w", r.ID(), err)
		}
		refused++
		r.Sync()
		_, _, err = r.NewWriteGroup("small", 0, rank.MRShared, 4096, rank.MemoryBytes)
		return err
	})
	if err != nil || refused != 4 {
		t.Errorf("%d of 4 members were refused: %v", refused, err)
	}
	if n := len(s.sw("leaf0").Groups()); n != 1 {
		t.Errorf("%d groups are installed, want the one without regions", n)
	}
}

// TestWrongKeyAtOneReceiver (FLT-18): WRITEs with a region of its own at every receiver, in all modes: a key that is
// wrong at one of them reaches the sender as a fatal NAK and nothing lands there.
func TestWrongKeyAtOneReceiver(t *testing.T) {
	for _, mode := range simlab.MRModes() {
		t.Run(string(mode)+"/regions", func(t *testing.T) {
			g, err := figureTree()
			s := newScene(t, g, err)
			s.watchRETHs()
			if err := s.job(s.alternate(mode, 6, 3)); err != nil {
				t.Fatal(err)
			}
			s.wantTimeouts("S", 0)
		})
		t.Run(string(mode)+"/wrong key", func(t *testing.T) {
			g, err := figureTree()
			s := newScene(t, g, err)
			var result error
			err = s.job(func(r *rank.Rank) error {
				r.Survive()
				g, w, err := r.NewWriteGroup("g", 0, mode, 3*s.mtu, rank.MemoryBytes)
				if err != nil {
					return err
				}
				if r.ID() == 2 { // its key is known everywhere, and worth nothing now
					if err := w.Free(); err != nil {
						return err
					}
				}
				buf, err := r.Alloc(3*s.mtu, rank.MemoryBytes)
				if err != nil {
					return err
				}
				buf.Fill(7, 3*s.mtu)
				r.Sync()
				if r.ID() == 0 {
					q, err := g.Write(w, 0, buf, 0, 3*s.mtu)
					if err != nil {
						return err
					}
					result = r.Wait(q)
				}
				r.Sync()
				if r.ID() == 2 && !bytes.Equal(w.Bytes(), make([]byte, 3*s.mtu)) {
					return fmt.Errorf("rank 2: something landed")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if result == nil || !strings.Contains(result.Error(), virtrnic.WCRemAccessErr.String()) {
				t.Errorf("the sender was told %v, want %v", result, virtrnic.WCRemAccessErr)
			}
		})
	}
}

// TestGroupWritesElsewhere: the modes work under the papers' literal rules, which have no
// ACTIVATE, and Gleam's no filter, and through an accelerator beside the switch.
func TestGroupWritesElsewhere(t *testing.T) {
	for _, mode := range simlab.MRModes() {
		for _, rules := range []virtswitch.Rules{virtswitch.RulesCepheus(), virtswitch.RulesGleam()} {
			g, err := figureTree()
			s := newScene(t, g, err)
			s.rules = rules
			s.lose("L3", "R2", simlab.IsData, 5)
			if rules.FilterRetransmits { // else members that have a WRITE get it again, and look only at its PSN
				s.watchRETHs()
			}
			if err := s.job(s.alternate(mode, 6, 3)); err != nil {
				t.Errorf("%s, %+v: %v", mode, rules, err)
			}
		}
		s := starScene(t)
		s.aside = virtswitch.LookAsideConfig{Links: 4, Rate: 100e9, Delay: 300 * vtime.Nanosecond}
		s.lose("leaf0", "h2", simlab.IsData, 5)
		s.watchRETHs()
		if err := s.job(s.alternate(mode, 6, 3)); err != nil {
			t.Errorf("%s, accelerator: %v", mode, err)
		}
	}
}

// TestRegionUpdateLost (FLT-18): an announcement that is lost, on any link of the tree, or that changes
// places with its WRITE, before the leaf and again behind it: the WRITE must not land where
// the one before did. Lost registrations of new regions are repeated before anyone WRITEs.
func TestRegionUpdateLost(t *testing.T) {
	links := [][2]string{{"S", "L1"}, {"L1", "S1"}, {"S1", "L2"}, {"S1", "C2"}, {"C2", "S3"}, {"S3", "L3"}, {"L3", "R2"}, {"L2", "R1"}}
	for _, l := range links {
		for _, which := range []int{1, 2, 3} {
			g, err := figureTree()
			s := newScene(t, g, err)
			s.watchRETHs()
			lost := s.lose(l[0], l[1], func(f *wire.Frame) bool { // at a member it has the member's address
				return isRETH(f) && f.PSN() == wire.PSN(4*which-4)
			}, 1)
			if err := s.job(s.alternate(rank.MRPerRequest, 4, 3)); err != nil {
				t.Errorf("announcement %d lost on %v: %v", which, l, err)
			}
			if lost.Seen < 2 {
				t.Errorf("announcement %d came %d times over %v, want it lost and again", which, lost.Seen, l)
			}
		}
	}
	s := starScene(t)
	s.watchRETHs()
	s.fault("h0", "leaf0", &once{match: withPSN(isAnnouncement, 2), d: 3 * vtime.Microsecond})
	s.fault("leaf0", "h1", &once{match: withPSN(isWrite, 3), d: 6 * vtime.Microsecond})
	if err := s.job(s.alternate(rank.MRPerRequest, 4, 1)); err != nil {
		t.Errorf("places changed twice: %v", err)
	}
	if n := s.sw("leaf0").Stats().Drops[virtswitch.DropNoRegion]; n == 0 {
		t.Error("no WRITE came before its announcement")
	}
	s = starScene(t)
	s.retry = 100 * vtime.Microsecond
	mrp := s.lose("leaf0", "h2", simlab.IsMRP, 1, 3)
	err := s.job(func(r *rank.Rank) error {
		g, _, err := r.NewWriteGroup("g", 0, rank.MRRegistered, 100, rank.MemoryBytes)
		if err != nil {
			return err
		}
		w, err := g.NewWindow(100, rank.MemoryBytes)
		if err != nil {
			return err
		}
		if r.ID() == 0 {
			w.Fill(3, 100)
			q, err := g.Write(w, 0, w.Buffer, 0, 100)
			if err != nil {
				return err
			}
			if err := r.Wait(q); err != nil {
				return err
			}
		}
		r.Sync()
		if ok, _ := w.Check(3, 100, rank.Digest{}); !ok {
			return fmt.Errorf("rank %d: wrong bytes", r.ID())
		}
		return nil
	})
	if err != nil || mrp.Seen < 4 {
		t.Errorf("%d registrations came: %v", mrp.Seen, err)
	}
}

// once holds the first frame that matches back.
type once struct {
	match func(*wire.Frame) bool
	d     vtime.Duration
	done  bool
}

// Arrive implements faults.Link.
func (o *once) Arrive(_ vtime.Time, f *wire.Frame) faults.Verdict {
	if o.done || !o.match(f) {
		return faults.Verdict{}
	}
	o.done = true
	return faults.Verdict{Delay: o.d}
}

// TestWriteRepeatedAfterNextRegion (FLT-22): WRITEs outstanding with regions announced for each, any packet of the first
// lost at one receiver only, its first above all: it comes again after the leaf has learnt
// where the second goes, and must land where the first one should.
func TestWriteRepeatedAfterNextRegion(t *testing.T) {
	for _, psn := range []wire.PSN{0, 0xfffffe, 0x7ffffe} {
		for k := range 8 { // announcement and three packets, twice
			s := starScene(t)
			s.psn = psn
			s.watchRETHs()
			lost := s.lose("leaf0", "h2", withPSN(simlab.IsData, psn.Add(k)), 1)
			if err := s.job(s.alternate(rank.MRPerRequest, 2, 3)); err != nil {
				t.Errorf("packet %d from PSN %v on: %v", k, psn, err)
			}
			if lost.Seen < 2 {
				t.Errorf("packet %d came %d times, want it lost and again", k, lost.Seen)
			}
			s.wantNoDuplicates("h1", "h3")
		}
	}
}

// TestMostCongestedHeard (FLT-19): several receivers notify of congestion. The source gets the CNPs of the most
// congested path, at its rate; when congestion moves, those of the other; when that receiver falls silent, those
// of the next. The tree has several switches, each of which chooses for itself.
func TestMostCongestedHeard(t *testing.T) {
	g, err := topo.FatTree(4, simlab.Link())
	s := newScene(t, g, err)
	s.cnps = 50 * vtime.Microsecond
	heard := &arrivals{match: func(f *wire.Frame) bool { return f.Kind() == wire.KindRoCE && f.OpCode() == wire.OpCNP }}
	s.fault("leaf0", "h0", heard)
	us := func(n int) vtime.Time { return vtime.Time(n) * vtime.Time(vtime.Microsecond) }
	// Host, every so many us, from, until: each of three phases has its worst path.
	plan := []struct{ host, every, from, until int }{
		{9, 1, 1000, 2000}, {1, 7, 1000, 4000}, {4, 11, 1000, 2000},
		{4, 1, 2000, 3000}, {9, 9, 2000, 3000},
	}
	err = s.job(func(r *rank.Rank) error {
		g, err := r.NewGroup("g", 0)
		if err != nil {
			return err
		}
		for _, p := range plan {
			if p.host != r.ID() {
				continue
			}
			for at := p.from; at < p.until; at += p.every {
				s.net.At(us(at), func(now vtime.Time) { s.net.NIC(p.host).SendFrame(now, s.cnp(p.host, g.McstID())) })
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.net.Drain(); err != nil {
		t.Fatal(err)
	}
	// The first 300 us of a phase are left for the counts to halve away.
	for _, c := range []struct{ from, until, want int }{{1300, 2000, 700}, {2300, 3000, 700}, {3300, 4000, 100}} {
		got := heard.between(us(c.from), us(c.until))
		if got < c.want*95/100 || got > c.want*105/100 {
			t.Errorf("from %d to %d us the source heard %d notifications, want about %d: those of one path", c.from, c.until, got, c.want)
		}
	}
	if n := s.nic("h0").Drops[virtrnic.DropPeer] + s.nic("h0").Drops[virtrnic.DropNoQP]; n != 0 {
		t.Errorf("%d were not addressed to the source's connection", n)
	}
}

// cnp builds a congestion notification of a member to its group.
func (s *scene) cnp(host int, id uint32) *wire.Frame {
	e := wire.NewEnvelope(wire.Flow{
		SrcMAC: wire.HostMAC(s.graph.Nodes[host].IP), DstMAC: wire.GroupMAC(id), Src: s.graph.Nodes[host].IP, Dst: id,
		TTL: 64, SrcPort: 1, DstPort: wire.PortRoCEv2, Traffic: 48 << 2,
	})
	f := s.net.Pool().Get()
	f.Start(&e, wire.BTH{OpCode: wire.OpCNP, PKey: wire.PKeyDefault, DestQP: wire.QPNGSI})
	f.Seal(1, false)
	return f
}

// arrivals notes when frames that match arrive.
type arrivals struct {
	match func(*wire.Frame) bool
	at    []vtime.Time
}

// Arrive implements faults.Link.
func (a *arrivals) Arrive(now vtime.Time, f *wire.Frame) faults.Verdict {
	if a.match(f) {
		a.at = append(a.at, now)
	}
	return faults.Verdict{}
}

func (a *arrivals) between(from, until vtime.Time) int {
	i, _ := slices.BinarySearch(a.at, from)
	j, _ := slices.BinarySearch(a.at, until)
	return j - i
}
