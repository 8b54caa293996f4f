// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/virtswitch"
)

// ECN is the marking of packets. A file may give true or false in place of the settings.
type ECN struct {
	Enabled    bool    `yaml:"enabled" json:"enabled,omitzero" doc:"off: nothing is marked" default:"false"`
	Priorities []int   `yaml:"priorities" json:"priorities,omitzero" doc:"classes whose packets are marked, 0 to 7" default:"3"`
	Kmin       *Size   `yaml:"kmin" json:"kmin,omitzero" doc:"queue depth in bytes at which marking begins, for a port at the rate of links; scaled with the rate of other ports (100kB at 100Gbps are 10kB at 10Gbps); default: 4kB per Gbps of the port"`
	Kmax       *Size   `yaml:"kmax" json:"kmax,omitzero" doc:"queue depth in bytes above which every packet is marked, scaled with the port's rate as kmin; default: 16kB per Gbps"`
	OnArrival  bool    `yaml:"on-arrival" json:"onArrival,omitzero" doc:"mark a packet by the queue depth when it arrives, not by the bytes behind it when it leaves" default:"false"`
	Pmax       float64 `yaml:"pmax" json:"pmax,omitzero" doc:"marking probability at kmax, 0 to 1; it grows linearly from 0 at kmin" default:"0.2"`
}

// Watchdog frees a switch of pauses without end. A file may give true or false in place of
// the settings.
type Watchdog struct {
	Enabled bool     `yaml:"enabled" json:"enabled,omitzero" doc:"off: a pause lasts as long as the neighbour repeats it" default:"false"`
	Detect  Duration `yaml:"detect" json:"detect,omitzero" doc:"how long a class of a port must be paused with frames waiting" default:"200ms"`
	Restore Duration `yaml:"restore" json:"restore,omitzero" doc:"how long the neighbour must not have paused the class before the port is normal again" default:"200ms"`
	Action  string   `yaml:"action" json:"action,omitzero" doc:"until then, drop the frames of the class, or forward them in spite of pauses" default:"drop" enum:"drop,forward"`
}

// ClassRule maps a DSCP or a priority code point to one of the eight priorities.
type ClassRule struct {
	DSCP     *int `yaml:"dscp" json:"dscp,omitzero" doc:"DSCP of untagged packets, 0 to 63"`
	PCP      *int `yaml:"pcp" json:"pcp,omitzero" doc:"priority code point of tagged packets, 0 to 7"`
	Priority int  `yaml:"priority" json:"priority,omitzero" doc:"0 to 7" required:"true"`
}

// CNPFilter is the choice of a path whose congestion notifications reach the source. A
// file may give true or false in place of the settings.
type CNPFilter struct {
	Enabled bool     `yaml:"enabled" json:"enabled,omitzero" doc:"off: the source receives the CNPs of all receivers" default:"true"`
	Window  Duration `yaml:"window" json:"window,omitzero" doc:"time in which the CNP counts halve" default:"10ms"`
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
		Rules: rules, Groups: s.Groups, GroupMemory: given(s.GroupMemory), FanOut: s.FanOut, GroupAge: vtime.Duration(s.GroupAge),
		FeedbackDelay: vtime.Duration(s.FeedbackDelay),
	}
	if s.PFC.Alpha > 0 && s.PFC.ResumeOffset == nil && l.NICs.Congestion == "dcqcn-hpcc" && s.PFC.Enabled {
		f.PFC.ResumeOffset = hpccResumeOffset
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
		f.Input = &virtswitch.InputConfig{Together: s.Replication == "sync", Credits: s.FlowControl == "credits"}
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
		c.Lossless, c.XOFF, c.XON, c.ResumeOffset = bitsOf(p.Priorities), given(p.XOFF), given(p.XON), given(p.ResumeOffset)
	}
	return c
}

// config returns the marking of switches, but for the thresholds of their ports.
func (e *ECN) config() virtswitch.ECNConfig {
	if !e.Enabled {
		return virtswitch.ECNConfig{}
	}
	return virtswitch.ECNConfig{Classes: bitsOf(e.Priorities), OnArrival: e.OnArrival, Pmax: e.Pmax}
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

// hpccResumeOffset is the number of bytes below its dynamic threshold at which a queue of the HPCC paper's
// simulator is resumed.
const hpccResumeOffset = 3 << 10

// lookAsideLinks is the number of links that connect the prototype's accelerator (CEP-45).
const lookAsideLinks = 4

// groupRange returns the network that McstIDs come from.
func (s *Switches) groupRange() wire.GroupRange {
	r, _ := parseGroupNet(s.GroupNet) // it is checked
	return r
}

// parseGroupNet reads the network of McstIDs; empty is the usual one. It must be unicast, so that
// RC address checks accept McstIDs, and have none of the addresses of hosts and switches (CEP-5).
func parseGroupNet(s string) (r wire.GroupRange, err error) {
	if s == "" {
		return r, nil
	}
	p, err := netip.ParsePrefix(s)
	a := p.Addr()
	switch {
	case err != nil || !a.Is4() || p.Bits() != 16 || p.Masked() != p:
		return r, fmt.Errorf("group-net %q is not a network like 10.254.0.0/16: write an IPv4 address that ends in .0.0, and /16", s)
	case a.As4()[0] == 10 && a.As4()[1] < 254:
		return r, fmt.Errorf("group-net %s has addresses of hosts or switches, which are in 10.0.0.0 to 10.253.255.255: "+
			"use 10.254.0.0/16, 10.255.0.0/16, or one outside 10.0.0.0/8", s)
	case a.As4()[0] == 0 || a.IsLoopback() || a.As4()[0] >= 224:
		return r, fmt.Errorf("group-net %s is not of unicast addresses, which adapters demand for RC: use one of 1.0.0.0 to 223.255.255.255 other than 127.0.0.0/8", s)
	}
	ip, _ := wire.IPOf(a)
	return wire.NewGroupRange(ip), nil
}
