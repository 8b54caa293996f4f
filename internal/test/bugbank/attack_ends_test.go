// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

// attackEnds are runs that never end, found by attacking mcastlab itself.
var attackEnds = []pitfall{
	{
		what: "A rank that waits for a message does not look at its own that have failed, and all wait for each other for ever",
		seen: "a switch that crashes under an Allgather over a ring, or a link that loses what a rank of a multicast Allgather asks for",
		bugs: []bug{
			{
				wrong: "The wait for a request ends with that request only",
				edits: edit("rank/conn.go", "\t\tif r.health.err != nil {\n\t\t\treturn r.health.err\n\t\t}\n\t\tr.c.Host.Park(vtime.Never, r.named(q))\n\t}\n\treturn nil\n",
					"\t\tr.c.Host.Park(vtime.Never, r.named(q))\n\t}\n\treturn nil\n"),
				test: "lab/runner TestRunsEnd",
			},
			{
				wrong: "A worker looks at the requests of its own view of the rank only",
				edits: edit("rank/health.go", "\tfor _, v := range h.job.views {\n\t\tif !v.survives {\n\t\t\tv.take(nic)\n\t\t}\n\t}\n", ""),
				test:  "rank TestFailureEndsBoard",
			},
			{
				wrong: "Who waits for other ranks beside the fabric does not hear of failures",
				edits: []patch.Edit{
					{File: "rank/health.go", Old: "func (r *Rank) over() bool { return r.Failed() != nil }", New: "func (r *Rank) over() bool { return false }"},
				},
				test: "rank TestFailureEndsBoard",
			},
			{
				wrong: "A receive that was flushed is told as such, and not what had failed",
				edits: edit("rank/health.go", "if Flushed(err) && !r.survives {", "if false {"),
				test:  "lab/runner TestRunsEnd",
			},
		},
	},
	{
		what: "Of ranks that wait for what nobody sends a live run says nothing, and does not end",
		seen: "a program of three lines, each rank of which receives from the one before it",
		bugs: []bug{
			{
				wrong: "A rank to which an answer is under way counts as one that waits without end",
				edits: edit("orchestrator/dilated/deadlock.go", "r.busy > 0 || s == nil || s.Replies != r.replies[i]", "r.busy > 0 || s == nil"),
				test:  "orchestrator/dilated TestDeadlocked",
			},
			{
				wrong: "Pause frames, which a storm sends for ever, count as something that moves",
				edits: edit("orchestrator/dilated/deadlock.go", "counters.Sent(states) - counters.Total(states, \"pauses_sent\")", "counters.Sent(states)"),
				test:  "orchestrator/dilated TestDeadlocked",
			},
			{
				wrong: "A task that waits beside the fabric is not woken by what came before it parked",
				edits: edit("drivers/live/host.go", "\tcase <-over:\n\t\tat = h.loop.Now()\n", "\tcase <-time.After(time.Minute):\n\t\tat = h.loop.Now()\n"),
				test:  "drivers/live TestParkBeside",
			},
		},
	},
	{
		what: "A program that blocks where the runtime cannot reach it can be ended by SIGKILL only",
		seen: "a rank that waits on a channel, in a simulation and in a node",
		bugs: []bug{
			{
				wrong: "An interrupted simulation waits for its program",
				edits: edit("lab/runner/outside.go", "over, late = nil, time.After(interruptWait)", "over = nil"),
				test:  "lab/runner TestAside",
			},
			{
				wrong: "A host waits for its tasks without end",
				edits: edit("drivers/live/host.go", "name, _ := h.Outside(); name != \"\"", "name, _ := h.Outside(); name == \"nobody\""),
				test:  "drivers/live TestStopBlocked",
			},
		},
	},
}
