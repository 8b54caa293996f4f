// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackRandom are bugs that ten thousand random labs have found.
var attackRandom = []pitfall{
	{
		what: "The memory of a node that has crashed is compared as if it were a copy",
		seen: "a volume in memory of which the only replica crashes when its last write has been acknowledged",
		bugs: []bug{
			{
				wrong: "The only replica is read back although its memory is gone",
				edits: edit("apps/storage/client.go", "d.Present = c.remembering(asked, members)", "d.Present = asked"),
				test:  "apps/storage TestOnlyReplica",
			},
			{
				wrong: "A crash that the client has not seen is not told",
				edits: edit("apps/storage/replica.go", ", []byte(\"crashed\"))", ", nil)"),
				test:  "apps/storage TestOnlyReplica",
			},
		},
	},
	{
		what: "A check demands of a faulty link what holds of one that delivers in time, and once",
		seen: "links that a fault makes 6 us longer: more comes after a pause than headroom is computed for",
		bugs: []bug{{
			wrong: "Frames dropped behind a delayed link are taken for a mistake in headroom",
			edits: edit("drivers/sim/check.go", " && !c.displaced[node]", ""),
			test:  "drivers/sim TestGuardsFire",
		}},
	},
	{
		what: "A request that comes when its cancellation has been forgotten is carried out, and nobody knows of it",
		seen: "a registration that a link holds back for a second: the group was deleted, and its number out of quarantine",
		bugs: []bug{{
			wrong: "The group that a late registration makes is taken for one that a job has left",
			edits: edit("drivers/sim/loop.go", "\tif n.check != nil && n.outlasts(f, d) {\n\t\tn.orphans++\n\t}\n", ""),
			test:  "drivers/sim TestLateRegistration",
		}},
	},
	{
		what: "Much work is taken for work without end",
		seen: "labs of large messages and seven iterations, each of which ends",
		bugs: []bug{{
			wrong: "The steps of a lab without faults share one bound",
			edits: edit("lab/search/labs.go", "if w.budgets > 1 && s.Doing != w.doing {", "if false {"),
			test:  "lab/search TestLongLab",
		}},
	},
	{
		what: "A format in which an empty list and none are the same",
		seen: "this project: switches without a lossless class, pfc: {priorities: []}, had the default class where nodes ran by themselves",
		bugs: []bug{{
			wrong: "The resolved lab leaves out a list that is empty, and whoever reads it takes the default",
			edits: edit("lab/resolved.go", "if !v.IsNil() {", "if v.Len() > 0 {"),
			test:  "lab TestResolvedRoundTrip",
		}, {
			wrong: "The message of a lab does",
			edits: edit("apps/program/settings.go", `json:"args,omitzero"`, `json:"args,omitempty"`),
			test:  "lab/labspec TestMessageNames",
		}},
	},
	{
		what: "What another version has stored is understood in part, or ends a process with a trace",
		bugs: []bug{{
			wrong: "A controller learns from the first entry that it applies that its log is of another version",
			edits: edit("internal/controller/replica/replica.go", "if err := d.understood(); err != nil {", "if err := error(nil); err != nil {"),
			test:  "internal/controller/replica TestLogOfAnotherVersion",
		}, {
			wrong: "A field that is not known is named before the version that has it",
			edits: edit("internal/controller/command.go", "err == nil && of.Version != commandVersion {", "err == nil && false {"),
			test:  "internal/controller TestOlderVersions",
		}, {
			wrong: "A message of a lab that says more than its reader understands is read without that",
			edits: edit("lab/labspec/message.go", "return nil, fmt.Errorf(\"byte %d is not what this version writes for such a lab\", at)", "_ = at"),
			test:  "lab/labspec TestMessageRefused",
		}},
	},
}
