package lab

import (
	"fmt"
	"slices"

	"github.com/mcastlab/mcastlab/apps/storage"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/vtime"
)

// Storage is the replicated write service. Keys that fio has are called as there.
type Storage struct {
	Label      string        `yaml:"label" doc:"name in reports" default:"storage"`
	Ranks      Hosts         `yaml:"ranks" doc:"hosts that take part: all, or names, patterns and ranges" default:"all"`
	Client     string        `yaml:"client" doc:"host that writes, the others being replicas; default: the first rank"`
	Schemes    []string      `yaml:"schemes" doc:"how a block gets to the replicas: 1-unicast, to the first alone; unicasts, a WRITE to each; multicast-per-request, multicast-registered, multicast-shared: one WRITE to all (docs/writes.md)" required:"true"`
	BS         []Size        `yaml:"bs" doc:"sizes of a block" required:"true"`
	IODepth    int           `yaml:"iodepth" doc:"IOs that a job has under way" default:"1"`
	NumJobs    int           `yaml:"numjobs" doc:"threads of the client, each with connections, log and volume of its own" default:"1"`
	RW         string        `yaml:"rw" doc:"write: blocks in order, over and over; randwrite: at random" default:"write" enum:"write,randwrite"`
	Size       Size          `yaml:"size" doc:"volume of a job" default:"4MiB"`
	IOs        int           `yaml:"number-ios" doc:"IOs of each job; 0: each block of the volume once" default:"0"`
	Durability string        `yaml:"durability" doc:"when an IO has ended: memory, all replicas have acknowledged it; fsync, all have said that it is in their store" default:"memory" enum:"memory,fsync"`
	OnFailure  string        `yaml:"on-failure" doc:"when a replica fails: stop, with an error; degrade, go on with the others" default:"stop" enum:"stop,degrade"`
	Commit     Duration      `yaml:"commit" doc:"what a group commit of a store takes on the event clock; running labs take the time they take" default:"20us"`
	Submit     Duration      `yaml:"submit" doc:"what an IO takes on the client before its first copy is posted" default:"0"`
	Copy       Duration      `yaml:"copy" doc:"more of that for each copy beyond the first" default:"0"`
	Complete   Duration      `yaml:"complete" doc:"and after its last acknowledgement or notice" default:"0"`
	Disk       *Size         `yaml:"disk" doc:"what the store of a replica may take up; default: no limit"`
	Crash      *StorageCrash `yaml:"crash" doc:"a replica that fails, and comes back when the IOs have ended"`
}

// StorageCrash is a replica that fails.
type StorageCrash struct {
	Host  string   `yaml:"host" doc:"replica" required:"true"`
	After Duration `yaml:"after" doc:"when, from the beginning of the IOs" default:"0"`
}

// Program returns the parameters of the benchmark's program without its seed, and the
// hosts of its ranks.
func (s *Storage) Program(g *topo.Graph) (storage.Params, []int) {
	hosts := s.Ranks.Resolve(g)
	p := storage.Params{
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
			p.Crash = &storage.Crash{Rank: i, After: vtime.Duration(s.Crash.After)}
		}
	}
	return p, hosts
}

// check verifies the benchmark.
func (s *Storage) check(c *checking, p string) {
	c.checkLabel(p, s.Label)
	ranks := c.checkRanks(p, "a client with its replicas", s.Ranks)
	if c.err != nil {
		return
	}
	for _, r := range ranks {
		if n := c.g.Nodes[r].Name; c.l.ExternalHost(n) != nil {
			c.failf(p+".ranks", "%s is external and runs no program: name other ranks", n)
		}
	}
	if s.Client == "" {
		s.Client = c.g.Nodes[ranks[0]].Name
	}
	c.storageHost(p+".client", s.Client, ranks)
	for i, name := range s.Schemes {
		at := fmt.Sprintf("%s.schemes[%d]", p, i)
		switch {
		case !slices.Contains(storage.Schemes(), name):
			c.failf(at, "no storage scheme %q%s", name, suggest(name, storage.Schemes()))
		case slices.Index(s.Schemes, name) < i:
			c.failf(at, "scheme %s is there twice", name)
		}
	}
	for i, bs := range s.BS {
		at := fmt.Sprintf("%s.bs[%d]", p, i)
		switch {
		case bs < 1:
			c.failf(at, "a bs of %v: a block has at least one byte", bs)
		case bs > s.Size:
			c.failf(at, "a bs of %v does not fit a size of %v", bs, s.Size)
		case slices.Index(s.BS, bs) < i:
			c.failf(at, "bs %v is there twice", bs)
		}
	}
	if s.Crash != nil {
		if c.storageHost(p+".crash.host", s.Crash.Host, ranks); s.Crash.Host == s.Client {
			c.failf(p+".crash.host", "%s is the client: name a replica", s.Crash.Host)
		}
	}
	if c.err != nil {
		return
	}
	c.checkSecond(p+".commit", s.Commit)
	c.checkSecond(p+".submit", s.Submit)
	c.checkSecond(p+".copy", s.Copy)
	c.checkSecond(p+".complete", s.Complete)
	params, _ := s.Program(c.g)
	if err := params.Check(len(ranks)); err != nil {
		c.failf(p, "%s: %v", p, err)
	}
}

// storageHost makes sure that a host is one of the ranks.
func (c *checking) storageHost(p, name string, ranks []int) {
	node, ok := c.g.Find(name)
	if !ok || node >= c.g.Hosts {
		c.failf(p, "there is no host %q%s", name, suggest(name, c.hostNames()))
	} else if !slices.Contains(ranks, node) {
		c.failf(p, "%s is not among the ranks", name)
	}
}

// Keeps returns the names of the hosts that keep something when they die: replicas with a
// store.
func (l *Lab) Keeps(g *topo.Graph) (names []string) {
	for i := range l.Workloads {
		s := l.Workloads[i].Storage
		if s == nil || s.Durability != storage.Fsync {
			continue
		}
		for _, h := range s.Ranks.Resolve(g) {
			if n := g.Nodes[h].Name; n != s.Client && !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}
