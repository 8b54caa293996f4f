// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackInputs are labs that panic, overflow or take for ever, found by attacking mcastlab itself.
var attackInputs = []pitfall{
	{
		what: "Times further away than a queue's keys can say, and more events than they can number",
		seen: "this project: a frame held back for 35 s, and links that flapped every 20 ns, ended in a panic",
		bugs: []bug{{
			wrong: "An event that is too far away comes early",
			edits: edit("drivers/sim/key.go", "\t\tn.far.push(at, event{class, id})\n\t\treturn\n", "\t\tat = n.limit - 1\n"),
			test:  "drivers/sim TestFarEvents",
		}, {
			wrong: "Calls for which there is no number end the run",
			edits: edit("drivers/sim/loop.go", "\t\tid = shared\n\t\tn.overflow.push(call.at, call)\n", "\t\tpanic(shared)\n"),
			test:  "drivers/sim TestManyCalls",
		}, {
			wrong: "Lab time has no end, and a run goes on as long as numbers last",
			edits: edit("drivers/sim/key.go", "if base > vtime.End && n.err == nil {", "if base > vtime.Never {"),
			test:  "drivers/sim TestEndOfTime",
		}, {
			wrong: "As many changes of routes are on their way as links flap while they converge",
			edits: edit("faults/settle.go", " || k == routesMax", ""),
			test:  "faults TestRoutesOnTheirWay",
		}, {
			wrong: "Pause frames of a storm that is faster than its link pile up",
			edits: edit("virtrnic/transmit.go", "k >= pausesMax {", "k >= 1<<30 {"),
			test:  "virtrnic TestPausesWait",
		}},
	},
	{
		what: "Sums and products of times that wrap",
		seen: "this project: a host cost of 9223372s was taken, and overflowed in silence",
		bugs: []bug{{
			wrong: "An instant and a span wrap",
			edits: edit("core/vtime/time.go", "s >= t || d < 0 {", "s >= t || d != 0 {"),
			test:  "core/vtime TestBeyond",
		}, {
			wrong: "A duration may be as long as numbers last",
			edits: edit("apps/setting/values.go", "\tcase v > vtime.SpanMax:\n", "\tcase v > 1<<62:\n"),
			test:  "lab TestErrors",
		}, {
			wrong: "What each message costs a host has no bound",
			edits: edit("lab/check.go", "\t\tc.checkSecond(\"nics.host-cost.post\", h.Post)\n", ""),
			test:  "lab TestErrors",
		}, {
			wrong: "No number is taken for one",
			edits: edit("lab/bind.go", " || math.IsNaN(x) || math.IsInf(x, 0)", " || math.Signbit(x) && x > 0"),
			test:  "lab TestErrors",
		}},
	},
	{
		what: "Nothing, divided into parts",
		seen: "this project: a broadcast of 0 bytes over a fallback divided by zero",
		bugs: []bug{{
			wrong: "A message of nothing is cut into no piece",
			edits: edit("rank/collective/relay.go", "s = max(1, min(s, packets))", "s = min(s, packets)"),
			test:  "rank/collective TestCut",
		}, {
			wrong: "Messages that take no time make it normal to take none",
			edits: edit("rank/collective/fallback/meter.go", "max(m.onWire(n), vtime.Picoseconds(float64(d)*k))", "vtime.Picoseconds(float64(d) * k)"),
			test:  "rank/collective/fallback TestMeterOfNothing",
		}, {
			wrong: "The hint where no scheme has a parameter lists the last of none",
			edits: edit("apps/setting/scheme.go", "[]Algorithms{a, Broadcasts(), Allgathers()}", "[]Algorithms{a}"),
			test:  "lab TestErrors",
		}},
	},
	{
		what: "A part of a file that was not checked passes for one that is right",
		seen: "this project: a lab whose topology was misspelt panicked, for its hosts were checked against none",
		bugs: []bug{{
			wrong: "A section under a wrong name is as good as one that is right",
			edits: edit("lab/check.go", `if s.name == "topology" {`, `if s.name == "name" {`),
			test:  "lab TestEveryKeyMisspelt",
		}},
	},
	{
		what: "Work that grows with what is under way, done again for each event",
		seen: "this project: a host that paused for ever on links of a second had 95,000 pauses under way, all looked at for every one of them",
		bugs: []bug{{
			wrong: "Pauses that have arrived are counted as under way",
			edits: edit("core/machine/link.go", "l.list.pauses--", "_ = l.list"),
			test:  "lab/search TestUnderWay",
		}, {
			wrong: "A client asks for signs of life while it waits for nobody",
			edits: edit("apps/storage/client.go", "return o.posted })", "return true }) || true"),
			test:  "apps/storage TestBusyClient",
		}, {
			wrong: "Only a timeout that the file gives is held to the round trip",
			edits: edit("lab/check.go", `case n.Retransmit == "irn" && c.g != nil`, `case n.IRN != nil && c.g != nil`),
			test:  "lab TestErrors",
		}},
	},
	{
		what: "Input that takes for ever: devices, pipes that nobody writes to, graphs of half a million hosts",
		seen: "this project: a fat-tree that the page allowed validated for ten minutes in 20 GB, and no signal ended it",
		bugs: []bug{{
			wrong: "Devices and pipes are lab files",
			edits: edit("lab/parse.go", "\tcase !info.Mode().IsRegular():\n", "\tcase info.Mode()&os.ModeSocket != 0:\n"),
			test:  "lab TestBounded",
		}, {
			wrong: "A graph is as large as its ports allow",
			edits: edit("core/topo/check.go", "\tcase hosts > hostsMax:\n", "\tcase hosts < 0:\n"),
			test:  "core/topo TestSizeRefused",
		}, {
			wrong: "Reading a lab does not end when the command does",
			edits: edit("command/answer.go", "\tcase <-ctx.Done():\n\t}\n\tselect {", "\tcase <-context.WithoutCancel(ctx).Done():\n\t}\n\tselect {"),
			test:  "command TestAnswers",
		}},
	},
	{
		what: "A write that nobody acknowledged, of which some packets have come",
		seen: "this project: the client gave up while WRITEs crept over slow links, and the read-back called half a block wrong bytes",
		bugs: []bug{{
			wrong: "A block is of one write, the one before or the one under way",
			edits: edit("apps/storage/recover.go", "for at, mtu := 0, p.r.MTU(); at", "for at, mtu := 0, p.bs; at"),
			test:  "apps/storage TestTorn",
		}},
	},
	{
		what: "A search that takes every deadlock beside a fault for the fault's",
		seen: "this project: ranks that waited without end beside a failed send passed in random labs",
		bugs: []bug{{
			wrong: "Any fault that does not end explains a deadlock",
			edits: edit("lab/search/explain.go", "\treturn false\n}\n", "\treturn f.For == nil\n}\n"),
			test:  "lab/search TestExplained",
		}, {
			wrong: "A stall that ends explains one",
			edits: edit("lab/search/explain.go", "\tcase faults.KindStall, faults.KindPause:\n\t\treturn f.For == nil\n", "\tcase faults.KindStall, faults.KindPause:\n\t\treturn true\n"),
			test:  "lab/search TestExplained",
		}},
	},
	{
		what: "What is far away is not counted among what is still to come",
		seen: "this project: a pause of half a minute was in force when a run was over, and its timer was called a residue",
		bugs: []bug{{
			wrong: "A lab is settled when nothing near is left to do",
			edits: edit("drivers/sim/residue.go", " && n.far.len() == 0", ""),
			test:  "lab/search TestStillInForce",
		}},
	},
}
