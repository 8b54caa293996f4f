package lab

import (
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/collective"
	"github.com/mcastlab/mcastlab/rank"
	"github.com/mcastlab/mcastlab/topo"
	"github.com/mcastlab/mcastlab/virtswitch"
	"github.com/mcastlab/mcastlab/vtime"
)

// sizeMax is the largest message: what RoCE allows.
const sizeMax = Size(1) << 31

var (
	labName  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	nodeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,30}$`)
)

// NameOK says whether s may name a lab: what becomes a part of paths and names of
// containers is checked once, here.
func NameOK(s string) bool { return labName.MatchString(s) }

// LabelOK says whether s may be a label in reports, or name a program.
func LabelOK(s string) bool { return labelName.MatchString(s) }

// checking finds what no single value shows: choices that exclude each other, names
// that do not exist.
type checking struct {
	l   *Lab
	dir string // of the lab file
	at  map[string]pos
	// programs are those that workloads may name; nil: any.
	programs []string
	g        *topo.Graph
	err      *Error
}

// failf notes a mistake at a path, the first one only.
func (c *checking) failf(path, format string, args ...any) {
	if c.err != nil {
		return
	}
	c.err = &Error{Text: fmt.Sprintf(format, args...)}
	for {
		if p, ok := c.at[path]; ok {
			c.err.Line, c.err.Column = p.line, p.column
			return
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return
		}
		path = path[:i]
	}
}

// check verifies the whole file and fills in what depends on other values.
func (l *Lab) check(dir string, at map[string]pos, programs []string) error {
	c := &checking{l: l, dir: dir, at: at, programs: programs}
	for _, f := range []func(){
		c.checkName, c.checkEnums, c.checkTopology, c.checkControllers,
		c.checkSwitches, c.checkNICs, c.checkHosts, c.checkWorkloads, c.checkLabels, c.checkFaults, c.checkExpect,
	} {
		if f(); c.err != nil {
			return c.err
		}
	}
	return nil
}

func (c *checking) checkName() {
	switch {
	case c.l.Name == "":
		c.failf("", "the lab has no name: add name: my-lab")
	case !NameOK(c.l.Name):
		c.failf("name", "%q cannot name a lab: use a lower-case letter, then up to 39 lower-case letters, digits and hyphens", c.l.Name)
	}
}

// checkEnums verifies every value with an enum tag.
func (c *checking) checkEnums() { c.enums("", reflect.ValueOf(c.l).Elem()) }

func (c *checking) enums(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.enums(path, v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.enums(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			p := join(path, f.Tag.Get("yaml"))
			if enum := f.Tag.Get("enum"); enum != "" {
				c.enum(p, fmt.Sprint(v.Field(i).Interface()), strings.Split(enum, ","))
			}
			c.enums(p, v.Field(i))
		}
	}
}

func (c *checking) enum(path, got string, words []string) {
	if got != "" && !slices.Contains(words, got) {
		hint := suggest(got, words)
		if !strings.Contains(hint, "use ") {
			hint += " Use " + list(words)
		}
		c.failf(path, "%s cannot be %q%s", path, got, hint)
	}
}

func (c *checking) checkTopology() {
	t := &c.l.Topology
	shapes := 0
	for i, v := 0, reflect.ValueOf(*t); i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			shapes++
		}
	}
	if shapes != 1 {
		c.failf("topology", "topology has %d shapes, it needs one: %s", shapes, list(keysOf(reflect.TypeFor[Topology]())))
		return
	}
	if t.ThreeLayer != nil {
		t.ThreeLayer.fill()
	}
	if t.Custom != nil {
		c.checkNames("topology.custom.hosts", t.Custom.Hosts)
		c.checkNames("topology.custom.switches", t.Custom.Switches)
		if c.err != nil {
			return
		}
	}
	g, err := c.l.Graph()
	if err != nil {
		c.failf("topology", "topology: %v", err)
		return
	}
	c.g = g
	c.checkSecond("links.delay", c.l.Links.Delay)
	if t.Custom != nil {
		for i, l := range t.Custom.Links {
			if l.Delay != nil {
				c.checkSecond(fmt.Sprintf("topology.custom.links[%d].delay", i), *l.Delay)
			}
		}
	}
}

func (c *checking) checkNames(path string, names []string) {
	for i, n := range names {
		if !nodeName.MatchString(n) {
			c.failf(fmt.Sprintf("%s[%d]", path, i), "%q cannot name a node: use a letter, then up to 30 letters, digits, underscores and hyphens", n)
		}
	}
}

// fill takes over the preset's values for what is not given.
func (t *ThreeLayer) fill() {
	var p topo.ThreeLayerSpec
	switch t.Preset {
	case "ft1024":
		p = topo.FT1024()
	case "ft16384":
		p = topo.FT16384()
	}
	for _, f := range []struct {
		have *int
		want int
	}{
		{&t.Radix, p.Radix}, {&t.Pods, p.Pods}, {&t.Leaves, p.Leaves}, {&t.Hosts, p.Hosts},
		{&t.Aggs, p.Aggs}, {&t.Cores, p.Cores}, {&t.CoreGroups, p.CoreGroups},
	} {
		if *f.have == 0 {
			*f.have = f.want
		}
	}
}

func (c *checking) checkSwitches() {
	s := &c.l.Switches
	c.checkQueues()
	switch {
	case s.Groups < 1 || s.Groups > virtswitch.GroupsMax:
		c.failf("switches.groups", "switches.groups of %d is not 1 to %d", s.Groups, virtswitch.GroupsMax)
	case s.FanOut < 0:
		c.failf("switches.fan-out", "switches.fan-out of %d is negative", s.FanOut)
	case s.GroupAge != 0 && vtime.Duration(s.GroupAge) < vtime.Second:
		c.failf("switches.group-age", "switches.group-age of %v is below 1s, which a registration may take: use a longer time, or 0 for never", s.GroupAge)
	case s.PFC.XON != nil && s.PFC.XOFF != nil && *s.PFC.XON > *s.PFC.XOFF:
		c.failf("switches.pfc.xon", "switches.pfc.xon of %v is above xoff, %v", s.PFC.XON, s.PFC.XOFF)
	case s.Buffer < bufferMin:
		c.failf("switches.buffer", "switches.buffer of %v holds not even a few frames: use at least %v", s.Buffer, Size(bufferMin))
	}
	c.checkSecond("switches.reconverge", s.Reconverge)
	c.checkSecond("switches.latency", s.Latency)
	c.checkSecond("switches.feedback-delay", s.FeedbackDelay)
	if c.err == nil {
		c.checkBuffer()
	}
}

// checkSecond makes sure that a time is no more than a second: one that is spent by each
// packet, message or hop, so that what a message takes stays far within a run.
func (c *checking) checkSecond(path string, d Duration) {
	if vtime.Duration(d) > vtime.Second {
		c.failf(path, "%s of %v is more than a second", path, d)
	}
}

// bufferMin holds a handful of the largest frames.
const bufferMin = 64 << 10

// checkBuffer makes sure that thresholds and headroom fit the buffer of every switch.
func (c *checking) checkBuffer() {
	spec := c.l.Fabric(c.g)
	for i := c.g.Hosts; i < len(c.g.Nodes); i++ {
		need := spec.Reserved(i)
		if room := int(c.l.Switches.Buffer); need > room*15/16 {
			c.failf("switches.buffer",
				"switches.buffer of %v is too small: PFC on the %d ports of %s sets %d bytes aside; use a larger buffer, a smaller xoff, or pfc: false",
				c.l.Switches.Buffer, len(c.g.Nodes[i].Links), c.g.Nodes[i].Name, need)
			return
		}
		if xon, xoff := c.l.Switches.PFC.XON, spec.XOFF(i); xon != nil && int(*xon) > xoff {
			c.failf("switches.pfc.xon", "switches.pfc.xon of %v is above xoff, %d bytes by default on the %d ports of %s: use a smaller xon, or set xoff too",
				*xon, xoff, len(c.g.Nodes[i].Links), c.g.Nodes[i].Name)
			return
		}
	}
}

func (c *checking) checkNICs() {
	n := &c.l.NICs
	switch {
	case n.AckEvery < 1:
		c.failf("nics.ack-every", "nics.ack-every of %d is not 1 or more", n.AckEvery)
	case n.Window < 0:
		c.failf("nics.window", "nics.window of %d is negative; 0 is no limit", n.Window)
	case n.Window > 0 && n.Window < n.AckEvery:
		c.failf("nics.window", "nics.window of %d packets ends before the next acknowledgement is asked for (ack-every %d): use at least %d",
			n.Window, n.AckEvery, n.AckEvery)
	case n.Retries < 0 || n.Retries > 7:
		c.failf("nics.retries", "nics.retries of %d is not 0 to 7", n.Retries)
	case n.IRN != nil && n.Retransmit != "irn":
		c.failf("nics.irn", "nics.irn has no use with retransmit: %s: write retransmit: irn", n.Retransmit)
	case n.IRN != nil && (n.IRN.RTOLow <= 0 || n.IRN.RTOHigh < n.IRN.RTOLow):
		c.failf("nics.irn", "nics.irn: rto-low of %v and rto-high of %v: both are more than 0, and rto-high is no less", n.IRN.RTOLow, n.IRN.RTOHigh)
	case n.IRN != nil && n.IRN.Cap != nil && *n.IRN.Cap <= 0:
		c.failf("nics.irn.cap", "nics.irn.cap of %v lets nothing be sent", *n.IRN.Cap)
	case vtime.Duration(n.RNRTimer) > vtime.Second:
		c.failf("nics.rnr-timer", "nics.rnr-timer of %v is more than a second", n.RNRTimer)
	case n.ICRC == "flag" && !c.phantomOnly():
		c.failf("nics.icrc", "nics.icrc can be flag only where all workloads use memory: phantom")
	}
	if h := n.HostCost; h != nil {
		c.checkSecond("nics.host-cost.post", h.Post)
		c.checkSecond("nics.host-cost.poll", h.Poll)
		c.checkSecond("nics.host-cost.stack", h.Stack)
		c.checkSecond("nics.host-cost.connection", h.Connection)
		c.checkSecond("nics.host-cost.jitter", h.Jitter)
	}
}

func (c *checking) phantomOnly() bool {
	for _, w := range c.l.Workloads {
		_, kinds := w.given()
		for _, k := range kinds {
			memory := k.Elem().FieldByName("Memory")
			if costs := w.HPL != nil && w.HPL.CostOnly; !costs && (!memory.IsValid() || memory.String() != string(rank.MemoryPhantom)) {
				return false
			}
		}
	}
	return true
}

func (c *checking) checkWorkloads() {
	labels := map[string]bool{}
	for i, w := range c.l.Workloads {
		p := fmt.Sprintf("workloads[%d]", i)
		keys, kinds := w.given()
		if len(kinds) != 1 {
			c.failf(p, "a workload needs one kind: %s", list(keysOf(reflect.TypeFor[Workload]())))
			return
		}
		p += "." + keys[0]
		kinds[0].Interface().(checked).check(c, p)
		if labels[w.Label()] {
			c.failf(p+".label", "two workloads are called %q: give one of them a label of its own", w.Label())
		}
		labels[w.Label()] = true
	}
}

const badLabel = "%q cannot be a label: use a letter, then up to 39 letters, digits, underscores and hyphens"

var labelName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,39}$`)

func (b *Bcast) check(c *checking, p string) {
	c.checkLabel(p, b.Label)
	ranks := c.checkRanks(p, "a broadcast", b.Ranks)
	if c.err != nil {
		return
	}
	c.checkSizes(p, b.Sizes, b.WarmUp, 1)
	c.checkSchemes(p, broadcasts(), b.Schemes, b.Sizes)
	for i, s := range b.Schemes {
		if b.Memory == string(rank.MemoryHashed) && !collective.TakesHashed(s.Name) {
			c.failf(p+".memory", "%s writes parts of what is lost twice, which hashed memory cannot take: use bytes or phantom, or leave scheme %d out", s.Name, i)
		}
	}
	if b.Root == "" {
		b.Root = c.g.Nodes[ranks[0]].Name
	}
	root, ok := c.g.Find(b.Root)
	if !ok || root >= c.g.Hosts {
		c.failf(p+".root", "there is no host %q%s", b.Root, suggest(b.Root, c.hostNames()))
	} else if !slices.Contains(ranks, root) {
		c.failf(p+".root", "root %s is not among the ranks", b.Root)
	}
	if c.err == nil {
		c.checkExternalRanks(p, b, ranks)
	}
}

func (c *checking) hostNames() (names []string) {
	for i := range c.g.Hosts {
		names = append(names, c.g.Nodes[i].Name)
	}
	return names
}

// checkRanks resolves the ranks of a workload.
func (c *checking) checkRanks(p, what string, names Hosts) []int {
	for i, want := range names {
		at := fmt.Sprintf("%s.ranks[%d]", p, i)
		if _, err := path.Match(want, ""); err != nil {
			c.failf(at, "%q is not a pattern: %v", want, err)
		} else if len(match(c.g, want)) == 0 {
			c.failf(at, "there is no host %q%s", want, suggest(want, c.hostNames()))
		}
	}
	ranks := names.Resolve(c.g)
	if c.err == nil && len(ranks) < 2 {
		c.failf(p+".ranks", "a group of %d: %s needs at least two ranks", len(ranks), what)
	}
	return ranks
}

// match returns the hosts that a name, a pattern or a range means: h3, h*, h0..h511.
func match(g *topo.Graph, want string) (hosts []int) {
	from, to, ranged := strings.Cut(want, "..")
	if ranged {
		a, okA := g.Find(from)
		b, okB := g.Find(to)
		if !okA || !okB || a > b || b >= g.Hosts {
			return nil
		}
		for h := a; h <= b; h++ {
			hosts = append(hosts, h)
		}
		return hosts
	}
	for h := range g.Hosts {
		if ok, _ := path.Match(want, g.Nodes[h].Name); ok {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// Resolve returns the hosts meant, in rank order: all, or in the order of the names,
// each once.
func (h Hosts) Resolve(g *topo.Graph) (hosts []int) {
	if len(h) == 0 {
		h = Hosts{"*"}
	}
	seen := map[int]bool{}
	for _, want := range h {
		for _, i := range match(g, want) {
			if !seen[i] {
				seen[i] = true
				hosts = append(hosts, i)
			}
		}
	}
	return hosts
}

func (c *checking) checkExpect() {
	for i, e := range c.l.Expect {
		if _, err := ParseExpect(e); err != nil {
			c.failf(fmt.Sprintf("expect[%d]", i), "expect: %v", err)
		}
	}
}
