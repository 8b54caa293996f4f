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
}
