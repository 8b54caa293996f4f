// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/core/wire"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/lab"
)

// openOutside looks at the interfaces of all external hosts before anything is made.
func (d externalHosts) openOutside() (map[string]*netdev.Outside, error) {
	all := map[string]*netdev.Outside{}
	used := map[string]string{}
	for _, host := range slices.Sorted(maps.Keys(d.Options.Attach)) {
		name := d.Options.Attach[host]
		if d.Lab.ExternalHost(host) == nil {
			return nil, fmt.Errorf("attach %s=%s: %s is not an external host of lab %s (%s)", host, name, host, d.Lab.Name, ExternalsOf(d.Lab))
		}
		if other := used[name]; other != "" {
			return nil, fmt.Errorf("attach %s=%s: the interface is attached to %s already", host, name, other)
		}
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("attach %s=%s: lab %s is on this server alone: name an interface of it", host, name, d.Lab.Name)
		}
		used[name] = host
		o, err := netdev.OpenOutside(name, d.Lab.NICs.MTU+wire.RoCEHeadersMax)
		if err != nil {
			return nil, err
		}
		if !netdev.Carrier(name) {
			d.Announce("warning: interface %s of external host %s has no carrier: the device at its other end is down, or not plugged in", name, host)
		}
		all[host] = o
	}
	for _, host := range d.Lab.Externals() {
		if all[host] == nil {
			return nil, fmt.Errorf("host %s of lab %s is external: name its interface with --attach %s=INTERFACE", host, d.Lab.Name, host)
		}
	}
	return all, nil
}

// ExternalsOf names the external hosts of a lab, for an error.
func ExternalsOf(l *lab.Lab) string {
	if x := l.Externals(); len(x) > 0 {
		return "external: " + strings.Join(x, ", ")
	}
	return "it has none"
}

// sameAttachments reports whether a deployed lab has the interfaces that are asked for, and
// whether they are still the ones it was deployed with.
func (d externalHosts) sameAttachments(st *state) (ok bool, err error) {
	if len(d.Options.Attach) > 0 && !maps.Equal(d.Options.Attach, st.Attach) {
		return false, fmt.Errorf("lab %s is up with other interfaces: destroy it first", d.Lab.Name)
	}
	d.Options.Attach = st.Attach
	return d.testbed.StillAttached(st.Attach, st.Indexes), nil
}

func indexesOf(all map[string]*netdev.Outside) map[string]int {
	idx := map[string]int{}
	for host, o := range all { // independent of each other
		idx[host] = o.Index()
	}
	return idx
}

// withOutside adds the socket of an external host's interface.
func withOutside(files []*os.File, o *netdev.Outside) ([]*os.File, error) {
	if o == nil {
		return files, nil
	}
	f, err := o.Socket()
	return append(files, f), err
}

// Member changes what the lab knows of an external host's queue pair, for later runs. It returns
// the address that the host's group will have in the next run.
func (d *Deployed) Member(host string, change func(*lab.External)) (x lab.External, group uint32, err error) {
	if err := d.Store.open(d.Options.Log); err != nil {
		return x, 0, err
	}
	st, ok, err := d.Store.Get()
	switch p := d.Lab.ExternalHost(host); {
	case err != nil:
	case !ok:
		err = fmt.Errorf("lab %s is not up any more", d.Lab.Name)
	case p == nil:
		err = fmt.Errorf("%s is not an external host of lab %s (%s)", host, d.Lab.Name, ExternalsOf(d.Lab))
	default:
		x = *p
		if m, known := st.Members[host]; known {
			x = m
		}
		change(&x)
		if err = x.Check(); err != nil {
			err = fmt.Errorf("external host %s: %w", host, err)
			break
		}
		if st.Members == nil {
			st.Members = map[string]lab.External{}
		}
		st.Members[host] = x
		err = d.Store.put(st)
	}
	var next uint32
	if err == nil {
		next, err = d.Plane.nextLease(st.Leased)
	}
	return x, d.Graph.Groups.Net() | next, errors.Join(err, d.Store.close())
}

// TellExternals applies what group add-member has set for external hosts since the deployment,
// and checks that the lab is still valid at a dilation.
func (d *Deployed) TellExternals(dilation float64) error {
	st, _, err := d.Store.Get()
	if err != nil {
		return err
	}
	for i := range d.Lab.Hosts {
		h := &d.Lab.Hosts[i]
		if h.Kind != "external" {
			continue
		}
		if m, known := st.Members[h.Name]; known {
			h.External = m
		}
		if err := d.Lab.CheckPatience(h.Name, &h.External, dilation); err != nil {
			return &lab.Error{File: "lab " + d.Lab.Name, Text: err.Error()}
		}
	}
	if _, err := lab.Parse("lab "+d.Lab.Name, d.Lab.Resolved()); err != nil {
		return err
	}
	if err := externalHostsOf(d).checkRegions(); err != nil {
		return err
	}
	// Marks that were set for an earlier run do not hold for this one.
	if err := os.RemoveAll(filepath.Dir(d.Store.ReadyMark("any"))); err != nil {
		return fmt.Errorf("forget which external hosts were ready: %w", err)
	}
	return nil
}

// checkRegions makes sure that external hosts that are written to have memory.
func (d externalHosts) checkRegions() error {
	for _, w := range d.Lab.Workloads {
		if w.Bcast == nil || w.Bcast.Operation != "write" {
			continue
		}
		for _, h := range w.Bcast.Ranks.Resolve(d.Graph) {
			name := d.Graph.Nodes[h].Name
			if x := d.Lab.ExternalHost(name); x != nil && name != w.Bcast.Root && x.VA == 0 && x.RKey == 0 {
				return fmt.Errorf("workload %s writes to external host %s, and its memory is not known: mcastlab group add-member --va ADDRESS --rkey KEY %s",
					w.Label(), name, name)
			}
		}
	}
	return nil
}

// ReadyMark is the file whose existence says that an external host is ready.
func (s *Store) ReadyMark(host string) string { return filepath.Join(s.Dir, "ready", host) }
