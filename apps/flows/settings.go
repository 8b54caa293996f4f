// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mcastlab/mcastlab/apps"
	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/rank"
)

// Settings are a mix of flows in a lab file.
type Settings struct {
	Label       string           `yaml:"label" json:"label,omitzero" doc:"name in reports" default:"flows"`
	Flows       []FlowSettings   `yaml:"flows" json:"flows,omitzero" doc:"flows, whose times count from the workload's start" required:"true"`
	Message     setting.Size     `yaml:"message" json:"message,omitzero" doc:"bytes of a message; a flow sends one after the other" default:"64KiB"`
	Outstanding int              `yaml:"outstanding" json:"outstanding,omitzero" doc:"most messages of a flow in flight" default:"16"`
	Interval    setting.Duration `yaml:"interval" json:"interval,omitzero" doc:"length of the intervals for which throughput is reported" default:"1ms"`
	Memory      string           `yaml:"memory" json:"memory,omitzero" doc:"bytes: real; phantom: lengths only, nothing is verified; auto: bytes if all receivers together get at most 512MiB, else phantom" default:"auto" enum:"auto,bytes,phantom"`
}

// FlowSettings are one flow.
type FlowSettings struct {
	Name  string           `yaml:"name" json:"name,omitzero" doc:"name in reports, as a scheme has one" required:"true"`
	From  string           `yaml:"from" json:"from,omitzero" doc:"host that sends" required:"true"`
	To    setting.Hosts    `yaml:"to" json:"to,omitzero" doc:"receiver, or several receivers of a multicast: names, patterns and ranges" required:"true"`
	Begin setting.Duration `yaml:"begin" json:"begin,omitzero" doc:"when it begins" default:"0"`
	End   setting.Duration `yaml:"end" json:"end,omitzero" doc:"time after which it begins no message" required:"true"`
}

// Bounds of a mix.
const (
	flowsMax       = 1000
	outstandingMax = 4096
	reportedMax    = 10_000 // intervals
)

// App implements apps.Kind.
func (*Settings) App(e apps.Env) apps.App { return App{Delivered: e.Delivered} }

// hosts returns the hosts of all flows in the order in which they are named, each once.
func (w *Settings) hosts(g *topo.Graph) (all []int) {
	add := func(h int) {
		if !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	for i := range w.Flows {
		if h, ok := g.Find(w.Flows[i].From); ok {
			add(h)
		}
		for _, h := range w.Flows[i].To.Resolve(g) {
			add(h)
		}
	}
	return all
}

// Prepare implements apps.Kind.
func (w *Settings) Prepare(s *apps.Setup) (apps.Prepared, error) {
	hosts := w.hosts(s.Graph)
	p := Params{
		Workload: w.Label, Message: int(w.Message), Outstanding: w.Outstanding, Interval: vtime.Duration(w.Interval),
		Memory: apps.Memory(w.Memory), Seed: s.Seed,
	}
	volume := 0.0
	for i := range w.Flows {
		x := &w.Flows[i]
		from, _ := s.Graph.Find(x.From)
		f := Flow{Name: x.Name, From: slices.Index(hosts, from), Begin: vtime.Duration(x.Begin), End: vtime.Duration(x.End)}
		for _, h := range x.To.Resolve(s.Graph) {
			f.To = append(f.To, slices.Index(hosts, h))
		}
		rate := s.Graph.Links[s.Graph.Nodes[from].Links[0]].Rate
		volume += float64(rate) / 8 * (f.End - f.Begin).Seconds() * float64(len(f.To))
		p.Flows = append(p.Flows, f)
	}
	if p.Memory == "" {
		p.Memory = rank.MemoryBytes
		if volume > apps.RealMax {
			p.Memory = rank.MemoryPhantom
		}
	}
	return apps.Prepared{Input: p, Hosts: hosts, Steps: len(p.Flows)}, nil
}

// Check implements apps.Kind.
func (w *Settings) Check(c *setting.Checker, p string) {
	c.Label(p, w.Label)
	if len(w.Flows) == 0 || len(w.Flows) > flowsMax {
		c.Failf(p+".flows", "%d flows are not 1 to %d", len(w.Flows), flowsMax)
	}
	switch {
	case w.Message < 1 || w.Message > setting.SizeMax:
		c.Failf(p+".message", "a message of %v is not 1B to 2GiB", w.Message)
	case w.Outstanding < 1 || w.Outstanding > outstandingMax:
		c.Failf(p+".outstanding", "%d messages under way are not 1 to %d", w.Outstanding, outstandingMax)
	case w.Interval <= 0:
		c.Failf(p+".interval", "an interval of %v is not above 0", w.Interval)
	}
	for i := range w.Flows {
		w.checkFlow(c, fmt.Sprintf("%s.flows[%d]", p, i), i)
	}
	if c.Failed() {
		return
	}
	for _, n := range c.Outside(w.hosts(c.Graph)) {
		c.Failf(p+".flows", "flows need every host of theirs to run a program, and %s is external", n)
	}
}

func (w *Settings) checkFlow(c *setting.Checker, at string, i int) {
	f, g := &w.Flows[i], c.Graph
	if !setting.LabelOK(f.Name) {
		c.Failf(at+".name", setting.BadLabel, f.Name)
	}
	if slices.ContainsFunc(w.Flows[:i], func(x FlowSettings) bool { return x.Name == f.Name }) {
		c.Failf(at+".name", "two flows are called %q", f.Name)
	}
	switch {
	case f.Begin >= f.End:
		c.Failf(at+".end", "flow %s ends at %v and begins at %v: it must end later", f.Name, f.End, f.Begin)
	case w.Interval > 0 && (f.End-1)/w.Interval >= reportedMax:
		c.Failf(at+".end", "flow %s ends after more than %d intervals of %v: use a longer interval", f.Name, reportedMax, w.Interval)
	}
	from, ok := g.Find(f.From)
	if !ok || from >= g.Hosts {
		c.Failf(at+".from", "there is no host %q%s", f.From, setting.Suggest(f.From, setting.HostNames(g)))
		return
	}
	if len(f.To) == 0 {
		c.Failf(at+".to", "flow %s needs a receiver", f.Name)
		return
	}
	for k, want := range f.To {
		to := setting.Hosts{want}.Resolve(g)
		if len(to) == 0 {
			c.Failf(fmt.Sprintf("%s.to[%d]", at, k), "there is no host %q%s", want, setting.Suggest(want, setting.HostNames(g)))
		}
		if slices.Contains(to, from) {
			c.Failf(fmt.Sprintf("%s.to[%d]", at, k), "flow %s goes from %s to itself", f.Name, f.From)
		}
	}
}

// Links implements apps.Kind.
func (w *Settings) Links(g *topo.Graph, _ int, row *apps.Row) int {
	if !slices.ContainsFunc(w.Flows, func(f FlowSettings) bool { return f.Name == row.Scheme }) {
		return 0
	}
	return apps.LinksAtMost(g, row)
}

// Only implements apps.Kind: no flow can be measured without those beside it.
func (w *Settings) Only(*apps.Row) apps.Kind { return nil }

// Listed implements apps.Lister.
func (w *Settings) Listed() (schemes []string, sizes []setting.Size) {
	for i := range w.Flows {
		schemes = append(schemes, w.Flows[i].Name)
	}
	return schemes, []setting.Size{w.Message}
}

// Quantities implements apps.Measurer.
func (w *Settings) Quantities() map[string][]string {
	names, _ := w.Listed()
	all := map[string][]string{"goodput": apps.Statistics(), quantityBeside: names, quantityFairness: names, quantityRegain: names}
	last := setting.Duration(0)
	for i := range w.Flows {
		last = max(last, w.Flows[i].End)
	}
	for k := 1; w.Interval > 0 && k <= min(reportedMax, int((last+w.Interval-1)/w.Interval)); k++ {
		all[quantityRate] = append(all[quantityRate], strconv.Itoa(k))
	}
	return all
}
