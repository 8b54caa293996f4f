// SPDX-License-Identifier: Apache-2.0

//go:build linux

package orchestrator

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/mcastlab/mcastlab/core/topo"
	"github.com/mcastlab/mcastlab/drivers/netdev"
	"github.com/mcastlab/mcastlab/internal/failpoint"
	"github.com/mcastlab/mcastlab/lab/labspec"
)

// The management network of a lab links its hosts beside the fabric, for what programs say to each other by
// TCP before they use the fabric. Which address a host has, labspec.ManagementAddress says.

// managementAddress returns the address of host number i, in the order of the lab, on the management network.
func managementAddress(i int) net.IP { return labspec.ManagementAddress(i).AsSlice() }

// ManagementNet returns the address of host number i on the management network, with the length of the network's prefix.
func ManagementNet(i int) *net.IPNet {
	return &net.IPNet{IP: managementAddress(i), Mask: net.CIDRMask(16, 32)}
}

// hubPath is the file that holds the bridge's namespace.
func (s *Store) hubPath() string { return filepath.Join(s.Dir, "management") }

// WantsManagement reports whether a management network is asked for.
func (d *Deployed) WantsManagement() bool { return d.Options.Management || d.Lab.Runtime.Management }

// Managed reports whether the lab has a management network, or is to have one.
func (d *Deployed) Managed(st *state) bool { return st.Management || d.WantsManagement() }

// keepManaged records that a running lab has a management network from now on, if the options request one.
func (d managementNetwork) keepManaged() error {
	st, ok, err := d.Store.Get()
	if err != nil || !ok || st.Management || !d.Managed(&st) {
		return err
	}
	if !d.Access.Local() {
		return fmt.Errorf("lab %s is up on several servers without a management network: destroy it, and deploy it again", d.Lab.Name)
	}
	st.Management = true
	return d.Store.put(st)
}

// OnManagementNetwork reports whether a node is on the management network of a lab that has one: hosts on which
// programs run are.
func OnManagementNetwork(d *Deployed, node int) bool {
	n := &d.Graph.Nodes[node]
	return n.Kind == topo.Host && d.Lab.ExternalHost(n.Name) == nil
}

// checkManagement returns why a lab cannot have a management network.
func (d managementNetwork) checkManagement() error {
	if d.Graph.Hosts > netdev.PortsMax {
		return fmt.Errorf("lab %s has %d hosts, and a management network links at most %d: leave it out", d.Lab.Name, d.Graph.Hosts, netdev.PortsMax)
	}
	return nil
}

// manage links hosts to the management network, which it makes if need be; those that are linked
// already are linked again.
func (d managementNetwork) manage(spaces []*netdev.Namespace, which map[int]bool) (err error) {
	st, _, err := d.Store.Get()
	if err != nil || !d.Managed(&st) {
		return err
	}
	if err := d.Store.intend("manage", d.Lab.Name); err != nil {
		return err
	}
	hub, done, err := d.Partition.OpenHub()
	if err != nil {
		return err
	}
	defer done()
	for i := range d.Graph.Hosts {
		if !which[i] || !OnManagementNetwork(d.Deployed, i) {
			continue
		}
		if err := failpoint.At("link to management network", func() error { return hub.Attach(spaces[i], i, ManagementNet(i)) }); err != nil {
			return fmt.Errorf("node %s: %w", d.Graph.Nodes[i].Name, err)
		}
	}
	return d.writeHosts()
}

// OpenHub opens the bridge, which it makes if need be. A file in the lab's folder holds it.
func (w wholeLab) OpenHub() (hub *netdev.Namespace, done func(), err error) {
	path := w.d.Store.hubPath()
	if hub, err = netdev.OpenHub(path); err != nil { // there is none, or what is there is not all of one
		err = failpoint.At("make management network", func() (err error) {
			hub, err = netdev.MakeHub(path)
			return err
		})
	}
	if err != nil {
		return nil, nil, err
	}
	return hub, func() { _ = hub.Close() }, nil // the file still holds it
}

// HostsFile returns the path of what programs see as /etc/hosts; without a management network there is none.
func (d *Deployed) HostsFile() (path string, err error) {
	st, _, err := d.Store.Get()
	if err != nil || !d.Managed(&st) {
		return "", err
	}
	return filepath.Join(d.Store.Dir, hostsFile), nil
}

// writeHosts writes that file. The lock is held.
func (d managementNetwork) writeHosts() error {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n")
	for i := range d.Graph.Hosts {
		if OnManagementNetwork(d.Deployed, i) {
			fmt.Fprintf(&b, "%v\t%s\n", managementAddress(i), d.Graph.Nodes[i].Name)
		}
	}
	if err := d.Store.Write(hostsFile, []byte(b.String())); err != nil {
		return err
	}
	path := filepath.Join(d.Store.Dir, hostsFile)
	if err := os.Chmod(path, 0o644); err != nil {
		return fmt.Errorf("let programs read %s: %w", path, err)
	}
	return nil
}

const hostsFile = "hosts"
