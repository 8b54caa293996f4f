// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"fmt"
	"os"
	"time"

	"github.com/mcastlab/mcastlab/core/vtime"
	"github.com/mcastlab/mcastlab/internal/nodeapi"
	"github.com/mcastlab/mcastlab/rank/rankhost"
)

const (
	// observeEvery is the interval at which a node checks its rank.
	observeEvery = 250 * time.Millisecond
	// restLooks is the number of looks in a row at which nothing has moved after which the rank
	// is reported to rest.
	restLooks = 4
)

// outsideAfter is the time that a rank may stay outside package rank before it is reported: first to
// the code that ends a run, then to people.
var outsideAfter = [...]time.Duration{time.Second, 5 * time.Second}

// observe reports to the orchestrator whether the rank's tasks are idle, and whether one of them does
// not return to package rank, until ended is closed.
func (n *node) observe(b *board, ended <-chan struct{}) {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	var o observer
	for {
		select {
		case <-ended:
			return
		case <-n.done:
			return
		case <-tick.C:
			o.rest(n, b)
			o.outside(n, b)
		}
	}
}

// observer holds the observations of a rank, and those that were reported.
type observer struct {
	moves  uint64
	looks  int  // in a row at which nothing had moved
	rested bool // it was reported that the rank rests
	told   int  // of outsideAfter
	task   string
}

// rest reports to the orchestrator when the host becomes idle, and when it no longer is.
func (o *observer) rest(n *node, b *board) {
	b.mu.Lock()
	replies := b.replies // before the look: later completions are seen as a move
	b.mu.Unlock()
	who, resting := n.host.Resting()
	moves, idle := n.moves()
	if !resting || !idle || moves+replies != o.moves {
		o.moves, o.looks = moves+replies, 0
		if o.rested {
			o.rested = false
			b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Rest{Rest: &nodeapi.Rest{}}})
		}
		return
	}
	if o.looks++; o.looks == restLooks {
		o.rested = true
		b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Rest{Rest: &nodeapi.Rest{Resting: true, Who: who, Replies: replies}}})
	}
}

// moves returns a count that grows when an operation ends on the host that tasks may wait for, and
// reports in idle whether none will by itself: neither the NIC nor the registrar has a timer that runs
// for work that is under way.
func (n *node) moves() (count uint64, idle bool) {
	n.loop.Call(vtime.Never, func(vtime.Time) {
		_, timer := n.nic.NextTimeout()
		_, registers := n.agent.NextTimeout()
		count, idle = rankhost.News(n.nic, n.agent), !registers && (!timer || n.nic.Unfinished() == 0)
	})
	return count, idle
}

// outside reports to the orchestrator when a task has been outside package rank for some time, and
// when it is back.
func (o *observer) outside(n *node, b *board) {
	task, since := n.host.Outside()
	if o.told > 0 && (task != o.task || since < outsideAfter[0]) {
		o.told = 0
		b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Outside{Outside: &nodeapi.Outside{}}})
	}
	if o.told < len(outsideAfter) && since >= outsideAfter[o.told] {
		o.told, o.task = o.told+1, task
		b.tell(&nodeapi.FromRank{What: &nodeapi.FromRank_Outside{Outside: &nodeapi.Outside{Task: task, Wall: int64(since)}}})
	}
}

// endTasks ends the host's tasks. A program that blocks outside package rank can only be ended with
// its process; the lab's next run or deployment starts the node again.
func (n *node) endTasks() {
	for !n.host.Stop() {
		task, _ := n.host.Outside()
		if task == "" {
			task = "a task"
		}
		fmt.Fprintf(os.Stderr, "mcastlab node %s: %s does not end: it blocks outside package rank, so the node ends with it\n", n.name, task)
		n.exit(1)
	}
}
