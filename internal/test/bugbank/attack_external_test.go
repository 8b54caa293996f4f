// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

// attackExternal are external devices, found by attacking mcastlab itself.
var attackExternal = []pitfall{
	{
		what: "An example that a reader follows to the letter is refused at its last step",
		seen: "mcastlab",
		bugs: []bug{{
			wrong: "That an external host's timeout is too short for its window is looked at where a lab says its dilation",
			edits: edit("lab/external.go", "\t\tif h.Kind == \"external\" {\n\t\t\tc.checkPatience", "\t\tif h.Kind == \"external\" && c.l.Runtime.Dilation > 1 {\n\t\t\tc.checkPatience"),
			test:  "lab TestExternalMistakes",
		}},
	},
	{
		what: "A device that is set up wrongly ends a run with a line that says neither which device nor what is wrong, or never",
		seen: "mcastlab, with Linux Soft-RoCE",
		bugs: []bug{{
			wrong: "All that is told apart is whether it says something",
			edits: edit("orchestrator/dilated/device_diagnosis.go", "{v.absent, v.misled, v.refused, v.silent}", "{v.silent}"),
			test:  "orchestrator/dilated TestCauses",
		}, {
			wrong: "A device that comes no further is waited for without end",
			edits: edit("orchestrator/dilated/external_devices.go", "\tcase now.Sub(x.since) > wait && x.view.step.Host != \"\":", "\tcase false:"),
			test:  "command TestExternalWrong/no-send", root: true,
		}, {
			wrong: "No carrier is found out by waiting",
			edits: edit("orchestrator/external_hosts.go", "\t\tif !netdev.Carrier(name) {", "\t\tif false {"),
			test:  "command TestExternalCarrier", root: true,
		}, {
			wrong: "What an operator has to know is not said to one who wants to hear of nothing else",
			edits: edit("command/live_linux.go", "\to.Tell = func", "\tif o.Tell = nil; !c.Bool(\"quiet\") {\n\t\to.Tell = func(string, ...any) {}\n\t}\n\t_ = func"),
			test:  "command TestExternalCarrier", root: true,
		}},
	},
	{
		what: "An acknowledgement of what was never sent is taken for one of the message, among those of others",
		seen: "mcastlab, with a device whose receive PSN was ahead",
		bugs: []bug{{
			wrong: "What a device acknowledges is passed on as it is",
			edits: edit("internal/external/external.go", "\tcase !given:\n", "\tcase !given && false:\n"),
			test:  "internal/external TestSeen",
		}},
	},
	{
		what: "A peer is sent to before it can know from whom",
		seen: "mcastlab, with Linux Soft-RoCE: 103 repeats",
		bugs: []bug{{
			wrong: "Ranks send as soon as they have connected",
			edits: edit("rank/collective/unicast.go", "\t\tif i != root && r.External(i) {", "\t\tif false && r.External(i) {"),
			test:  "command TestExternalVerdict/word", root: true,
		}},
	},
	{
		what: "A verdict that leaves out what it cannot claim leaves out what went wrong there, too",
		seen: "mcastlab: fidelity ok with 2 expiries, 2,226 repeats and 2,289 overruns",
		bugs: []bug{{
			wrong: "Timers count where times are claimed",
			edits: edit("orchestrator/dilated/fidelity.go", "n > 0 && lossFree {\n\t\tblame(\"%d retransmission", "n > 0 && lossFree && len(rows[0].External) == 0 {\n\t\tblame(\"%d retransmission"),
			test:  "orchestrator/dilated TestJudgeDevices",
		}, {
			wrong: "Repeats and overruns do not count",
			edits: edit("orchestrator/dilated/fidelity.go", "\t\tf.judgeDevices(now, before, lossFree, blame)\n", ""),
			test:  "orchestrator/dilated TestJudgeDevices",
		}},
	},
	{
		what: "A name that stays the same is taken again while what had it before is still there",
		seen: "argued, for groups that a lab file names",
		bugs: []bug{{
			wrong: "A group that was deleted a moment ago is registered at once",
			edits: edit("orchestrator/dilated/external_devices.go", "\t\tfor _, r := range states[i].Resting {\n", "\t\tfor _, r := range states[i].Resting[:0] {\n"),
			test:  "orchestrator/dilated TestHolds",
		}, {
			wrong: "A group that is in use can be registered again",
			edits: edit("core/mrp/registrar.go", "r != nil && (r.phase == Deleted || r.phase == Failed)", "r != nil"),
			test:  "core/mrp TestRegistrar",
		}},
	},
	{
		what: "Memory that was long enough for the first message is written beyond its end",
		seen: "argued, for broadcasts by registered WRITEs",
		bugs: []bug{{
			wrong: "A longer message gets no new window",
			edits: []patch.Edit{{File: "rank/collective/writing.go", Old: "\tcase w.v.Len() < n:\n", New: "\tcase false:\n"}},
			test:  "lab/runner TestWriting",
		}},
	},
}
