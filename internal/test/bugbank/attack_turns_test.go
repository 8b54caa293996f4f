package bugbank

// attackTurns are programs in virtual time that stop lab time, or print what no NIC does.
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
				edits: edit("nodeagent/verbs/order.go", "case o.moves >= freeMoves && !o.paid:", "case o.moves >= 1<<62 && !o.paid:"),
				test:  "nodeagent/verbs TestOrderWithoutEnd",
			},
			{
				wrong: "A thread that ends is waited for by nobody",
				edits: edit("nodeagent/verbs/order.go", "\to.waiters = slices.DeleteFunc(o.waiters, func(w *waiter) bool { return w == x })\n\to.moved(x)\n", "\to.waiters = slices.DeleteFunc(o.waiters, func(w *waiter) bool { return w == x })\n"),
				test:  "nodeagent/verbs TestOrder",
			},
		},
	},
}
