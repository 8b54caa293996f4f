// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackTurns are programs in virtual time that stop lab time, or print results that no NIC has.
var attackTurns = []pitfall{
	{
		what: "Threads that wait for each other wake each other for ever, and lab time stands still",
		seen: "a pool of two idle workers, a thread that starts and joins a thread, cmtime, rping -s -P",
		bugs: []bug{
			{
				wrong: "A look that finds nothing is progress",
				edits: edit("nodeagent/verbs/order.go", "if m.Flags&parkAgain == 0 {", "if m.Flags&parkAgain == 0 || m.Kind == parkBeside {"),
				test:  "nodeagent/verbs TestOrder",
			},
			{
				wrong: "Of threads that may run, the one that came first does",
				edits: edit("nodeagent/verbs/order.go", "if reason != 0 && (x == nil || w.number < x.number) {", "if reason != 0 && x == nil {"),
				test:  "nodeagent/verbs TestOrder",
			},
			{
				wrong: "Two threads hand something to and fro for ever at one instant",
				edits: edit("nodeagent/verbs/order.go", "o.moves >= freeMoves && !o.paid {", "o.moves >= 1<<62 && !o.paid {"),
				test:  "nodeagent/verbs TestOrderWithoutEnd",
			},
			{
				wrong: "They do not if lab time moves by a picosecond between two steps",
				edits: edit("nodeagent/verbs/order.go", "if now.Sub(o.from) > moveCost {", "if now > o.from {"),
				test:  "nodeagent/verbs TestOrderWithoutEnd",
			},
			{
				wrong: "A thread that ends is waited for by nobody",
				edits: edit("nodeagent/verbs/order.go", "\to.waiters = slices.DeleteFunc(o.waiters, func(w *waiter) bool { return w == x })\n\to.moved(x)\n", "\to.waiters = slices.DeleteFunc(o.waiters, func(w *waiter) bool { return w == x })\n"),
				test:  "nodeagent/verbs TestOrder",
			},
		},
	},
	{
		what: "A loop that stamps and posts is taken for one that only looks at a clock, and each stamp takes longer than the one before",
		seen: "ib_write_bw -t 1100 in virtual time: 7.85 MiB/s for 11,583",
		bugs: []bug{
			{
				wrong: "A post does not end a busy wait",
				edits: edit("verbs/post.c", "\tif (!err)\n\t\tverbs_progress();\n\tverbs_ring(context_of(b->context));\n\treturn err;", "\tverbs_ring(context_of(b->context));\n\treturn err;"),
				test:  "nodeagent/verbs TestBusyWaits",
			},
			{
				wrong: "A busy wait may be a quarter too long",
				edits: edit("verbs/time/turns.c", "LOOK_PART = 64", "LOOK_PART = 4"),
				test:  "nodeagent/verbs TestBusyWaits",
			},
			{
				wrong: "A program that paces itself by busy waits is late by as much each time",
				edits: edit("verbs/time/turns.c", "spun_for = turns_ps() - spun_ps;", "spun_for = 0;"),
				test:  "nodeagent/verbs TestBusyWaits",
			},
		},
	},
	{
		what: "Threads that are started together run in the order in which the machine lets them arrive, so that two runs differ",
		seen: "random programs of threads, each run twice",
		bugs: []bug{{
			wrong: "A thread has the place in which it arrives",
			edits: edit("nodeagent/verbs/order.go", "x.number = place", "x.number = o.reserve()"),
			test:  "nodeagent/verbs TestOrderOfArrival",
		}},
	},
	{
		what: "A thread that has the number of one that has ended is taken for it: who joins it waits outside turns",
		seen: "random programs of threads that start threads",
		bugs: []bug{{
			wrong: "The number of a thread that has ended stays on the list when another has it",
			edits: edit("verbs/time/threads.c", "\t\tif (pthread_equal(gone[i], *t))\n\t\t\tgone[i] = 0;\n", "\t\t;\n"),
			test:  "nodeagent/verbs TestRandomThreads",
		}},
	},
	{
		what: "A thread of the guardian takes the process number of a program, which then has another first PSN, and the run another digest",
		seen: "TestLiveTurns beside other tests: of three runs one has another digest, that of a run whose `ibv_rc_pingpong` at h0 has number 1001",
		bugs: []bug{{
			wrong: "Threads are ready as soon as goroutines have begun that end at once",
			edits: edit("orchestrator/programs/guard.go", "\t\t\t_, _ = unix.Read(p[0], make([]byte, 1)) // it keeps its thread until the pipe ends\n", ""),
			test:  "orchestrator/programs TestSpareThreads",
		}},
	},
}
