package bugbank

// attackWaits are what programs wait for in virtual time, found by attacking mcastlab itself.
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
			wrong: "Every call begins again after a signal",
			edits: edit("verbs/time/signal.c", "*again = !(came & ~atomic_load(&restarts));", "*again = 1;"),
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
}
