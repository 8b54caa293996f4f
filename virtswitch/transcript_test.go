// SPDX-License-Identifier: Apache-2.0

package virtswitch

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/core/prng"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/machinetest"
)

// eventLog writes a switch's events into the transcript.
type eventLog struct{ l **lone }

// Trace implements machine.Tracer.
func (x eventLog) Trace(now vtime.Time, e machine.Event) {
	(*x.l).net.Logf("%-12v   %v", now, &e)
}

// counts writes every counter that is not zero.
func (l *lone) counts() {
	v := reflect.ValueOf(*l.sw.Stats())
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Uint64 && f.Uint() > 0 {
			l.net.Logf("%s %d", v.Type().Field(i).Name, f.Uint())
		}
	}
	for _, why := range DropReasons() {
		if n := l.sw.Stats().Drops[why]; n > 0 {
			l.net.Logf("dropped as %v %d", why, n)
		}
	}
}

// incast has the first three hosts send n packets of a traffic class to the fourth, which pauses the
// class meanwhile for the given quanta.
func (l *lone) incast(n int, tos uint8, quanta uint16) {
	l.pause(3, 1<<3, quanta)
	l.at(1.2, func() {
		for k := range n {
			for i := range loneHosts - 1 {
				l.stub[i].send(l.data(hostIP(i), hostIP(3), uint16(i), wire.PSN(k), tos))
			}
		}
	})
	l.run()
}

// members has feedback of three members arrive, in and out of order, with holes.
func (l *lone) members() {
	for psn := wire.PSN(5); psn < 8; psn++ {
		l.stub[0].send(l.data(hostIP(0), group1, 9, psn, 26<<2|wire.ECNECT0))
	}
	l.run()
	l.feed(1, 5, wire.SyndromeACK)
	l.feed(2, 6, wire.SyndromePSNSequence)
	l.feed(3, 7, wire.SyndromeACK)
	l.stub[0].send(l.data(hostIP(0), group1, 9, 6, 26<<2|wire.ECNECT0)) // the repeat
	l.run()
	l.feed(2, 7, wire.SyndromeACK)
	l.feed(1, 7, wire.SyndromeRNR|12)
	l.stub[0].send(l.data(hostIP(0), group1, 9, 7, 26<<2|wire.ECNCE))
	l.run()
	l.feed(1, 7, wire.SyndromeACK)
	for i := 1; i < 4; i++ {
		l.stub[i].send(l.cnp(i))
	}
	l.run()
	l.stub[2].send(l.data(hostIP(2), group1, 9, 8, 26<<2)) // another source
	l.run()
	l.feed(0, 8, wire.SyndromeACK)
	l.feed(1, 8, wire.SyndromeACK)
	l.feed(3, 9, wire.SyndromeRemoteAcc)
	l.stub[2].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPDelete}, wire.MRPRecord{}))
	l.run()
}

// TestTranscripts compares a switch's output with golden files: every frame with its time, its reports,
// and its final counters.
func TestTranscripts(t *testing.T) {
	head := []int{9000, 9000, 9000, 9000, 9000, 9000}
	remote := wire.MRPRecord{IP: 10<<24 | 1<<8 | 1, QPN: 55}
	for _, c := range []struct {
		name   string
		change func(*Config)
		run    func(l *lone)
	}{
		{"group", nil, func(l *lone) { l.register(group1, 3); l.members() }},
		{"gleam", func(c *Config) { c.Rules = RulesGleam() }, func(l *lone) { l.register(group1, 3); l.members() }},
		{"cepheus", func(c *Config) { c.Rules = RulesCepheus() }, func(l *lone) { l.register(group1, 3); l.members() }},
		{"look-aside", func(c *Config) {
			c.LookAside = LookAsideConfig{Links: 2, Rate: 100e9, Delay: 100 * vtime.Nanosecond}
		}, func(l *lone) { l.register(group1, 3); l.members() }},
		{"feedback-delay", func(c *Config) { c.FeedbackDelay = 2 * vtime.Microsecond; c.CNPWindow = 50 * vtime.Microsecond },
			func(l *lone) { l.register(group1, 3); l.members() }},
		{"registration", nil, func(l *lone) {
			l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, LeaderQPN: 100}, wire.MRPRecord{IP: hostIP(2), QPN: 102}, remote))
			l.run()
			l.stub[loneHosts].send(l.mrp(remote.IP, group1+1, wire.MRPHeader{Total: 2, LeaderQPN: 55}, wire.MRPRecord{IP: hostIP(1), QPN: 101}))
			l.run()
			l.stub[1].send(l.mrp(hostIP(1), group1+2, wire.MRPHeader{Total: 1, LeaderQPN: 101}, wire.MRPRecord{IP: 10<<24 | 99<<8, QPN: 1}))
			l.run()
			l.sw.WipeGroups()
		}},
		{"regions", nil, func(l *lone) {
			l.stub[0].send(l.listing(group1, 1, 1, 2, 3))
			l.run()
			l.stub[0].send(l.mrp(hostIP(0), group1, wire.MRPHeader{Total: 1, Flags: wire.MRPActivate, LeaderQPN: 100}, wire.MRPRecord{QPN: 5}))
			l.run()
			l.stub[0].send(l.announce(5, 0x40000, 70))
			l.stub[0].send(l.write(0, 6, 0x20, named(5)))
			l.run()
			l.feed(1, 6, wire.SyndromeACK)
			l.feed(2, 6, wire.SyndromeACK)
			l.feed(3, 6, wire.SyndromeACK)
		}},
		{"static-thresholds", func(c *Config) {
			c.Buffer, c.PFC = 120_000, PFCConfig{Lossless: 1 << 3, XOFF: 5000, Headroom: head, Quanta: 100}
		}, func(l *lone) { l.incast(12, 26<<2, 400) }},
		{"dynamic-thresholds", func(c *Config) {
			c.Buffer, c.PFC = 150_000, PFCConfig{Lossless: 1 << 3, Alpha: 0.5, Headroom: head}
		}, func(l *lone) { l.incast(24, 26<<2, 600) }},
		{"lossy", func(c *Config) { c.Buffer = 20_000 }, func(l *lone) { l.incast(12, 26<<2, 300) }},
		{"marking", func(c *Config) {
			c.Weights = [8]uint8{0: 1, 3: 2}
			c.ECN = ECNConfig{Classes: 1 << 3, Pmax: 0.5, Random: prng.New(3)}
			for range c.Ports {
				c.ECN.Kmin, c.ECN.Kmax = append(c.ECN.Kmin, 4000), append(c.ECN.Kmax, 20_000)
			}
		}, func(l *lone) { l.incast(12, 26<<2|wire.ECNECT0, 300) }},
		{"watchdog", func(c *Config) {
			c.PFC = PFCConfig{Lossless: 1 << 3, XOFF: 5000, Headroom: head}
			c.Watchdog = WatchdogConfig{Detect: 20 * vtime.Microsecond, Restore: 10 * vtime.Microsecond}
		}, func(l *lone) { l.incast(8, 26<<2, 6000) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l *lone
			l = newLone(t, func(k *Config) {
				if c.change != nil {
					c.change(k)
				}
				k.Trace = eventLog{&l}
			})
			l.net.Log = &strings.Builder{}
			c.run(l)
			l.counts()
			l.net.Logf("%s", strings.ReplaceAll(fmt.Sprintf("%+v", l.sw.Groups()), "} {", "}\n{"))
			machinetest.Golden(t, c.name, l.net.Log.String())
		})
	}
}
