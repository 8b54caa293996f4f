package lab

import (
	"fmt"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// ECN is the marking of packets. A file may give true or false in place of the settings.
type ECN struct {
	Enabled    bool    `yaml:"enabled" doc:"off: nothing is marked" default:"false"`
	Priorities []int   `yaml:"priorities" doc:"classes whose packets are marked, 0 to 7" default:"3"`
	Kmin       *Size   `yaml:"kmin" doc:"bytes waiting behind a packet from which on it may be marked, at the rate of links, others in proportion; default: 4kB per Gbps of the port"`
	Kmax       *Size   `yaml:"kmax" doc:"bytes above which every packet is; default: 16kB per Gbps"`
	Pmax       float64 `yaml:"pmax" doc:"probability at kmax, which it approaches from 0 at kmin, 0 to 1" default:"0.2"`
}

// Watchdog frees a switch of pauses without end. A file may give true or false in place of
// the settings.
type Watchdog struct {
	Enabled bool     `yaml:"enabled" doc:"off: a pause lasts as long as it is repeated" default:"false"`
	Detect  Duration `yaml:"detect" doc:"how long a class of a port must be paused with frames waiting" default:"200ms"`
	Restore Duration `yaml:"restore" doc:"how long the neighbour must have let it go for it to be as before" default:"200ms"`
	Action  string   `yaml:"action" doc:"what becomes of its frames meanwhile: drop, or forward in spite of pauses" default:"drop" enum:"drop,forward"`
}

// ClassRule maps a DSCP or a priority code point to one of the eight priorities.
type ClassRule struct {
	DSCP     *int `yaml:"dscp" doc:"DSCP of untagged packets, 0 to 63"`
	PCP      *int `yaml:"pcp" doc:"priority code point of tagged packets, 0 to 7"`
	Priority int  `yaml:"priority" doc:"0 to 7" required:"true"`
}

// CNPFilter is the choice of a path whose congestion notifications reach the source. A
// file may give true or false in place of the settings.
type CNPFilter struct {
	Enabled bool     `yaml:"enabled" doc:"off: the source gets the notifications of all receivers" default:"true"`
	Window  Duration `yaml:"window" doc:"time in which the counts of notifications halve" default:"10ms"`
}

// Short reads true and false.
func (e *ECN) Short(s string) error { return onOff(&e.Enabled, s) }

// Short reads true and false.
func (w *Watchdog) Short(s string) error { return onOff(&w.Enabled, s) }

// Short reads true and false.
func (f *CNPFilter) Short(s string) error { return onOff(&f.Enabled, s) }

// onOff reads true and false.
func onOff(to *bool, s string) error {
	if s != "true" && s != "false" {
		return fmt.Errorf("%q is not true, false or a mapping", s)
	}
	*to = s == "true"
	return nil
}

// switchSettings returns the settings of the switches' cores.
func (l *Lab) switchSettings() virtswitch.Settings {
	s := &l.Switches
	rules, _ := virtswitch.RulesByName(s.Rules) // the name has been checked
	f := virtswitch.Settings{
		Buffer: int(s.Buffer), PFC: s.PFC.config(), ECN: s.ECN.config(), Classes: classes(s.Classes),
		Rules: rules, Groups: s.Groups, FanOut: s.FanOut, GroupAge: vtime.Duration(s.GroupAge),
		FeedbackDelay: vtime.Duration(s.FeedbackDelay),
	}
	if w := &s.Watchdog; w.Enabled {
		f.Watchdog = virtswitch.WatchdogConfig{
			Detect: vtime.Duration(w.Detect), Restore: vtime.Duration(w.Restore), Forward: w.Action == "forward",
		}
	}
	for p, w := range s.Scheduling {
		f.Weights[p] = uint8(w)
	}
	if s.Queues == "input" {
		f.Input = &virtswitch.InputConfig{Together: s.Replication == "sync"}
	}
	if s.CNPFilter.Enabled {
		f.CNPWindow = vtime.Duration(s.CNPFilter.Window)
	}
	if s.Accelerator == "look-aside" {
		f.LookAside = virtswitch.LookAsideConfig{Links: lookAsideLinks, Rate: int64(l.Links.Rate), Delay: vtime.Duration(l.Links.Delay)}
	}
	return f
}

// config returns the flow control of switches, but for the headroom of their ports.
func (p *PFC) config() virtswitch.PFCConfig {
	c := virtswitch.PFCConfig{Alpha: p.Alpha, Quanta: p.Quanta}
	if p.Enabled {
		c.Lossless, c.XOFF, c.XON = bitsOf(p.Priorities), given(p.XOFF), given(p.XON)
	}
	return c
}

// config returns the marking of switches, but for the thresholds of their ports.
func (e *ECN) config() virtswitch.ECNConfig {
	if !e.Enabled {
		return virtswitch.ECNConfig{}
	}
	return virtswitch.ECNConfig{Classes: bitsOf(e.Priorities), Pmax: e.Pmax}
}

// classes returns the priorities of frames under the given rules, nil for the usual ones.
func classes(rules []ClassRule) *virtswitch.Classes {
	if len(rules) == 0 {
		return nil
	}
	all := virtswitch.DefaultClasses()
	for _, c := range rules {
		if c.DSCP != nil {
			all.DSCP[*c.DSCP] = uint8(c.Priority)
		} else {
			all.PCP[*c.PCP] = uint8(c.Priority)
		}
	}
	return all
}

// bitsOf returns a set of priorities with a bit for each.
func bitsOf(priorities []int) (set uint8) {
	for _, p := range priorities {
		set |= 1 << p
	}
	return set
}

// given returns a size that may be left out, in which case it is 0.
func given(s *Size) int {
	if s == nil {
		return 0
	}
	return int(*s)
}

// lookAsideLinks is how many links join the prototype's accelerator (CEP-45).
const lookAsideLinks = 4

// checkQueues verifies what concerns queues.
func (c *checking) checkQueues() {
	s := &c.l.Switches
	c.priorities("switches.pfc.priorities", s.PFC.Priorities)
	c.priorities("switches.ecn.priorities", s.ECN.Priorities)
	p, e := &s.PFC, &s.ECN
	switch {
	case p.Alpha != 0 && !(p.Alpha >= 1./128 && p.Alpha <= 64):
		c.failf("switches.pfc.alpha", "switches.pfc.alpha of %v is not 0.0078125 to 64, or 0 for static thresholds", p.Alpha)
	case p.Alpha != 0 && (p.XOFF != nil || p.XON != nil):
		c.failf("switches.pfc.alpha", "switches.pfc has alpha, for dynamic thresholds, and static ones: leave xoff and xon out, or alpha")
	case p.Quanta < virtswitch.PauseQuantaMin || p.Quanta > 0xffff:
		c.failf("switches.pfc.quanta", "switches.pfc.quanta of %d is not %d to 65535", p.Quanta, virtswitch.PauseQuantaMin)
	case !(e.Pmax >= 0 && e.Pmax <= 1):
		c.failf("switches.ecn.pmax", "switches.ecn.pmax of %v is not a probability: use 0 to 1", e.Pmax)
	case s.Watchdog.Detect == 0 && s.Watchdog.Enabled:
		c.failf("switches.watchdog.detect", "switches.watchdog.detect of 0 takes every pause for a storm")
	case s.CNPFilter.Window == 0 && s.CNPFilter.Enabled:
		c.failf("switches.cnp-filter.window", "switches.cnp-filter.window of 0 counts nothing; to pass all notifications write cnp-filter: false")
	case s.Accelerator == "look-aside" && c.g.Switches() > 1:
		c.failf("switches.accelerator", "switches.accelerator can be look-aside in a lab of one switch only: "+
			"what is addressed to a group cannot be routed between switches")
	case c.l.Links.VLAN < 0 || c.l.Links.VLAN > 4094:
		c.failf("links.vlan", "links.vlan of %d is not 1 to 4094, or 0 for none", c.l.Links.VLAN)
	}
	c.checkMarking()
	c.checkScheduling()
	c.checkInput()
}

// checkInput refuses what looks at the queues of an egress, where packets wait at the
// ingress.
func (c *checking) checkInput() {
	s := &c.l.Switches
	if s.Queues != "input" {
		if s.Replication == "sync" {
			c.failf("switches.replication", "switches.replication can be sync with queues: input only; with queues: output every copy has a queue of its own")
		}
		return
	}
	for _, x := range []struct {
		key string
		on  bool
	}{{"ecn", s.ECN.Enabled}, {"watchdog", s.Watchdog.Enabled}, {"scheduling", len(s.Scheduling) > 0}, {"accelerator", s.Accelerator != "inline"}} {
		if x.on {
			c.failf("switches."+x.key, "switches.%s acts on packets that wait at the port they leave by, and with queues: input none do: leave one of the two out", x.key)
		}
	}
}

// checkMarking verifies that the thresholds of every port are in order.
func (c *checking) checkMarking() {
	e := &c.l.Switches.ECN
	if e.Kmin == nil && e.Kmax == nil {
		return
	}
	kmin, kmax := virtswitch.ECNThresholds(int64(c.l.Links.Rate))
	if e.Kmin != nil {
		kmin = int(*e.Kmin)
	}
	if e.Kmax != nil {
		kmax = int(*e.Kmax)
	}
	if kmin > kmax || kmax > 1<<40 {
		c.failf("switches.ecn", "switches.ecn: kmin of %v is above kmax, %v", Size(kmin), Size(kmax))
	}
}

func (c *checking) checkScheduling() {
	s := &c.l.Switches
	if n := len(s.Scheduling); n != 0 && n != 8 {
		c.failf("switches.scheduling", "switches.scheduling has %d shares: give one for each of the eight priorities, 0 for strict", n)
	}
	for i, w := range s.Scheduling {
		if w < 0 || w > 255 {
			c.failf(fmt.Sprintf("switches.scheduling[%d]", i), "share %d is not 0 to 255", w)
		}
	}
	for i, k := range s.Classes {
		at := fmt.Sprintf("switches.classes[%d]", i)
		switch {
		case (k.DSCP == nil) == (k.PCP == nil):
			c.failf(at, "%s needs either dscp or pcp", at)
		case k.DSCP != nil && (*k.DSCP < 0 || *k.DSCP > 63):
			c.failf(at+".dscp", "%d is not a DSCP from 0 to 63", *k.DSCP)
		case k.PCP != nil && (*k.PCP < 0 || *k.PCP > 7):
			c.failf(at+".pcp", "%d is not a priority code point from 0 to 7", *k.PCP)
		default:
			c.priorities(at+".priority", []int{k.Priority})
		}
	}
}

// priorities verifies numbers of classes.
func (c *checking) priorities(path string, all []int) {
	for i, p := range all {
		if p < 0 || p > 7 {
			c.failf(fmt.Sprintf("%s[%d]", path, i), "priority %d is not 0 to 7", p)
		}
	}
}
