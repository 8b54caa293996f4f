// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackWaits are bugs of programs' waits in virtual time, found by attacking mcastlab itself.
var attackWaits = []pitfall{
	{
		what: "A program waits for bytes that have come already: it has polled for them, and receives them by another call",
		seen: "mcastlab, with UCX over two hosts: no `ucx_perftest` ended in virtual time",
		bugs: []bug{{
			wrong: "Sockets are looked at only after a program has written to one, and not when a new wait begins",
			edits: edit("nodeagent/verbs/turns_linux.go", " || m.Kind == parkOutside {", " {"),
			test:  "nodeagent/verbs TestTurnsNewWait",
		}},
	},
	{
		what: "The wait of a shell is not one that the clock knows: a signal ends it",
		seen: "mcastlab: `sh -c 'x & wait'` and `timeout` stopped virtual time for ever",
		bugs: []bug{{
			wrong: "No call begins again after a signal",
			edits: edit("verbs/time/signal.c", "*again = !(came & ~atomic_load(&restarts));", "*again = 0;"),
			test:  "command TestLiveWaits", root: true,
		}, {
			wrong: "A signal that a mask lets in goes unnoticed if the wait is over at once",
			edits: edit("verbs/time/block.c", "if (mask && turns_signals(mask))", "if (0 && turns_signals(mask))"),
			test:  "command TestLiveWaits", root: true,
		}, {
			wrong: "A timer until an instant takes it for a length of time",
			edits: edit("verbs/time/expire.c", "flags & TIMER_ABSTIME ? value - lab_epoch(t->clock) :", ""),
			test:  "command TestLiveWaits", root: true,
		}},
	},
	{
		what: "A program that fails is not named, but the one that waits for it",
		seen: "mcastlab: exit code 7 of a rank ended the run as a deadlock of another, without results",
		bugs: []bug{{
			wrong: "When nothing is left to happen, programs that wait for each other are given up",
			edits: edit("drivers/lockstep/outside_linux.go", "waiting == 0 && (stuck == 0 || !idle) ||", "waiting == 0 ||"),
			test:  "command TestLiveEnded", root: true,
		}},
	},
	{
		what: "A program that hangs is killed, and nothing says on what",
		seen: "mcastlab: a program that took a completion with an error for none yet",
		bugs: []bug{{
			wrong: "Errors of completions are not kept",
			edits: edit("nodeagent/verbs/cq_linux.go", "\t\t\tq.client.failed(&w, now)\n", "\t\t\t_ = now\n"),
			test:  "command TestLiveEnded", root: true,
		}, {
			wrong: "A thread that polls is taken to run between two polls",
			edits: edit("nodeagent/verbs/order.go", "\t\tx.began = now\n\t}\n", "\t}\n\tx.began = now\n"),
			test:  "command TestLiveEnded", root: true,
		}},
	},
	{
		what: "What happens after a program has ended is put down to it",
		seen: "mcastlab: a pause at 2,250 ms had hit 13 frames of programs that ended at 1,256 ms",
		bugs: []bug{{
			wrong: "Nobody says when a row of programs ended",
			edits: edit("apps/command/command.go", "Began: from, Ended: to,", "Began: from,"),
			test:  "lab/runner TestProgramsMeetFaults",
		}, {
			wrong: "The counts are those of the lab coming to rest, too",
			edits: edit("lab/runner/rowfaults.go", "\t\t\t\tif !f.Came {", "\t\t\t\tif false {"),
			test:  "lab/runner TestProgramsMeetFaults",
		}},
	},
	{
		what: "A program measures something else when something else starts it",
		seen: "mcastlab: in a dilated lab `ib_write_bw` printed 108 MB/s as a workload and 1,956 by `exec`",
		bugs: []bug{{
			wrong: "Each way to start a program chooses its clock",
			edits: edit("orchestrator/programs/jobs.go", "\tx.tagged = p.MPI\n", "\tx.tagged, x.Clock = p.MPI, \"\"\n"),
			test:  "orchestrator/programs TestProgramEnvironments",
		}},
	},
	{
		what: "A call that waits for another program, and that the clock's library does not know, stops lab time for all",
		seen: "mcastlab: `(sleep 1; seq 3) | sed s/2/y/`, whose sed reads by stdio, and a writer into a full pipe ended at their timeout",
		bugs: []bug{{
			wrong: "A thread that keeps its turn is not looked at",
			edits: edit("nodeagent/verbs/asleep_linux.go", "if x.parked || x.sight == nil || !x.sight.sleeps(now) {", "if x.parked || x.sight == nil || !x.sight.sleeps(now) || !x.parked {"),
			test:  "nodeagent/verbs TestPipelines",
		}},
	},
}
