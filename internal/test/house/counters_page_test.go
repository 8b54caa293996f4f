// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"strings"
	"testing"

	"github.com/mcastlab/mcastlab/core/machine"
	"github.com/mcastlab/mcastlab/internal/counters"
	"github.com/mcastlab/mcastlab/internal/external"
	"github.com/mcastlab/mcastlab/internal/test/golden"
	"github.com/mcastlab/mcastlab/virtrnic"
	"github.com/mcastlab/mcastlab/virtswitch"
)

const countersIntro = `# Counters and events

This page is made from the code (` + "`go test ./internal/test/house -run CountersPage -rewrite`" + `): names are part of the outputs and are not changed.

Counters are in ` + "`counters.json`" + ` of a run (what was counted during it; of a lab of 1,024 nodes and more with a line for each node), their totals by kind of node in ` + "`summary.json`" + `, and in ` + "`mcastlab inspect --format json LAB`" + ` (since the
node was configured). Nodes of a lab that is up also serve them to Prometheus, over the unix socket ` + "`metrics.sock`" + ` in the node's directory, where only root and the node's
user get in; ` + "`mcastlab inspect --format prometheus LAB`" + ` prints those of all nodes. There a counter is ` + "`mcastlab_KIND_NAME_total`" + ` with the label ` + "`node`" + `; of a port
` + "`mcastlab_port_NAME_total`" + ` with ` + "`node`" + ` and ` + "`port`" + `; of drops ` + "`mcastlab_KIND_dropped_total`" + ` with ` + "`node`" + ` and ` + "`reason`" + `. Gauges: ` + "`mcastlab_node_lab_seconds`" + `,
` + "`mcastlab_node_frames_held`" + `, ` + "`mcastlab_switch_groups`" + `, ` + "`mcastlab_switch_mft_bytes`" + `, ` + "`mcastlab_port_queue_peak_bytes`" + ` (of a switch's port: the most that one
queue has held since the switch was configured; in the JSON files ` + "`queue_peak_bytes`" + `). ` + "`mcastlab metrics LAB`" + ` serves them to a Prometheus ([Running labs](running.md#metrics)).
`

// TestCountersPage makes docs/counters.md of the counters' names and of the comments beside reasons and
// events.
func TestCountersPage(t *testing.T) {
	_, all := sources(t)
	var b strings.Builder
	b.WriteString(countersIntro)
	table := func(title, head string, rows [][2]string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | meaning |\n|---|---|\n", title, head)
		for _, r := range rows {
			if r[0] == "" || r[1] == "" {
				t.Errorf("%s: %q has the meaning %q", title, r[0], r[1])
			}
			fmt.Fprintf(&b, "| `%s` | %s |\n", r[0], r[1])
		}
	}
	counts := func(all []counters.Count) (rows [][2]string) {
		for _, c := range all {
			rows = append(rows, [2]string{c.Name, c.Doc})
		}
		return rows
	}
	table("Ports", "counter", counts(counters.PortNames()))
	nic, host := counts(counters.Names(counters.KindExternal)), counts(counters.Names(counters.KindHost))
	shared := 0
	for shared < len(nic) && nic[shared] == host[shared] {
		shared++
	}
	table("Switches", "counter", counts(counters.Names(counters.KindSwitch)))
	table("Hosts and ports of external hosts", "counter", host[:shared])
	table("Hosts", "counter", host[shared:])
	table("Ports of external hosts", "counter", nic[shared:])

	table("Drops of switches", "reason", reasons(all, "virtswitch", virtswitch.DropReasons()))
	table("Drops of hosts", "reason", reasons(all, "virtrnic", virtrnic.DropReasons()))
	table("Drops at ports of external hosts", "reason", reasons(all, "internal/external", external.DropReasons()))

	var kinds []machine.EventKind
	for k := range machine.EventKinds {
		kinds = append(kinds, machine.EventKind(k))
	}
	table("Events of nodes", "event", reasons(all, "core/machine", kinds))
	b.WriteString("\nTheir fields in `events.jsonl` are `port`, `priorities`, `qp`, `psn`, `group`, `value` and `text`. Events of the run itself are `workload`, `result`, `gap`\n" +
		"(a node's events are missing from there on), and at the end `missing` (so many of a node's, which it had no room for until they could be sent) and `disorder` (so many are not\n" +
		"in the order of time: their nodes were late by more than the time between two batches); what they are about is in `data`. The last is `end`, with the number of lines before\n" +
		"it: a file without it is of a run that was killed or has not ended, or has been cut.\n")
	golden.Compare(t, "docs/counters.md", b.String())
}

// reasons pairs the names of a list of constants with the comments beside them.
func reasons[T fmt.Stringer](all []source, dir string, values []T) (rows [][2]string) {
	of := strings.TrimPrefix(fmt.Sprintf("%T", values[0]), path.Base(dir)+".")
	said := constComments(all, dir, of)
	for i, v := range values {
		text := ""
		if i < len(said) {
			text = strings.ReplaceAll(said[i], "|", "\\|")
		}
		rows = append(rows, [2]string{v.String(), text})
	}
	return rows
}

// constComments returns the comments beside the exported constants of a type, which an
// iota numbers.
func constComments(all []source, dir, of string) (said []string) {
	for _, s := range all {
		if s.dir != dir || s.test {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			first := g.Specs[0].(*ast.ValueSpec)
			if id, ok := first.Type.(*ast.Ident); !ok || id.Name != of {
				continue
			}
			for _, spec := range g.Specs {
				if v := spec.(*ast.ValueSpec); v.Names[0].IsExported() {
					said = append(said, strings.TrimSpace(v.Comment.Text()))
				}
			}
		}
	}
	return said
}
