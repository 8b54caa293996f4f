// SPDX-License-Identifier: Apache-2.0

// Package manycast is the many-to-many benchmark of the cyclic multicast paper (CYC-17, CYC-20).
// Sources drawn at random each send one message at the same time to a group drawn at random, which
// they share or which is their own. The messages travel by the paper's trees, by OpenSM's one tree
// per group, or by one unicast after the other. They are unreliable (UC) and may have many
// packets.
package manycast

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/rank/rankrun"
)

// Name is the workload's name in lab files and reports.
const Name = "many-to-many"

// Names of schemes.
const (
	Cyclic      = "cyclic"       // a tree per source, the union on its paths (CYC-11)
	CyclicClass = "cyclic-class" // a tree per group and class of sources (CYC-12)
	OpenSM      = "opensm"       // one tree per group (CYC-16)
	OpenSMDrawn = "opensm-drawn" // the same, with a root drawn from the equally good ones
	Unicast     = "unicast"      // one message per member, each on the source's path to it (CYC-17)
)

// Names returns the names of all schemes.
func Names() []string { return []string{Cyclic, CyclicClass, OpenSM, OpenSMDrawn, Unicast} }

// Scheme is a scheme of a report.
type Scheme struct {
	Label string `json:"label"` // name in reports
	Name  string `json:"name"`
}

// Params holds the benchmark's parameters. The ranks are all hosts of IBFT(M, N), by PID.
type Params struct {
	Workload   string          `json:"workload"` // label in reports
	M          int             `json:"m"`
	N          int             `json:"n"`
	Schemes    []Scheme        `json:"schemes"`
	Sizes      []int           `json:"sizes"`             // bytes
	Sources    int             `json:"sources"`           // number of hosts that send
	Members    int             `json:"members"`           // number of hosts of a group
	PerSource  bool            `json:"per_source"`        // each source has its own group
	Replace    int             `json:"replace,omitempty"` // members of a group that leave after each iteration, while as many others join; 0: sources and members are drawn again
	Iterations int             `json:"iterations"`        // each has its own sources and members
	Memory     rank.MemoryKind `json:"memory"`            // empty means auto
	Seed       uint64          `json:"seed"`
}

// memory returns the memory kind of buffers of a size.
func (p *Params) memory(size, ranks int) rank.MemoryKind {
	switch {
	case p.Memory != "":
		return p.Memory
	case size*(p.Sources+1)*ranks <= apps.RealMax:
		return rank.MemoryBytes
	}
	return rank.MemoryPhantom
}

// Draw returns the sources of an iteration and, by source, the members of the group to which it
// sends, all ascending. They are the same for all schemes and sizes.
func (p *Params) Draw(iteration, hosts int) (sources []int, groups [][]int) {
	if p.Replace > 0 {
		return p.replaced(iteration, hosts)
	}
	return p.draw(iteration, hosts)
}

func (p *Params) draw(iteration, hosts int) (sources []int, groups [][]int) {
	root := prng.New(p.Seed)
	s := root.Derive(fmt.Sprintf("draw/%d", iteration))
	pick := func(n int) []int {
		all := s.Perm(hosts)[:n]
		slices.Sort(all)
		return all
	}
	sources = pick(p.Sources)
	groups = make([][]int, len(sources))
	for i := range groups {
		if i > 0 && !p.PerSource {
			groups[i] = groups[0]
		} else {
			groups[i] = pick(p.Members)
		}
	}
	return sources, groups
}

// replaced is Draw for groups that persist: the first iteration is drawn, and after each one some members leave
// and others join (CYC-14).
func (p *Params) replaced(iteration, hosts int) (sources []int, groups [][]int) {
	sources, groups = p.draw(0, hosts)
	root := prng.New(p.Seed)
	for k := 1; k <= iteration; k++ {
		s := root.Derive(fmt.Sprintf("replace/%d", k))
		for i := range groups {
			if i > 0 && !p.PerSource {
				groups[i] = groups[0]
				continue
			}
			order := s.Perm(hosts)
			stay := slices.DeleteFunc(slices.Clone(order), func(h int) bool { return !slices.Contains(groups[i], h) })
			join := slices.DeleteFunc(order, func(h int) bool { return slices.Contains(groups[i], h) })
			groups[i] = slices.Concat(stay[p.Replace:], join[:p.Replace])
			slices.Sort(groups[i])
		}
	}
	return sources, groups
}

// root returns the function that draws the root of the tree of a source's group. The draw is the
// same for all sizes. It differs between iterations and, if each source has its own group, between
// groups.
func (p *Params) root(iteration, source int) func(roots int) int {
	root := prng.New(p.Seed)
	s := root.Derive(fmt.Sprintf("root/%d/%d", iteration, source))
	return s.IntN
}

// record holds a rank's measurements of one scheme at one size.
type record struct {
	apps.Cell
	Samples []sample `json:"samples"`
	Wrong   bool     `json:"wrong,omitempty"`   // a byte of a message was wrong, or an unexpected packet arrived
	Entries int      `json:"entries,omitempty"` // rank 0: entries in multicast tables, the most in any iteration
	Updates []int    `json:"updates,omitempty"` // rank 0: by iteration from the second on, entries that were set, changed or removed for it
}

// sample is one iteration on one rank. Times are picoseconds of lab time.
type sample struct {
	Start vtime.Time     `json:"start"`
	Last  vtime.Time     `json:"last"` // arrival of the last message
	Sent  vtime.Time     `json:"sent"` // start of the last packet that the rank sent
	Sum   vtime.Duration `json:"sum"`  // sum of the latencies of received messages
	Count int            `json:"count"`
}

// App is the benchmark. It implements apps.App.
type App struct {
	// Delivered, if set, is called on each member before its bytes are checked. Tests use it to
	// damage the bytes and see that the check fails.
	Delivered func(r *rank.Rank, b *rank.Buffer)
}

// Run implements apps.App.
func (a App) Run(r *rank.Rank, raw []byte) error {
	var p Params
	if err := apps.Read(Name, raw, &p); err != nil {
		return err
	}
	s, err := newSide(r, &p, a)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Workload, err)
	}
	for si := range p.Schemes {
		for zi := range p.Sizes {
			rec, err := s.runCell(apps.Cell{Scheme: si, Size: zi})
			if err != nil {
				return fmt.Errorf("%s %s: %w", p.Workload, p.Schemes[si].Label, err)
			}
			if err := apps.Emit(r, rec); err != nil {
				return err
			}
		}
	}
	return s.close()
}

// side is one rank's part of the benchmark.
type side struct {
	r       *rank.Rank
	p       *Params
	app     App
	tree    *topo.NTree
	tables  *tables                // rank 0 only, which fills them
	inlets  []rankrun.Inlet        // by source
	outlets map[int]rankrun.Outlet // by multicast LID or LID
	order   []int                  // keys of outlets in the order in which they were made
}

func newSide(r *rank.Rank, p *Params, a App) (*side, error) {
	t, err := topo.NewNTree(p.M, p.N)
	if err != nil {
		return nil, err
	}
	if _, err := t.LIDs(); err != nil {
		return nil, err
	}
	if r.Size() != t.Hosts() || p.Sources < 1 || p.Sources > r.Size() || p.Members < 1 || p.Members > r.Size() {
		return nil, fmt.Errorf("%d sources and %d members on %d ranks, IBFT(%d, %d) has %d hosts", p.Sources, p.Members, r.Size(), p.M, p.N, t.Hosts())
	}
	s := &side{r: r, p: p, app: a, tree: t, inlets: make([]rankrun.Inlet, r.Size()), outlets: map[int]rankrun.Outlet{}}
	if r.ID() == 0 {
		g, err := topo.MPortNTree(p.M, p.N, topo.LinkParams{Rate: 1e9})
		if err != nil {
			return nil, err
		}
		s.tables = &tables{side: s, graph: g, shared: map[int]*topo.SharedTree{}}
	}
	return s, nil
}

// mlid returns the multicast LID to which a source sends. Sources that share a tree share the LID.
// A tree with LIDs has at most 512 hosts, so that three times as many multicast LIDs fit.
func (s *side) mlid(scheme string, src int) int {
	hosts := s.r.Size()
	switch {
	case scheme == Cyclic:
		return topo.MLIDFirst + src
	case scheme == CyclicClass && s.p.PerSource:
		return topo.MLIDFirst + hosts + src
	case scheme == CyclicClass:
		return topo.MLIDFirst + hosts + s.tree.Class(src)
	case s.p.PerSource:
		return topo.MLIDFirst + 2*hosts + src
	}
	return topo.MLIDFirst + 2*hosts
}

func (s *side) runCell(c apps.Cell) (record, error) {
	r, p, size, scheme := s.r, s.p, s.p.Sizes[c.Size], s.p.Schemes[c.Scheme]
	rec := record{Cell: c}
	kind := p.memory(size, r.Size())
	room := p.Sources + 1
	if kind == rank.MemoryPhantom {
		room = 1
	}
	buf, err := r.Alloc(size*room, kind)
	if err != nil {
		return rec, err
	}
	unwanted := rankrun.Of(r).Unwanted()
	for i := range p.Iterations {
		if r.ID() == 0 {
			r.Report(fmt.Sprintf("%s %s, %d bytes, iteration %d of %d", p.Workload, scheme.Label, size, i+1, p.Iterations))
		}
		x := iteration{side: s, number: i, scheme: scheme.Name, size: size, buf: buf, seed: c.Seed(p.Seed, i)}
		x.sources, x.groups = p.Draw(i, r.Size())
		one, err := x.run()
		if err != nil {
			return rec, err
		}
		rec.Samples = append(rec.Samples, one)
		rec.Wrong = rec.Wrong || x.wrong
		rec.Entries = max(rec.Entries, x.entries)
		if r.ID() == 0 && i > 0 {
			rec.Updates = append(rec.Updates, x.updates)
		}
	}
	r.Sync() // until then a peer may still read from the buffer
	rec.Wrong = rec.Wrong || rankrun.Of(r).Unwanted() != unwanted
	return rec, buf.Free()
}

// inlet returns the inlet for the messages of a source.
func (s *side) inlet(src int) (rankrun.Inlet, error) {
	if s.inlets[src] != nil {
		return s.inlets[src], nil
	}
	in, err := rankrun.NewInlet(s.r, src)
	if err != nil {
		return nil, err
	}
	for _, scheme := range []string{Cyclic, CyclicClass, OpenSM} {
		if err := in.Attach(topo.MLIDAddress(s.mlid(scheme, src))); err != nil {
			return nil, err
		}
	}
	s.inlets[src] = in
	s.r.Put(inletKey(s.r.ID(), src), binary.BigEndian.AppendUint32(nil, uint32(in.QPN())))
	return in, nil
}

func inletKey(at, src int) string { return fmt.Sprintf("inlet/%d/%d", at, src) }

// outlet returns the outlet for messages to a LID or multicast LID.
func (s *side) outlet(lid int, ip uint32, qpn func() wire.QPN) (rankrun.Outlet, error) {
	if o := s.outlets[lid]; o != nil {
		return o, nil
	}
	o, err := rankrun.NewOutlet(s.r, ip, qpn())
	if err == nil {
		s.outlets[lid] = o
		s.order = append(s.order, lid)
	}
	return o, err
}

// close releases the inlets and outlets.
func (s *side) close() error {
	s.r.Sync()
	for _, in := range s.inlets {
		if in != nil {
			if err := in.Close(); err != nil {
				return err
			}
		}
	}
	for _, lid := range s.order {
		if err := s.outlets[lid].Close(); err != nil {
			return err
		}
	}
	if s.r.ID() == 0 {
		return rankrun.Of(s.r).SetBranches(nil)
	}
	return nil
}

// messageSeed returns the seed of the contents of a source's message.
func messageSeed(seed uint64, src int) uint64 { return prng.Mix(seed + uint64(src)) }

// holds reports whether a part of a buffer holds the message with the given seed.
func holds(part []byte, seed uint64) bool {
	want := make([]byte, len(part))
	prng.Fill(want, seed, 0)
	return bytes.Equal(want, part)
}
