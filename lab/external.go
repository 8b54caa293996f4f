// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"strconv"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/rank/rankhost"
	"github.com/mcastlab/mcastlab/virtrnic"
)

// Host holds the settings in which one host differs from the others.
type Host struct {
	Name     string   `yaml:"name" json:"name,omitzero" doc:"host of the topology" required:"true"`
	Kind     string   `yaml:"kind" json:"kind,omitzero" doc:"emulated; or external: a real RoCE device behind an interface of this server, which --attach names when the lab is deployed" default:"emulated" enum:"emulated,external"`
	External External `yaml:"external" json:"external,omitzero" doc:"queue pair of an external host; group add-member can give it later"`
}

// External is the queue pair with which an external host takes part.
type External struct {
	QPN        Number    `yaml:"qpn" json:"qpn,omitzero" doc:"number of the queue pair" default:"0"`
	SendPSN    Number    `yaml:"send-psn" json:"sendPsn,omitzero" doc:"PSN of the first packet it sends" default:"0"`
	ReceivePSN Number    `yaml:"receive-psn" json:"receivePsn,omitzero" doc:"PSN of the first packet it expects" default:"0"`
	VA         Number    `yaml:"va" json:"va,omitzero" doc:"address of the memory that others write to" default:"0"`
	RKey       Number    `yaml:"rkey" json:"rkey,omitzero" doc:"rkey of that memory" default:"0"`
	Timeout    Timeout   `yaml:"timeout" json:"timeout,omitzero" doc:"retransmission timeout of the device" default:"67.108864ms"`
	Window     Size      `yaml:"window" json:"window,omitzero" doc:"bytes from the device that may wait for the lab's link" default:"2MiB"`
	Ready      string    `yaml:"ready" json:"ready,omitzero" doc:"when a run begins to send to it: auto: when the device is seen, or after group ready; word: after group ready; now: at once (docs/running.md)" default:"auto" enum:"auto,word,now"`
	Wait       Duration  `yaml:"wait" json:"wait,omitzero" doc:"how long a run waits for it to be ready and to make progress, on the wall clock; 1s to 3600s" default:"60s"`
	Linger     *Duration `yaml:"linger" json:"linger,omitzero" doc:"of a root: how long the group and the queue pairs stay after its last acknowledgement, on the wall clock, so that it can ask again if that was lost; 0s to 3600s; default: 8 times timeout, for the first try and 7 retries"`
}

// When a run begins to send to an external host.
const (
	ReadyAuto = "auto" // when it is seen to be there, or its operator confirms it
	ReadyWord = "word" // when its operator confirms it
	ReadyNow  = "now"
)

// Number is a whole number, decimal or 0x and hexadecimal.
type Number uint64

// Set reads a number, decimal or 0x and hexadecimal.
func (n *Number) Set(s string) error {
	v, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number, decimal or 0x and hexadecimal", s)
	}
	*n = Number(v)
	return nil
}

// String prints the number.
func (n Number) String() string { return strconv.FormatUint(uint64(n), 10) }

// ParseNumber reads a number, decimal or 0x and hexadecimal.
func ParseNumber(s string) (Number, error) {
	var n Number
	err := n.Set(s)
	return n, err
}

// ExternalHost returns the settings of a host if it is external, else nil.
func (l *Lab) ExternalHost(name string) *External {
	for i := range l.Hosts {
		if h := &l.Hosts[i]; h.Name == name && h.Kind == "external" {
			return &h.External
		}
	}
	return nil
}

// Externals returns the names of all external hosts.
func (l *Lab) Externals() (names []string) {
	for _, h := range l.Hosts {
		if h.Kind == "external" {
			names = append(names, h.Name)
		}
	}
	return names
}

// peer returns the external host's queue pair and memory for ranks.
func (x *External) peer() *rankhost.Peer {
	return &rankhost.Peer{
		QPN: wire.QPN(x.QPN), SendPSN: wire.PSN(x.SendPSN), ReceivePSN: wire.PSN(x.ReceivePSN), VA: uint64(x.VA), RKey: uint32(x.RKey),
	}
}

// Check verifies the ranges of the numbers.
func (x *External) Check() error {
	for _, v := range []struct {
		name  string
		value Number
		max   Number
	}{
		{"qpn", x.QPN, Number(wire.QPNMask)}, {"send-psn", x.SendPSN, Number(wire.PSNMask)},
		{"receive-psn", x.ReceivePSN, Number(wire.PSNMask)}, {"rkey", x.RKey, 1<<32 - 1},
	} {
		if v.value > v.max {
			return fmt.Errorf("%s of %d is more than %d", v.name, v.value, v.max)
		}
	}
	if d := vtime.Duration(x.Wait); d < vtime.Second || d > 3600*vtime.Second {
		return fmt.Errorf("wait of %v is not 1s to 3600s", x.Wait)
	}
	if d := vtime.Duration(x.LingerTime()); d < 0 || x.Linger != nil && d > 3600*vtime.Second {
		return fmt.Errorf("linger of %v is not 0s to 3600s", *x.Linger)
	}
	if x.Window < windowMin || x.Window > windowMax {
		return fmt.Errorf("window of %v is not %v to %v", x.Window, Size(windowMin), Size(windowMax))
	}
	return nil
}

// Bounds of an external host's window: a few frames, and the size of a socket's buffer.
const (
	windowMin = 16 << 10
	windowMax = 64 << 20
)

// lingerTries is the number of times that a device sends a packet before it gives up, unless its retry count is less than
// the 7 of ibverbs.
const lingerTries = 8

// LingerTime returns how long queue pairs and group stay after the device, as the root, has its last acknowledgement.
func (x *External) LingerTime() Duration {
	if x.Linger != nil {
		return *x.Linger
	}
	return Duration(lingerTries * virtrnic.Timeout(uint8(x.Timeout)))
}

// WindowFrames returns the number of frames of the path MTU that a window holds.
func (x *External) WindowFrames(mtu int) int { return int(x.Window) / (mtu + wire.HeaderCap) }

// Patience returns how long, on the wall clock at a dilation, a packet of an external host
// may have to wait for its acknowledgement when its window is full, and the shortest
// timeout code that allows it.
func (l *Lab) Patience(x *External, dilation float64) (wait vtime.Duration, code uint8) {
	drain := float64(x.Window) * 8 / float64(l.HostRate()) * float64(vtime.Second)
	// There and back over the longest path of any shape here, with a full switch on it.
	path := 2 * 7 * float64(vtime.Duration(l.Links.Delay)+vtime.Duration(l.Switches.Latency))
	wait = vtime.Picoseconds((drain + path) * dilation)
	for code = 1; code < 31 && virtrnic.Timeout(code) < wait; code++ {
	}
	return wait, code
}

func (c *checking) checkHosts() {
	seen := map[string]bool{}
	for i := range c.l.Hosts {
		h := &c.l.Hosts[i]
		p := fmt.Sprintf("hosts[%d]", i)
		if !c.item(p) {
			continue
		}
		node, ok := c.g.Find(h.Name)
		switch {
		case !ok || node >= c.g.Hosts:
			c.failf(p+".name", "there is no host %q%s", h.Name, setting.Suggest(h.Name, setting.HostNames(c.g)))
		case seen[h.Name]:
			c.failf(p+".name", "host %s appears twice", h.Name)
		}
		seen[h.Name] = true
		if err := h.External.Check(); err != nil {
			c.failf(p+".external", "external host %s: %v", h.Name, err)
		}
		if h.Kind == "external" {
			c.checkPatience(p, h)
		}
	}
}

// checkPatience makes sure that an external host does not repeat packets that only wait. A lab with one
// runs at dilation 1 unless it sets another.
func (c *checking) checkPatience(p string, h *Host) {
	x := &h.External
	if err := c.l.CheckPatience(h.Name, x, max(1, float64(c.l.Runtime.Dilation))); err != nil {
		c.failf(p+".external.timeout", "%v", err)
	}
}

// CheckPatience returns an error if, at a dilation, an external host's timer could fire
// although nothing is lost.
func (l *Lab) CheckPatience(name string, x *External, dilation float64) error {
	wait, code := l.Patience(x, dilation)
	if x.Timeout == 0 || wait < virtrnic.Timeout(uint8(x.Timeout)) {
		return nil
	}
	return fmt.Errorf("at dilation %v packets of external host %s may wait %v, longer than its timeout of %v: "+
		"use ibv timeout code %d there and external: {timeout: %v} here, or a smaller external.window or dilation, or a faster links.rate",
		dilation, name, wait, x.Timeout, code, virtrnic.Timeout(code))
}
