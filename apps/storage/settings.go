// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

// Settings are the replicated write service in a lab file. Keys that fio has are called as
// there.
type Settings struct {
	Label      string           `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"storage"`
	Ranks      setting.Hosts    `yaml:"ranks" json:"ranks,omitzero" doc:"hosts that take part: all, or names, patterns and ranges" default:"all"`
	Client     string           `yaml:"client" json:"client,omitzero" doc:"host that writes; the others are replicas; default: the first rank"`
	Schemes    []string         `yaml:"schemes" json:"schemes,omitzero" doc:"how a block gets to the replicas: 1-unicast, to the first alone; unicasts, a WRITE to each; multicast-per-request, multicast-registered, multicast-shared: one WRITE to all (docs/writes.md)" required:"true"`
	BS         []setting.Size   `yaml:"bs" json:"bs,omitzero" doc:"sizes of a block" required:"true"`
	IODepth    int              `yaml:"iodepth" json:"iodepth,omitzero" doc:"IOs of a job in flight" default:"1"`
	NumJobs    int              `yaml:"numjobs" json:"numjobs,omitzero" doc:"threads of the client, each with connections, log and volume of its own" default:"1"`
	RW         string           `yaml:"rw" json:"rw,omitzero" doc:"write: sequential blocks, repeated; randwrite: random blocks" default:"write" enum:"write,randwrite"`
	Size       setting.Size     `yaml:"size" json:"size,omitzero" doc:"volume of a job" default:"4MiB"`
	IOs        int              `yaml:"number-ios" json:"numberIos,omitzero" doc:"IOs of each job; 0: each block of the volume once" default:"0"`
	Durability string           `yaml:"durability" json:"durability,omitzero" doc:"completion of an IO: memory, when all replicas have acknowledged it; fsync, when all have it in their store" default:"memory" enum:"memory,fsync"`
	OnFailure  string           `yaml:"on-failure" json:"onFailure,omitzero" doc:"when a replica fails: stop, with an error; degrade, continue with the others" default:"stop" enum:"stop,degrade"`
	Commit     setting.Duration `yaml:"commit" json:"commit,omitzero" doc:"time of a group commit of a store in simulations; in running labs it is the real one" default:"20us"`
	Submit     setting.Duration `yaml:"submit" json:"submit,omitzero" doc:"time of an IO on the client before its first copy is posted" default:"0"`
	Copy       setting.Duration `yaml:"copy" json:"copy,omitzero" doc:"extra time for each copy beyond the first" default:"0"`
	Complete   setting.Duration `yaml:"complete" json:"complete,omitzero" doc:"time of an IO on the client after its last acknowledgement or notice" default:"0"`
	Disk       *setting.Size    `yaml:"disk" json:"disk,omitzero" doc:"size limit of the store of a replica; default: none"`
	Crash      *StorageCrash    `yaml:"crash" json:"crash,omitzero" doc:"a replica that fails, and returns when the IOs have ended"`
}

// StorageCrash is a replica that fails.
type StorageCrash struct {
	Host  string           `yaml:"host" json:"host,omitzero" doc:"replica" required:"true"`
	After setting.Duration `yaml:"after" json:"after,omitzero" doc:"time of the failure, from the beginning of the IOs" default:"0"`
}

// params returns the parameters of the program without their seed, and the hosts of its
// ranks.
func (s *Settings) params(g *topo.Graph) (Params, []int) {
	hosts := s.Ranks.Resolve(g)
	p := Params{
		Workload: s.Label, Schemes: s.Schemes, Depth: s.IODepth, Jobs: s.NumJobs, Random: s.RW == "randwrite", Volume: int(s.Size), IOs: s.IOs,
		Durability: s.Durability, OnFailure: s.OnFailure, Commit: vtime.Duration(s.Commit),
		Submit: vtime.Duration(s.Submit), Copy: vtime.Duration(s.Copy), Complete: vtime.Duration(s.Complete),
	}
	for _, bs := range s.BS {
		p.Sizes = append(p.Sizes, int(bs))
	}
	if s.Disk != nil {
		p.Disk = int64(*s.Disk)
	}
	if p.IOs == 0 && len(s.BS) > 0 {
		p.IOs = int(s.Size / max(1, slices.Max(s.BS)))
	}
	for i, h := range hosts {
		if g.Nodes[h].Name == s.Client {
			p.Client = i
		}
		if s.Crash != nil && g.Nodes[h].Name == s.Crash.Host {
			p.Crash = &Crash{Rank: i, After: vtime.Duration(s.Crash.After)}
		}
	}
	return p, hosts
}

// Check implements apps.Kind.
func (s *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, s.Label)
	ranks := c.Ranks(p, "a client with its replicas", s.Ranks)
	if c.Failed() {
		return
	}
	c.NoneOutside(p, ranks)
	if s.Client == "" {
		s.Client = c.Graph.Nodes[ranks[0]].Name
	}
	c.Rank(p+".client", s.Client, ranks)
	for i, name := range s.Schemes {
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		switch {
		case !slices.Contains(Schemes(), name):
			c.Failf(at, "no storage scheme %q%s", name, setting.Suggest(name, Schemes()))
		case slices.Index(s.Schemes, name) < i:
			c.Failf(at, "scheme %s appears twice", name)
		}
		if _, multicast := mrMode(name); multicast {
			c.NeedsSwitch(at, name)
		}
	}
	for i, bs := range s.BS {
		at := fmt.Sprintf("%s.bs[%d]", p, i)
		switch {
		case bs < 1:
			c.Failf(at, "a bs of %v: a block has at least one byte", bs)
		case bs > s.Size:
			c.Failf(at, "a bs of %v does not fit a size of %v", bs, s.Size)
		case slices.Index(s.BS, bs) < i:
			c.Failf(at, "bs %v appears twice", bs)
		}
	}
	if s.Crash != nil {
		if c.Rank(p+".crash.host", s.Crash.Host, ranks); s.Crash.Host == s.Client {
			c.Failf(p+".crash.host", "%s is the client: name a replica", s.Crash.Host)
		}
	}
	if c.Failed() {
		return
	}
	c.Second(p+".commit", s.Commit)
	c.Second(p+".submit", s.Submit)
	c.Second(p+".copy", s.Copy)
	c.Second(p+".complete", s.Complete)
	params, _ := s.params(c.Graph)
	if err := params.Check(len(ranks)); err != nil {
		c.Failf(p, "%s: %v", p, err)
	}
}

// App implements apps.Kind.
func (*Settings) App(e apps.Env) apps.App { return App{Open: e.OpenStore, Clocked: e.Clocked} }

// Prepare implements apps.Kind: a step is a scheme at a block size.
func (s *Settings) Prepare(x *apps.Setup) (apps.Prepared, error) {
	p, hosts := s.params(x.Graph)
	p.Seed = x.Seed
	spare := make([]bool, len(hosts))
	for i := range spare {
		spare[i] = i != p.Client
	}
	return apps.Prepared{Input: p, Hosts: hosts, Steps: len(p.Schemes) * len(p.Sizes), Spare: spare}, nil
}

// Links implements apps.Kind: an IO goes there and back.
func (s *Settings) Links(g *topo.Graph, _ int, _ *apps.Row) int {
	client, _ := g.Find(s.Client)
	far := 0
	for _, h := range s.Ranks.Resolve(g) {
		far = max(far, g.Hops(client, h))
	}
	return 2 * far
}

// Only implements apps.Kind: a store has the blocks that the row left there.
func (s *Settings) Only(*apps.Row) apps.Kind { return nil }

// Keeps implements apps.Keeper: replicas with a store.
func (s *Settings) Keeps(g *topo.Graph) (names []string) {
	if s.Durability != Fsync {
		return nil
	}
	for _, h := range s.Ranks.Resolve(g) {
		if n := g.Nodes[h].Name; n != s.Client {
			names = append(names, n)
		}
	}
	return names
}

// SchemeNames implements apps.Schemed.
func (*Settings) SchemeNames(string) []string { return Schemes() }

// Quantities implements apps.Measurer.
func (*Settings) Quantities() map[string][]string {
	return map[string][]string{"io": {"iops", "replicas", "copied"}}
}
