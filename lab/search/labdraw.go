// SPDX-License-Identifier: Apache-2.0

package search

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps/registry"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/faults"
	"github.com/mcastlab/mcastlab/lab"
	"github.com/mcastlab/mcastlab/lab/labspec"
	"github.com/mcastlab/mcastlab/rank/collective"
)

// labDraw draws a lab file: all keys that package lab has, found by reflection, so that a new key is
// drawn without being listed here. The lists have the facts that the file's types lack: names that must
// exist, values that would take too long, and the edges.
type labDraw struct {
	r        prng.Stream
	g        *topo.Graph
	instants []vtime.Duration // of faults: several begin or end at one of them
	size     int              // messages are about so large
	wide     bool             // see wideFrom
	unlike   bool             // see Unlike
	tiers    map[string]bool  // of links, that there are; nil: any
}

// Seeds from wideFrom on draw labs that give every other key of links, switches and NICs, on all topologies, also those without a switch:
// few keys together are not enough for the interactions of some. Those from Unlike on draw labs whose links are unlike, and which run in
// containers in virtual time, too. Seeds below draw the same labs as ever.
const (
	wideFrom = 8_000_000
	Unlike   = 9_000_000
)

// markOnArrival is a key that is younger than most seeds that are on record. Its draws come from a stream of their own, so
// that the other keys of a seed stay as they were.
const markOnArrival = ".switches.ecn.on-arrival"

// drawsMax bounds the number of files that are drawn for one that the checks accept; they accept fewer of those
// with many keys.
const drawsMax = 60

// DrawLab returns the lab that Labs tries with a seed.
func DrawLab(seed uint64) (*lab.Lab, error) {
	l, _, err := drawLab(seed)
	return l, err
}

// drawLab returns the lab of a seed, and the sketch it was made of.
func drawLab(seed uint64) (l *lab.Lab, s *sketch, err error) {
	root := prng.New(seed)
	for i := range drawsMax {
		d := &labDraw{r: root.Derive(fmt.Sprint("lab/", i))}
		if s, err = d.lab(seed); err != nil {
			continue
		}
		if l, err = s.mend(); err == nil && len(l.Workloads) > 0 {
			if err = errors.Join(settleDeadlock(l), settleWrites(l), settlePauses(l)); err == nil {
				return l, s, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("seed %d draws no valid lab: %w", seed, err)
}

// settleDeadlock refuses a lab whose buffer dependencies can deadlock: its deadlock would be no
// finding.
func settleDeadlock(l *lab.Lab) error {
	g, err := labspec.Graph(l)
	if err != nil || !l.Switches.PFC.Enabled {
		return err
	}
	return g.CheckDeadlock(g.Routes())
}

// writesMax bounds the WRITEs of a drawn lab: a volume of many blocks of a byte takes
// millions of packet-hops, and nothing is wrong with that.
const writesMax = 50_000

// settleWrites refuses a lab whose storage workloads have more WRITEs.
func settleWrites(l *lab.Lab) error {
	g, err := labspec.Graph(l)
	if err != nil {
		return err
	}
	writes := 0
	for _, w := range l.Workloads {
		if s := w.Storage; s != nil {
			ios := s.IOs
			if ios == 0 {
				ios = int(s.Size / max(1, slices.Max(s.BS)))
			}
			writes += ios * max(1, s.NumJobs) * len(s.BS) * len(s.Schemes) * g.Hosts
		}
	}
	if writes > writesMax {
		return fmt.Errorf("%d WRITEs take too long", writes)
	}
	return nil
}

// renewalsMax bounds how often a pause of a drawn lab is renewed while one packet leaves. A port of
// 100 Tb/s in front of one of 1 Mb/s renews its pause 200,000 times a packet, as 802.1Qbb has it.
const renewalsMax = 1000

const quantumBits = 512 // bit times of a pause quantum (802.1Qbb)

// settlePauses refuses a lab whose fastest link renews a pause more often while its slowest one
// sends a packet.
func settlePauses(l *lab.Lab) error {
	g, err := labspec.Graph(l)
	if err != nil || !l.Switches.PFC.Enabled || len(g.Links) == 0 {
		return err
	}
	slowest, fastest := g.Links[0].Rate, g.Links[0].Rate
	for i := range g.Links {
		slowest, fastest = min(slowest, g.Links[i].Rate), max(fastest, g.Links[i].Rate)
	}
	packet := float64(l.NICs.MTU) * 8 / float64(slowest)
	renewal := float64(l.Switches.PFC.Quanta) * quantumBits / 2 / float64(fastest)
	if packet > renewalsMax*renewal {
		return fmt.Errorf("pauses renewed every %.3g s where a packet takes %.3g s take too long", renewal, packet)
	}
	return nil
}

// lab draws the topology first: names come from it.
func (d *labDraw) lab(seed uint64) (*sketch, error) {
	d.wide, d.unlike = seed >= wideFrom && seed < Unlike, seed >= Unlike
	t := reflect.TypeFor[lab.Lab]()
	f, _ := t.FieldByName("Topology")
	shape := d.field(".topology", f.Type, "")
	shape.key, shape.required = "topology", true
	small := &sketch{kind: reflect.Struct, kids: []*sketch{{key: "name", text: "drawn", kind: reflect.String, required: true}, shape}}
	l, err := small.mend()
	if err != nil {
		return nil, err
	}
	if d.g, err = labspec.Graph(l); err != nil {
		return nil, err
	}
	if d.g.Hosts > hostsMax || d.unlike && len(d.g.Nodes) > nodesMax {
		return nil, fmt.Errorf("%d hosts of %d nodes take too long", d.g.Hosts, len(d.g.Nodes))
	}
	if d.unlike {
		d.tiers = tiersOf(d.g, slices.ContainsFunc(shape.kids, func(k *sketch) bool { return k.key == "leaf-spine" }))
	}
	for range 3 {
		d.instants = append(d.instants, d.span(1e-9, 1e-2))
	}
	d.size = []int{16, 4096, 65536}[d.r.IntN(3)]
	s := d.mapping("", t)
	s.kids = slices.DeleteFunc(s.kids, func(k *sketch) bool { return k.key == "topology" || k.key == "name" || k.key == "seed" })
	given := func(key, text string) *sketch {
		return &sketch{key: key, text: text, kind: reflect.String, required: true}
	}
	s.kids = append([]*sketch{given("name", fmt.Sprintf("lab%d", seed)), given("seed", fmt.Sprint(seed)), shape}, s.kids...)
	return s, nil
}

// Bounds of the drawn values, so that a lab takes a fraction of a second.
const (
	hostsMax = 24
	nodesMax = 20 // of labs that run in containers
)

// tiersOf returns the tiers of links that a topology has, as links.tiers calls them.
func tiersOf(g *topo.Graph, spines bool) map[string]bool {
	all := map[string]bool{}
	for i := range g.Links {
		a, b := g.Nodes[g.Links[i].A.Node].Tier, g.Nodes[g.Links[i].B.Node].Tier
		switch lo, hi := min(a, b), max(a, b); {
		case lo == topo.TierHost:
			all["host-leaf"] = true
		case lo == topo.TierLeaf && hi > lo && spines:
			all["leaf-spine"] = true
		case lo == topo.TierLeaf && hi > lo:
			all["leaf-agg"] = true
		case lo == topo.TierAgg && hi > lo:
			all["agg-core"] = true
		case lo >= topo.TierCore:
			all["core-core"] = true
		}
	}
	return all
}

// never reports whether a key is never drawn: keys that only running labs have, programs of the
// user's own, files beside the lab, and lines of expect.
func (d *labDraw) never(path string) bool {
	switch path {
	case ".hosts", ".runtime", ".controllers", ".expect", ".sweep", ".workloads[].program", ".workloads[].command", ".workloads[].hpl.dat",
		".faults[].control-partition", ".faults[].controller-crash":
		return true
	}
	switch path {
	case ".topology.three-layer.preset", ".topology.leaf-spine.preset": // hundreds of hosts
		return true
	}
	if d.unlike && (path == ".switches.flow-control" || path == ".trace") {
		return true // credits are for the event clock; and with a trace a simulation has the events of an instant as they came, not by node
	}
	if path == markOnArrival {
		return !d.wide && !d.unlike // the labs of smaller seeds stay as they were
	}
	return path == ".topology.custom.preset" || path == ".topology.leaf-spine.total" // others draw their own values
}

// left reports whether a key is left out in this lab.
func (d *labDraw) left(path string) bool {
	if tier, is := strings.CutPrefix(path, ".links.tiers."); is && d.tiers != nil && !strings.Contains(tier, ".") && !d.tiers[tier] {
		return true
	}
	return d.never(path) || strings.HasSuffix(path, ".label") && d.r.Chance(0.9)
}

// always reports whether a key is needed although it is optional in the schema.
func (d *labDraw) always(path string) bool {
	switch path {
	case ".topology.leaf-spine.leaves", ".topology.leaf-spine.spines", ".topology.leaf-spine.hosts":
		return true
	case ".workloads", ".workloads[].hpl.n", ".workloads[].hpl.grids", ".workloads[].hpl.bcast", ".workloads[].hpl.nb", ".workloads[].storage.size":
		return true
	case ".links", ".switches", ".nics":
		return d.r.Chance(0.6) || d.wide || d.unlike && path == ".links"
	case ".faults":
		return d.r.Chance(0.6) && !(d.wide && d.r.Chance(0.7)) // some keys go without faults alone
	case ".links.tiers":
		return d.unlike && len(d.tiers) > 0
	}
	if strings.HasPrefix(path, ".links.tiers.") {
		return d.unlike && d.r.Chance(0.8)
	}
	return strings.HasSuffix(path, ".iterations")
}

// most bounds the length of a list.
func (d *labDraw) most(path string) int {
	switch path {
	case ".faults":
		return 6
	case ".workloads[].hpl.n", ".workloads[].hpl.nb", ".workloads[].hpl.grids", ".workloads[].hpl.bcast", ".workloads[].hpl.nbmin", ".workloads[].hpl.ndiv":
		return 2
	case ".switches.scheduling", ".nics.scheduling":
		return 1
	}
	return 3
}

// special draws values that depend on others; nil: nothing special.
func (d *labDraw) special(path string) *sketch {
	switch path {
	case ".topology.custom":
		return d.custom()
	case ".topology.three-layer":
		return d.threeLayer()
	case ".workloads[].hpl.threshold": // below it results are not what they should be
		return scalar(d.some("16", "-1"))
	case ".switches.scheduling", ".nics.scheduling":
		s := &sketch{kind: reflect.Slice}
		for range 8 {
			s.kids = append(s.kids, scalar(fmt.Sprint(d.pick(0, 0, 1, 2, 255))))
		}
		return s
	}
	return nil
}

// threeLayer draws counts that fit each other: ports that hosts and lower switches leave go
// up in equal shares.
func (d *labDraw) threeLayer() *sketch {
	hosts, aggs, low, leaves := 1+d.r.IntN(3), 1+d.r.IntN(2), 1+d.r.IntN(2), 1+d.r.IntN(2)
	radix := hosts + aggs*low
	if leaves*low >= radix {
		leaves = 1
	}
	up, groups := radix-leaves*low, d.pick(1, aggs)
	pods := max(1, d.r.IntN(1+radix*groups/aggs)) // each agg has one link to each of its cores
	s := &sketch{kind: reflect.Struct}
	for _, x := range []struct {
		key string
		n   int
	}{{"radix", radix}, {"pods", pods}, {"leaves", leaves}, {"hosts", hosts}, {"aggs", aggs}, {"cores", up * groups}, {"core-groups", groups}} {
		s.kids = append(s.kids, &sketch{key: x.key, text: fmt.Sprint(x.n), kind: reflect.String, required: true})
	}
	return s
}

// custom draws a graph by hand: a tree of switches, a few links beside it, and hosts.
func (d *labDraw) custom() *sketch {
	list := func(key string, kids []*sketch) *sketch {
		return &sketch{key: key, kids: kids, kind: reflect.Slice, required: true}
	}
	if d.wide && d.r.Chance(0.5) {
		preset := &sketch{key: "preset", text: d.some("back-to-back", "back-to-back", "figtree"), kind: reflect.String, required: true}
		return &sketch{kind: reflect.Struct, kids: []*sketch{preset}}
	}
	var hosts, switches, links []*sketch
	join := func(a, b string) {
		if !d.r.Chance(0.2) && !(d.unlike && d.r.Chance(0.5)) {
			links = append(links, scalar(a+"-"+b))
			return
		}
		l := &sketch{kind: reflect.Struct, kids: []*sketch{{key: "ends", text: a + "-" + b, kind: reflect.String, required: true}}}
		for _, k := range []struct{ key, text string }{{"rate", d.rate()}, {"delay", d.duration(".links.delay").String()}} {
			if d.r.Chance(0.5) {
				l.kids = append(l.kids, &sketch{key: k.key, text: k.text, kind: reflect.String})
			}
		}
		links = append(links, l)
	}
	sw := func(i int) string { return fmt.Sprint("s", i) }
	n := 1 + d.r.IntN(5)
	for i := range n {
		switches = append(switches, scalar(sw(i)))
		if i > 0 {
			join(sw(d.r.IntN(i)), sw(i))
		}
	}
	for range d.r.IntN(4) {
		if a, b := d.r.IntN(n), d.r.IntN(n); a != b {
			join(sw(a), sw(b))
		}
	}
	for i := range 2 + d.r.IntN(6) {
		hosts = append(hosts, scalar(fmt.Sprint("n", i)))
		join(fmt.Sprint("n", i), sw(d.r.IntN(n)))
	}
	return &sketch{kind: reflect.Struct, kids: []*sketch{list("hosts", hosts), list("switches", switches), list("links", links)}}
}

// textual draws a value that reads itself from text.
func (d *labDraw) textual(path string, t reflect.Type) (text string, ok bool) {
	switch t {
	case reflect.TypeFor[lab.Rate]():
		return d.rate(), true
	case reflect.TypeFor[lab.Size]():
		return d.bytes(path), true
	case reflect.TypeFor[lab.Duration]():
		return d.duration(path).String(), true
	case reflect.TypeFor[lab.Timeout]():
		return d.some("infinite", "1ps", "4us", "64us", "1ms", "4ms", "67ms", "8000s", d.span(1e-6, 1).String()), true
	case reflect.TypeFor[lab.Retries]():
		return d.some("infinite", "0", "1", "6"), true
	case reflect.TypeFor[lab.Class]():
		return fmt.Sprint(d.r.IntN(64)), true
	case reflect.TypeFor[lab.Iterations]():
		return d.some("1", "1", "2", "3", "7"), true
	case reflect.TypeFor[lab.Count]():
		return d.some("ranks", "1", "2", "3", "64", "1048575"), true
	case reflect.TypeFor[lab.Share]():
		return d.some("all", "1", "2", "1%", "40%", "100%"), true
	case reflect.TypeFor[lab.Number]():
		return fmt.Sprint(d.pick(0, 1, 2, 17, 18, 1<<24-1, 1<<32-1)), true
	case reflect.TypeFor[lab.PSNs]():
		return d.some("0", "7", "0..100", "16777200..100", "16777215"), true
	case reflect.TypeFor[lab.Scheme]():
		names := schemesOf(path)
		if d.r.Chance(0.4) {
			return "", false // with parameters
		}
		return names[d.r.IntN(len(names))], true
	case reflect.TypeFor[lab.Hosts](), reflect.TypeFor[lab.Names]():
		return d.names(path), true
	}
	return "", false
}

// schemesOf returns the names of the schemes of a workload; of other paths, those of broadcasts.
func schemesOf(path string) []string {
	if below, ok := strings.CutPrefix(path, ".workloads[]."); ok {
		kind, rest, _ := strings.Cut(below, ".")
		if names := registry.SchemeNames(kind, rest); names != nil {
			return names
		}
	}
	return collective.Names()
}

func (d *labDraw) some(words ...string) string { return words[d.r.IntN(len(words))] }

func (d *labDraw) pick(numbers ...int) int { return numbers[d.r.IntN(len(numbers))] }

// span draws a span between two numbers of seconds, of all magnitudes alike.
func (d *labDraw) span(least, most float64) vtime.Duration {
	return vtime.Picoseconds(math.Exp(math.Log(least)+d.r.Float64()*math.Log(most/least)) * 1e12)
}

// duration draws a time: at the edges, or of any magnitude. Those of faults meet.
func (d *labDraw) duration(path string) vtime.Duration {
	if strings.HasPrefix(path, ".faults[]") && strings.Count(path, ".") == 2 && d.r.Chance(0.7) {
		at := d.instants[d.r.IntN(len(d.instants))]
		if strings.HasSuffix(path, ".at") || d.r.Chance(0.3) {
			return at
		}
		if to := d.instants[d.r.IntN(len(d.instants))]; to != at {
			return max(at, to) - min(at, to)
		}
	}
	if strings.Contains(path, ".flows[].") {
		return d.span(1e-12, 1e-4) // the bytes of a flow grow with it
	}
	if d.unlike && strings.HasPrefix(path, ".links.") {
		return d.span(1e-9, 1e-4)
	}
	switch d.r.IntN(10) {
	case 0:
		return vtime.Duration(d.r.IntN(3))
	case 1:
		return []vtime.Duration{vtime.Second, vtime.Second - 1, 35 * vtime.Second, vtime.SpanMax, vtime.SpanMax - 1}[d.r.IntN(5)]
	}
	return d.span(1e-12, 1e-3)
}

func (d *labDraw) rate() string {
	switch d.r.IntN(8) {
	case 0:
		return "1Mbps"
	case 1:
		return "100Tbps"
	case 2:
		return fmt.Sprintf("%dbps", int64(math.Pow(10, 6+8*d.r.Float64())))
	}
	return d.some("1Gbps", "10Gbps", "25Gbps", "100Gbps", "400Gbps")
}

// bytes draws a size. Messages are small, and around the sizes of packets.
func (d *labDraw) bytes(path string) string {
	if strings.HasPrefix(path, ".workloads[]") && !strings.HasSuffix(path, ".disk") {
		if strings.HasSuffix(path, ".size") { // of a volume
			return fmt.Sprintf("%dB", 1+d.r.IntN(4*d.size))
		}
		n := d.pick(0, 1, 2, 3, 4, 8, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 4*d.r.IntN(d.size), 4*d.r.IntN(d.size), d.r.IntN(d.size))
		if strings.HasSuffix(path, ".chunk") && d.size > 4096 && n < 64 {
			n *= 64 // messages of 256 KiB in packets of 2 bytes end, but take millions of packet-hops
		}
		return fmt.Sprintf("%dB", n)
	}
	if d.r.Chance(0.2) {
		return d.some("0B", "1B", "64KiB", "1TiB", "1024TiB")
	}
	return fmt.Sprintf("%dB", int64(math.Pow(2, 50*d.r.Float64())))
}

// basic draws a plain value.
func (d *labDraw) basic(path string, k reflect.Kind) string {
	key := path[strings.LastIndex(path, ".")+1:]
	switch k {
	case reflect.Bool:
		return d.some("true", "false")
	case reflect.Float64:
		return fmt.Sprint([]float64{0, 1, 0.5, 1e-9, 1e-300, 1e300, math.Pow(10, -4*d.r.Float64()), 100 * d.r.Float64()}[d.r.IntN(8)])
	case reflect.Int, reflect.Uint64:
		return fmt.Sprint(d.number(path, key))
	}
	return d.names(path)
}

// number draws a whole number: a small one for a key that makes work, any for the others.
func (d *labDraw) number(path, key string) int {
	switch {
	case strings.HasPrefix(path, ".topology"):
		return d.pick(1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 8)
	case key == "n[]":
		return d.pick(1, 2, 3, 7, 8, 16, 17, 33, 48)
	case key == "warm-up", key == "epochs", key == "number-ios", key == "iodepth", key == "numjobs":
		return d.pick(0, 1, 1, 2, 3, 5)
	case strings.HasPrefix(path, ".workloads[]"):
		return d.pick(0, 1, 2, 3, 4, 8, 31, 64, 100, 1024, 1<<31-1)
	}
	return d.pick(0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 63, 64, 255, 256, 1024, 4094, 65535, 1<<20, 1<<31-1)
}

// names draws the name of something that there is.
func (d *labDraw) names(path string) string {
	host := func() string { return d.g.Nodes[d.r.IntN(d.g.Hosts)].Name }
	sw := func() string { return d.g.Nodes[d.g.Hosts+d.r.IntN(d.g.Switches())].Name }
	if d.g.Switches() == 0 {
		sw = host
	}
	key := strings.TrimSuffix(path[strings.LastIndex(path, ".")+1:], "[]")
	switch key {
	case "root", "client", "host", "from", "node":
		return host()
	case "to":
		return d.some("group", host())
	case "ranks":
		if d.r.Chance(0.5) {
			return "all"
		}
		p := d.r.Perm(d.g.Hosts)
		words := []string{}
		for _, h := range p[:min(len(p), 2+d.r.IntN(4))] {
			words = append(words, d.g.Nodes[h].Name)
		}
		return "[" + strings.Join(words, ", ") + "]"
	case "nodes", "sender":
		return d.some(host(), sw(), sw(), "'h*'", "tier:leaf")
	case "links":
		return d.some("'*'", d.g.LinkName(d.r.IntN(len(d.g.Links))), d.g.LinkName(d.r.IntN(len(d.g.Links))))
	case "kind":
		return d.some(faults.Classes()...)
	case "opcode":
		return d.some("'RC_SEND_*'", "'*'", "RC_ACKNOWLEDGE")
	case "label", "name":
		if !strings.HasPrefix(path, ".labels") && key == "name" {
			break
		}
		return d.some("a", "b", "c")
	case "grids":
		return fmt.Sprintf("%dx%d", 1+d.r.IntN(3), 1+d.r.IntN(3))
	case "pfact", "rfact":
		return d.some("left", "crout", "right")
	}
	return d.some(schemesOf(path)...)
}
