// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackLifetime are the leftovers of interrupted or failed runs on a running lab, found by attacking mcastlab itself.
var attackLifetime = []pitfall{
	{
		what: "Only who comes to a good end gives back what it has made: after an interrupted run its source goes on sending, and the next run measures its traffic",
		seen: "mcastlab: 965.78 us in place of 688.41 us, and the verdict ok",
		bugs: []bug{{
			wrong: "A rank whose orchestrator has gone is unwound, and what it has made stays",
			edits: edit("nodeagent/job_linux.go", "\tn.abandon(b, err != nil)\n", "\tif err == nil {\n\t\tn.abandon(b, false)\n\t}\n"),
			test:  "nodeagent TestWaysOut",
		}, {
			wrong: "A rank that has failed keeps what it has under way until all others have ended",
			edits: edit("nodeagent/job_linux.go", "\t\tn.abandon(b, true) // before the end is reported: the rank's requests must not continue\n", ""),
			test:  "nodeagent TestWaysOut",
		}, {
			wrong: "The tasks of a rank are unwound, and its queue pairs are left to themselves",
			edits: edit("nodeagent/job_linux.go", "\t\tn.host.Go(n.loop.Now(), \"the rank's end\", rankrun.Of(b.rank).Abandon)\n", ""),
			test:  "nodeagent TestWaysOut",
		}, {
			wrong: "What a program has under way goes on for as long as it takes to unwind",
			edits: edit("nodeagent/job_linux.go", "\t\tn.loop.Call(vtime.Never, n.silence)\n", ""),
			test:  "nodeagent TestStuckProgram",
		}},
	},
	{
		what: "What nobody is left to give back stays for ever",
		seen: "mcastlab: groups that a killed leader has left in the switches",
		bugs: []bug{{
			wrong: "A run on a lab that is up begins, and ends, with whatever is there",
			edits: edit("orchestrator/deploy.go", "\tif stays {\n", "\tif stays && false {\n"),
			test:  "command TestLeftovers", root: true,
		}, {
			wrong: "A node says that it has taken back what runs have left, and has not looked",
			edits: edit("nodeagent/release_linux.go", "n.call(n.reset)", "nil"),
			test:  "nodeagent TestWaysOut",
		}},
	},
}
