// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackNumbers has the bugs of labs that did not end, or differed between two runs.
var attackNumbers = []pitfall{
	{
		what: "What counts as no retry is repeated without bound",
		seen: "mcastlab fuzz --labs: selective repeat beside a feedback processor of 1 s a packet, and a verbs timeout of 8796 s: a packet was sent every 100 us",
		bugs: []bug{{
			wrong: "Short timeouts stay short",
			edits: edit("virtrnic/irn_requester.go", "range r.sel.short - irnShort {", "range r.sel.short - (1 << 40) {"),
			test:  "virtrnic TestSelectiveSilent",
		}, {
			wrong: "They grow from the first",
			edits: edit("virtrnic/irn_requester.go", "range r.sel.short - irnShort {", "range r.sel.short {"),
			test:  "virtrnic TestSelectiveSilent",
		}},
	},
	{
		what: "A process holds to a bound that another event, before all that was known, has overtaken",
		seen: "this project: with queries of switches by a timer, a program that went on for what had come by TCP sent a frame, and its switch refused it: its time was further already",
		bugs: []bug{{
			wrong: "A part that did not look itself learns nothing of those that went on",
			edits: edit("drivers/window/grantee.go", "look != g.look {", "false {"),
			test:  "drivers/window TestLedger",
		}},
	},
	{
		what: "Who is silent for long is taken for one that waits",
		seen: "this project, in virtual time: perftest fills its buffers for a second, a timer of processor time took that for looks at memory, and how much lab time passed was this machine's matter",
		bugs: []bug{{
			wrong: "Samples of a thread that makes no call are not compared",
			edits: edit("verbs/time/spin.c", "known * 2 >= samples", "known >= 0"),
			test:  "nodeagent/verbs TestComputing",
		}},
	},
	{
		what: "One order for two readers",
		seen: "this project: a trace of messages had events.jsonl in the order in which the simulation made events, and a running lab had those of one instant by node",
		bugs: []bug{{
			wrong: "Events go with the trace that passes them on",
			edits: edit("drivers/sim/eventlog.go", "p, is := to.(machine.PassingTracer); is {", "p, is := to.(machine.PassingTracer); is && node < 0 {"),
			test:  "lab/runner TestEventsTraced",
		}},
	},
}
