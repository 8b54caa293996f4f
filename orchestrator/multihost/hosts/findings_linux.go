// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mcastlab/mcastlab/orchestrator/multihost/daemon"
)

// ClockLimit is the largest valid offset of a server's clock from those of the others. Certificates and the times in logs
// would bear more; a server beyond it synchronises with nothing.
const ClockLimit = 500 * time.Millisecond

// frameNeeded is the frame that links between servers have to carry: an MTU of 9,000 and the Ethernet header.
const frameNeeded = 9014

// finding is a failure of the path from one server to another. Findings of one kind have the same cause if they have a
// server in common.
type finding struct {
	from, to string // nodes
	text     string // continues "NAME (ADDRESS): ", and says %s where the servers at the other end belong
}

// wrong returns what is wrong with a way, or nothing.
func wrong(s daemon.Seen, port int) string {
	most := 0
	for _, n := range s.Frames {
		most = max(most, n)
	}
	switch {
	case s.Closed:
		return fmt.Sprintf("TCP port %d does not answer %%s: let TCP and UDP ports %d, and TCP port %d, pass between the servers", port, port, port+1)
	case s.Error != "":
		return fmt.Sprintf("%%s cannot ask it: %s", strings.ReplaceAll(s.Error, "%", "%%"))
	case most == 0:
		return fmt.Sprintf("UDP port %d lets nothing in from %%s: let TCP and UDP ports %d pass between the servers", port, port)
	case most < frameNeeded:
		return fmt.Sprintf("from %%s, frames of up to %d bytes arrive in UDP datagrams, and links need %d: "+
			"let IP fragments to UDP port %d pass, or raise the MTU between the servers", most, frameNeeded, port)
	}
	return ""
}

// diagnose reports the failures of the paths to and from each server, a line each. A failure of all paths to a server is attributed
// to that server; else one of all paths from a server, to that; else to the pair.
func diagnose(all []Server, seen []daemon.Seen, port int) (lines []string) {
	byText := map[string][]finding{}
	var texts []string
	for _, s := range seen {
		text := wrong(s, port)
		if text == "" {
			continue
		}
		if byText[text] == nil {
			texts = append(texts, text)
		}
		byText[text] = append(byText[text], finding{s.From, s.To, text})
	}
	name := map[string]*Server{}
	for i := range all {
		name[all[i].Node] = &all[i]
	}
	for _, text := range texts {
		lines = append(lines, blame(name, byText[text], ways(seen))...)
	}
	return lines
}

// ways counts how many ways there are to and from each server.
func ways(seen []daemon.Seen) map[string][2]int {
	n := map[string][2]int{}
	for _, s := range seen {
		x, y := n[s.From], n[s.To]
		x[0]++
		y[1]++
		n[s.From], n[s.To] = x, y
	}
	return n
}

// blame lays findings of one text to as few servers as it can.
func blame(name map[string]*Server, left []finding, ways map[string][2]int) (lines []string) {
	for len(left) > 0 {
		// The server at the end, or else at the beginning, of the most findings that are all of its ways.
		best, at, count := "", 0, 0
		for _, f := range left {
			for side, node := range []string{f.to, f.from} {
				n := 0
				for _, g := range left {
					if []string{g.to, g.from}[side] == node {
						n++
					}
				}
				if n == ways[node][1-side] && (n > count || n == count && side < at) {
					best, at, count = node, side, n
				}
			}
		}
		f := left[0]
		var rest []finding
		var others []string
		switch {
		case best == "":
			others, rest = []string{name[f.from].Name}, left[1:]
			best = f.to
		default:
			for _, g := range left {
				ends := []string{g.to, g.from}
				if ends[at] != best {
					rest = append(rest, g)
					continue
				}
				others = append(others, name[ends[1-at]].Name)
			}
		}
		slices.Sort(others)
		list := strings.Join(others, ", ")
		if at == 1 {
			lines = append(lines, fmt.Sprintf("%s, on its way to %s: %s", name[best], list, fmt.Sprintf(f.text, name[best].Name)))
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s", name[best], fmt.Sprintf(f.text, list)))
		}
		left = rest
	}
	return lines
}

// clocks lists the servers whose clocks are further from the median than the limit.
func clocks(all []Server) (lines []string) {
	var known []int64
	for _, m := range all {
		if m.Ahead != nil {
			known = append(known, *m.Ahead)
		}
	}
	if len(known) == 0 {
		return nil
	}
	slices.Sort(known)
	middle := known[(len(known)-1)/2]
	for _, m := range all {
		if m.Ahead == nil {
			continue
		}
		if off := time.Duration(*m.Ahead - middle); off.Abs() > ClockLimit {
			lines = append(lines, clockLine(&m, off, "those of the other servers"))
		}
	}
	return lines
}

// clockLine says by how much a clock is off.
func clockLine(m *Server, off time.Duration, others string) string {
	way := "ahead of"
	if off < 0 {
		way = "behind"
	}
	return fmt.Sprintf("%s: its clock is %v %s %s, more than %v: run an NTP client there, chrony or systemd-timesyncd",
		m, off.Abs().Round(time.Millisecond), way, others, ClockLimit)
}
