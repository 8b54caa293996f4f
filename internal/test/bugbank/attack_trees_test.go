// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackTrees are trees of groups under changing routes, and rules of the cores, found by attacking mcastlab itself.
var attackTrees = []pitfall{
	{
		what: "Routes change while a group is registered, and old paths and new ones together are no tree",
		bugs: []bug{{
			wrong: "A switch is entered by any port, and routes each packet of a registration by what routes there are",
			edits: edit("virtswitch/registration.go", "if !settled && (in != g.ingress || g.reroutes != s.reroutes) {", "if false {"),
			test:  "virtswitch TestTreeWhateverChanges",
		}, {
			wrong: "A switch is entered by any port in one attempt",
			edits: edit("virtswitch/registration.go", "(in != g.ingress || g.reroutes != s.reroutes)", "g.reroutes != s.reroutes"),
			test:  "virtswitch TestSweepTranscripts",
		}, {
			wrong: "Packets of one attempt are routed by whatever routes there are",
			edits: edit("virtswitch/registration.go", "(in != g.ingress || g.reroutes != s.reroutes)", "in != g.ingress"),
			test:  "virtswitch TestTreeWhateverChanges",
		}, {
			wrong: "A new attempt adds its paths to those of the one before",
			edits: edit("virtswitch/registration.go", "\t\ts.prune(now, in, f, g)\n\t\tg = nil\n",
				"\t\tg.attempt, g.ingress, g.reroutes, g.forgetAt = p.Attempt, in, s.reroutes, 0\n"),
			test: "virtswitch TestTreeOnRandomGraphs",
		}, {
			wrong: "A confirmation of an earlier attempt counts",
			edits: edit("core/mrp/registrar.go", " || p.Attempt != r.attempt {\n\t\ta.stats.Ignored++\n\t\treturn\n\t}\n\tm, waits", " {\n\t\ta.stats.Ignored++\n\t\treturn\n\t}\n\tm, waits"),
			test:  "core/mrp TestRegistrarBeginsAnew",
		}, {
			wrong: "A tree is activated although a link of it has gone",
			edits: edit("virtswitch/registration.go", "case s.severed(g):", "case false:"),
			test:  "virtswitch TestTreeWhateverChanges",
		}, {
			wrong: "A new attempt voids the entries of the one before downward only, and those cut off from the leader stay",
			edits: edit("virtswitch/registration.go", "!p.host && p.port != in {", "!p.host && p.port != g.ingress && p.port != in {"),
			test:  "virtswitch TestTreeVoided",
		}, {
			wrong: "Entries that no removal could reach are taken for a leak",
			edits: edit("drivers/sim/residue.go", " || n.check != nil && groups-n.check.cutOff(i) <= orphans", ""),
			test:  "lab/runner TestVoidedAttempt",
		}, {
			wrong: "A switch with one failed neighbour is excused for what it keeps",
			edits: edit("drivers/sim/cutoff.go", "\t\tcase !w.c.gaps.switches[far.Node]:\n\t\t\treturn false\n", ""),
			test:  "drivers/sim TestCutOff",
		}},
	},
	{
		what: "Of several equal ways a switch takes one that other members' ways meet again",
		bugs: []bug{{
			wrong: "Of the ports that a group uses already the lowest is taken",
			edits: edit("virtswitch/registration.go", "if used < 0 || chosen[port] < chosen[used] {", "if used < 0 {"),
			test:  "virtswitch TestTreeOnRandomGraphs",
		}},
	},
	{
		what: "A pause of a class without PFC is obeyed, and one host stops others where frames are rather lost",
		bugs: []bug{{
			wrong: "A switch obeys pauses of all classes",
			edits: edit("virtswitch/pfc.go", "\t\th.Enable &= s.obeys\n", ""),
			test:  "virtswitch TestPauseOfLossyClass",
		}, {
			wrong: "A NIC obeys pauses of all classes",
			edits: edit("virtrnic/transmit.go", "\t\th.Enable &^= n.lossy\n", ""),
			test:  "virtrnic TestPauseOfLossyClass",
		}, {
			wrong: "A slow NIC pauses a class without PFC",
			edits: edit("virtrnic/intake.go", "in.bytes > intakeXOFF && n.lossy>>prio&1 == 0 {", "in.bytes > intakeXOFF {"),
			test:  "virtrnic TestPauseOfLossyClass",
		}, {
			wrong: "NICs of a fabric do not know which classes have PFC",
			edits: edit("drivers/fabric/fabric.go", ", Lossy: ^s.Switch.PFC.Lossless,", ","),
			test:  "drivers/fabric TestNICOfLossyClass",
		}},
	},
	{
		what: "PSNs go round, and what was kept from before is taken for new",
		bugs: []bug{{
			wrong: "A NAK is remembered when its packet has come, and passed on again 2^24 packets later",
			edits: edit("virtswitch/aggregation.go", "\tr.repairPending = r.repairPending && r.lastNakPSN.After(psn)\n", ""),
			test:  "virtswitch TestSelectiveRecallOnce",
		}},
	},
	{
		what: "A packet leaves a long queue, and all that wait behind it are moved",
		bugs: []bug{{
			wrong: "A queue is a slice whose rest is copied down",
			edits: edit("core/machine/queue/fifo.go",
				"\tp := &q.buf[q.head&uint32(len(q.buf)-1)]\n\tv := *p\n\tvar zero T\n\t*p = zero\n\tq.head++\n\tq.n--\n",
				"\tv := q.buf[0]\n\tcopy(q.buf, q.buf[1:q.n])\n\tvar zero T\n\tq.n--\n\tq.buf[q.n] = zero\n"),
			test: "core/machine/queue TestFIFO",
		}},
	},
	{
		what: "Routes are worked out while frames wait for the lock",
		bugs: []bug{{
			wrong: "A live switch looks for routes with its loop's lock",
			edits: edit("nodeagent/routes_linux.go", "\t\tgo r.follow()\n", "\t\tr.busy = false\n\t\tr.set(r.find(r.down))\n"),
			test:  "nodeagent TestRouter",
		}, {
			wrong: "Routes that were asked for first are installed last",
			edits: edit("nodeagent/routes_linux.go", "if done = asked == r.wanted; done {", "if done = true; done {"),
			test:  "nodeagent TestRouter",
		}},
	},
}
