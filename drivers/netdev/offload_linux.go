// SPDX-License-Identifier: Apache-2.0

package netdev

import (
	"fmt"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
)

// offloads are the kernel's ways of letting one buffer stand for several frames, or of leaving a
// checksum to hardware. With all of them off, a node's frames cross the link byte for byte.
var offloads = []string{
	"tx-checksum-ip-generic", "tx-generic-segmentation", "tx-tcp-segmentation", "tx-tcp-ecn-segmentation", "tx-tcp6-segmentation",
	"tx-udp-segmentation", "tx-udp_tnl-segmentation", "rx-gro", "rx-gro-list", "rx-udp-gro-forwarding", "rx-lro",
}

// forTrains are those that trains need: the buffer stays one on the link.
var forTrains = []string{"tx-checksum-ip-generic", "tx-generic-segmentation", "tx-udp-segmentation"}

// plain switches the offloads of a node's interfaces off, except those that trains need, and
// verifies that they are off.
func (n *Namespace) plain(ends []End, trains bool) error {
	return ns.WithNetNSPath(n.path, func(ns.NetNS) error {
		e, err := openFeatures()
		if err != nil {
			return err
		}
		defer e.close()
		for _, end := range ends {
			if err := plainOne(e, end.Name(), trains); err != nil {
				return fmt.Errorf("offloads of %s: %w", end.Alias, err)
			}
		}
		return nil
	})
}

func plainOne(e features, name string, trains bool) error {
	have, err := e.read(name)
	if err != nil {
		return err
	}
	want := map[string]bool{}
	for _, f := range offloads {
		if s, known := have[f]; known && s.available && !s.fixed && s.active {
			want[f] = false
		}
	}
	if trains {
		for _, f := range forTrains {
			delete(want, f)
		}
	}
	if len(want) == 0 {
		return nil
	}
	if err := e.change(name, want); err != nil {
		return fmt.Errorf("switch off: %w", err)
	}
	now, err := e.read(name)
	if err != nil {
		return err
	}
	var left []string
	for _, f := range offloads {
		if _, off := want[f]; off && now[f].active {
			left = append(left, f)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%s cannot be switched off", strings.Join(left, ", "))
	}
	return nil
}
