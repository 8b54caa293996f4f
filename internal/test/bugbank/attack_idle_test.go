// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackIdle are runs that end too early or too late because of faults that come and go.
var attackIdle = []pitfall{
	{
		what: "A run is taken for one in which nothing can happen any more while messages are under way that nobody acknowledges",
		seen: "a many-to-many in which a fault begins after the last packet has started",
		bugs: []bug{
			{
				wrong: "Where no work request is open nothing can come",
				edits: edit("drivers/window/verdict.go", "case c.Waiting > 0 && !c.Registering && !c.Open && frames == 0:", "case c.Waiting > 0 && !c.Registering && !c.Open:"),
				test:  "lab/search TestUnderWay",
			},
			{
				wrong: "A fault that is in force is not waited for",
				edits: edit("drivers/window/verdict.go", "until: max(due.LastEnd, due.At)", "until: due.At"),
				test:  "lab/search TestPatience",
			},
			{
				wrong: "What a slow adapter takes bit by bit stands still",
				edits: edit("virtrnic/transmit.go", " || n.intake != nil && n.intake.fifo.Len() > 0", ""),
				test:  "lab/search TestPatience",
			},
			{
				wrong: "Timers of an adapter that is stalled now and then never fire",
				edits: edit("drivers/window/verdict.go", " && c.Stalled <= l.from", ""),
				test:  "drivers/window TestHalt",
			},
		},
	},
	{
		what: "A pause without end is renewed for ever, and so is the run that waits behind it",
		seen: "a broadcast to a host that pauses its switch: 100 days of lab time",
		bugs: []bug{{
			wrong: "A run ends only if nothing at all is left to arrive",
			edits: edit("drivers/window/verdict.go", "\tcase due.Keep == faults.KeepNot && !c.Registering && d.stands(due, c, frames):\n\t\treturn Halt\n", ""),
			test:  "lab/search TestStandstill",
		}},
	},
	{
		what: "A fault of the whole lab meets nodes that have come to different instants, and each sees another end",
		seen: "labs in lockstep with faults, before they were allowed there",
		bugs: []bug{
			{
				wrong: "A node gets past a fault that others have not come to",
				edits: edit("drivers/window/window.go", "if bound := min(p.Bound(i, next), fault); at < bound {", "if bound := p.Bound(i, next); at < bound {"),
				test:  "drivers/sim TestPartsTroubled",
			},
			{
				wrong: "A node whose fault was put off continues from where it stood, and not from where the lab rests",
				edits: edit("drivers/lockstep/node_linux.go", "\tn.passed.Rest(now)\n", ""),
				test:  "drivers/lockstep TestSameFaults",
			},
			{
				wrong: "A damaged frame keeps its bytes, and only its ICRC is wrong",
				edits: edit("faults/apply.go", "(v.Cut || v.Damage) && !v.Drop", "v.Cut && !v.Drop"),
				test:  "drivers/sim TestPartsTroubled",
			},
		},
	},
}
