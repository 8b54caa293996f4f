package bugbank

// attackIdle are runs that end too early or too late because of faults that come and go.
var attackIdle = []pitfall{
	{
		what: "A run is taken for one in which nothing can happen any more while messages are under way that nobody acknowledges",
		seen: "a many-to-many in which a fault begins after the last packet has started",
		bugs: []bug{
			{
				wrong: "Where no work request is open nothing can come",
				edits: edit("drivers/sim/idle.go", "\tframes, _ := n.frames()\n\treturn frames == 0\n", "\treturn true\n"),
				test:  "lab/search TestUnderWay",
			},
			{
				wrong: "A fault that is in force is not waited for",
				edits: edit("drivers/sim/idle.go", "until: max(n.lastEnd, n.now)", "until: n.now"),
				test:  "lab/search TestPatience",
			},
			{
				wrong: "What a slow adapter takes bit by bit stands still",
				edits: edit("virtrnic/transmit.go", " || n.intake != nil && n.intake.fifo.Len() > 0", ""),
				test:  "lab/search TestPatience",
			},
			{
				wrong: "Timers of an adapter that is stalled now and then never fire",
				edits: edit("drivers/sim/idle.go", " && nd.stalled <= since", ""),
				test:  "lab/search TestPatience",
			},
		},
	},
	{
		what: "A pause without end is renewed for ever, and so is the run that waits behind it",
		seen: "a broadcast to a host that pauses its switch: 100 days of lab time",
		bugs: []bug{{
			wrong: "A run ends only if nothing at all is left to arrive",
			edits: edit("drivers/sim/idle.go", "(n.exhausted() || n.stands())", "n.exhausted()"),
			test:  "lab/search TestStandstill",
		}},
	},
}
