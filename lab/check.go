// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/apps/setting"
	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/core/vtime"
)

var (
	labName  = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	nodeName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,30}$`)
)

// NameOK reports whether s may name a lab: it becomes a part of paths and of the names of
// containers, and is checked only here.
func NameOK(s string) bool { return labName.MatchString(s) }

// LabelOK reports whether s may be a label in reports, or name a program.
func LabelOK(s string) bool { return setting.LabelOK(s) }

// checking verifies properties of several values: choices that exclude each other, names that do not
// exist.
type checking struct {
	l   *Lab
	dir string // of the lab file
	at  map[string]pos
	// programs are those that workloads may name, and broadcasts those that may be schemes; nil: any.
	programs, broadcasts []string

	expect bool // check whether the lab measures the quantities in lines of expect
	g      *topo.Graph
	err    *Error // the first of the part that is being checked
	all    []*Error
	spoilt spoilt
	unread []string // paths of values that could not be read
	partly bool     // the item that is being checked has some of them
}

// failf records a mistake at a path. Only the first one at a place in the file is reported, since
// others may follow from it.
func (c *checking) failf(path, format string, args ...any) {
	if _, there := c.at[path]; c.partly && (!there || related(path, c.unread)) {
		return // it may follow from the value that could not be read
	}
	e := &Error{Text: fmt.Sprintf(format, args...)}
	for at := path; ; {
		if p, ok := c.at[at]; ok {
			e.Line, e.Column = p.line, p.column
			break
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			break
		}
		at = at[:i]
	}
	c.spoilt[part(path)] = true
	told := slices.ContainsFunc(c.all, func(o *Error) bool { return o.Line == e.Line && o.Column == e.Column })
	if c.err == nil {
		c.err = e
	} else if told {
		return
	}
	if len(c.all) < mistakesMax {
		c.all = append(c.all, e)
	}
}

// check verifies the whole file, as far as it could be read, and fills in values that depend on others.
// It returns the mistakes that reading and checking found.
func (l *Lab) check(dir string, b *binder, r Reader) []*Error {
	c := &checking{l: l, dir: dir, at: b.at, programs: r.Programs, broadcasts: r.Broadcasts, expect: r.Expect, all: b.errs, spoilt: b.spoilt, unread: b.unread}
	c.checkEnums()
	for _, s := range []struct {
		name  string
		f     func()
		needs []string // sections: with a mistake in one of them nothing can be said of this one
	}{
		{"name", c.checkName, nil},
		{"topology", c.checkTopology, nil},
		{"controllers", c.checkControllers, []string{"topology"}},
		{"switches", c.checkSwitches, []string{"topology", "nics", "links"}},
		{"links", c.checkLinks, nil},
		{"nics", c.checkNICs, nil},
		{"hosts", c.checkHosts, []string{"topology", "links", "switches", "runtime"}},
		{"runtime", c.checkRuntime, []string{"hosts"}},
		{"workloads", c.checkWorkloads, []string{"topology", "hosts", "controllers"}},
		{"labels", c.checkLabels, []string{"topology"}},
		{"faults", c.checkFaults, []string{"topology", "hosts", "controllers", "labels"}},
		{"expect", c.checkExpect, nil},
		{"sweep", c.checkSweep, nil},
	} {
		_, there := c.at[s.name]
		if c.spoilt[s.name] || c.spoilt.has(s.needs...) || !there && c.spoilt[""] {
			// What is missing may be there under a wrong name. The topology alone has no default
			// against which the others could be checked.
			if s.name == "topology" {
				c.spoilt[s.name] = true
			}
			continue
		}
		c.err, c.partly = nil, false
		s.f()
		c.partly = false
	}
	return c.all
}

// item begins the check of an item of a section, and reports whether it is to be checked. Of an item with values that could not
// be read only mistakes in its other values count.
func (c *checking) item(path string) (ok bool) {
	c.err = nil
	c.partly = slices.ContainsFunc(c.unread, func(u string) bool { return under(u, path) })
	return (!c.spoilt[path] || c.partly) && len(c.all) < mistakesMax
}

func (c *checking) checkName() {
	switch {
	case c.l.Name == "":
		c.failf("", "the lab has no name: add name: my-lab")
	case !NameOK(c.l.Name):
		c.failf("name", "%q cannot be the name of a lab: use a lower-case letter, then up to 39 lower-case letters, digits and hyphens", c.l.Name)
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
		hint := setting.Suggest(got, words)
		if !strings.Contains(hint, "use ") {
			hint += " Use " + setting.List(words)
		}
		if path == "nics.mtu" {
			hint += "; it is RoCE's path MTU, 4096 where Ethernet frames have 9000 bytes"
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
		c.failf("topology", "topology has %d shapes, it needs one: %s", shapes, setting.List(keysOf(reflect.TypeFor[Topology]())))
		return
	}
	t.fill()
	if t.Custom != nil {
		c.checkNames("topology.custom.hosts", t.Custom.Hosts)
		c.checkNames("topology.custom.switches", t.Custom.Switches)
		if c.err != nil {
			return
		}
	}
	g, err := c.l.graph()
	if err != nil {
		c.failf("topology", "topology: %v", err)
		return
	}
	c.g = g
	c.checkSecond("links.delay", c.l.Links.Delay)
	c.checkTiers()
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
			c.failf(fmt.Sprintf("%s[%d]", path, i), "%q cannot be the name of a node: use a letter, then up to 30 letters, digits, underscores and hyphens", n)
		}
	}
}

func (c *checking) checkLinks() {
	if vlan := c.l.Links.VLAN; vlan < 0 || vlan > 4094 {
		c.failf("links.vlan", "links.vlan of %d is not 1 to 4094, or 0 for none", vlan)
	}
}

// checkSecond is setting.Checker's Second.
func (c *checking) checkSecond(path string, d Duration) {
	(&setting.Checker{Fail: c.failf}).Second(path, d)
}

func (c *checking) checkNICs() {
	n := &c.l.NICs
	switch {
	case n.AckEvery < 1:
		c.failf("nics.ack-every", "nics.ack-every of %d is not 1 or more", n.AckEvery)
	case n.Window < 0:
		c.failf("nics.window", "nics.window of %d is negative; 0 is no limit", n.Window)
	case n.Window > 0 && n.Window < n.AckEvery:
		c.failf("nics.window", "nics.window of %d packets is used up before the next acknowledgement is requested (ack-every %d): use at least %d",
			n.Window, n.AckEvery, n.AckEvery)
	case n.Retries < 0 || n.Retries > 7:
		c.failf("nics.retries", "nics.retries of %d is not 0 to 7", n.Retries)
	case n.ByteCounter != nil && n.Congestion != "dcqcn" && n.Congestion != "dcqcn-connectx":
		c.failf("nics.byte-counter", "nics.byte-counter has no effect with congestion: %s, which has none: use dcqcn or dcqcn-connectx", n.Congestion)
	case n.ByteCounter != nil && *n.ByteCounter < 1:
		c.failf("nics.byte-counter", "nics.byte-counter of %v is not 1B or more", *n.ByteCounter)
	case n.IRN != nil && n.Retransmit != "irn":
		c.failf("nics.irn", "nics.irn has no effect with retransmit: %s: write retransmit: irn", n.Retransmit)
	case n.IRN != nil && (n.IRN.RTOLow <= 0 || n.IRN.RTOHigh < n.IRN.RTOLow):
		c.failf("nics.irn", "nics.irn: rto-low of %v and rto-high of %v: both have to be more than 0, and rto-high not less than rto-low", n.IRN.RTOLow, n.IRN.RTOHigh)
	case n.Retransmit == "irn" && c.g != nil && n.selective().RTOLow < c.soonest():
		at := "nics.irn.rto-low"
		if n.IRN == nil {
			at = "nics.retransmit"
		}
		c.failf(at, "nics.irn.rto-low of %v is shorter than the %v in which a packet of %d bytes can be acknowledged at best: every packet would be repeated",
			n.selective().RTOLow, c.soonest(), n.MTU)
	case n.IRN != nil && n.IRN.Cap != nil && *n.IRN.Cap <= 0:
		c.failf("nics.irn.cap", "nics.irn.cap of %v lets no packet be sent", *n.IRN.Cap)
	case vtime.Duration(n.RNRTimer) > vtime.Second:
		c.failf("nics.rnr-timer", "nics.rnr-timer of %v is more than a second", n.RNRTimer)
	case n.ICRC == "flag" && !c.spoilt.has("workloads") && !c.phantomOnly():
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
