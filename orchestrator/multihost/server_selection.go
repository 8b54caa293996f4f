// SPDX-License-Identifier: Apache-2.0

//go:build linux

package multihost

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mcastlab/mcastlab/orchestrator/engine"
)

// hostsAuto is the value of runtime.hosts that means all servers that are ready.
const hostsAuto = "auto"

// labelPrefix begins a constraint, as of a Swarm's services: node.labels.KEY==VALUE, or with !=.
const labelPrefix = "node.labels."

// selectServers returns the servers that runtime.hosts means: those that it names, in this order, or else all, of which all its
// constraints hold.
func selectServers(all []engine.Server, hosts string) ([]engine.Server, error) {
	var names, constraints []string
	for _, term := range strings.Split(hosts, ",") {
		switch term = strings.TrimSpace(term); {
		case strings.HasPrefix(term, labelPrefix):
			constraints = append(constraints, term)
		case term != "" && term != hostsAuto:
			names = append(names, term)
		}
	}
	some := slices.Clone(all)
	if len(names) > 0 {
		var err error
		if some, err = named(all, names); err != nil {
			return nil, err
		}
	}
	for _, c := range constraints {
		var left []engine.Server
		for i := range some {
			ok, err := meets(c, &some[i])
			if err != nil {
				return nil, err
			}
			if ok {
				left = append(left, some[i])
			}
		}
		if len(left) == 0 {
			return nil, fmt.Errorf("%s: no server is left: %s", c, labelsOf(some))
		}
		some = left
	}
	return some, nil
}

// meets reports whether a constraint holds of a server. A label that it does not have has no value, as for a Swarm's services.
func meets(constraint string, m *engine.Server) (bool, error) {
	for _, sign := range []string{"==", "!="} {
		key, value, ok := strings.Cut(strings.TrimPrefix(constraint, labelPrefix), sign)
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); ok && key != "" {
			return (m.Labels[key] == value) == (sign == "=="), nil
		}
	}
	return false, fmt.Errorf("%q is no constraint: give %sKEY==VALUE, or with !=", constraint, labelPrefix)
}

// labelsOf lists servers' labels, as errors do.
func labelsOf(all []engine.Server) string {
	var text []string
	for i := range all {
		m := &all[i]
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
			labels = append(labels, key+"="+m.Labels[key])
		}
		if labels == nil {
			labels = []string{"no labels"}
		}
		text = append(text, m.Name+" has "+strings.Join(labels, " "))
	}
	return strings.Join(text, ", ")
}

// named returns the servers of these names, in this order.
func named(all []engine.Server, names []string) (some []engine.Server, err error) {
	for _, name := range names {
		i := slices.IndexFunc(all, func(m engine.Server) bool { return m.Name == name || m.Node == name })
		if i < 0 {
			var have []string
			for _, m := range all {
				have = append(have, m.Name)
			}
			return nil, fmt.Errorf("%q is no server that is ready: these are %s", name, strings.Join(have, ", "))
		}
		if slices.ContainsFunc(some, func(m engine.Server) bool { return m.Node == all[i].Node }) {
			return nil, fmt.Errorf("%q appears twice", name)
		}
		some = append(some, all[i])
	}
	return some, nil
}
