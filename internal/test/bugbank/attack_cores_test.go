// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackCores are objects that the NIC and the switch never release, found by attacking mcastlab
// itself.
var attackCores = []pitfall{
	{
		what: "What was made on a host or in a switch stays when nobody needs it any more",
		bugs: []bug{{
			wrong: "A NIC has 65,536 numbers of queue pairs for its life",
			edits: edit("virtrnic/tables.go", "\tif n.freedQPNs.Len() == 0 {", "\tif true {"),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "The number of a queue pair that was destroyed comes back as it was",
			edits: edit("virtrnic/tables.go", "n.freedQPNs.Pop() + MaxQPs", "n.freedQPNs.Pop()"),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "A number comes back that is multicast's",
			edits: edit("virtrnic/tables.go", "const qpnUses = 255", "const qpnUses = 257"),
			test:  "virtrnic TestNumbersComeRound",
		}, {
			wrong: "Timer slots are never closed up: a NIC looks through two for each queue pair it ever had",
			edits: edit("virtrnic/tables.go", "n.holes++; n.holes > slotHoles", "n.holes++; n.holes > 1<<30"),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "A timer stays where it was when its queue pair's slot moves",
			edits: edit("virtrnic/tables.go", "\t\t\tn.timers.Move(q.timerRTO(), timerQPs+2*to)\n", ""),
			test:  "virtrnic TestTimersAfterCompaction",
		}, {
			wrong: "The key of a region that is gone comes back as it was",
			edits: edit("virtrnic/tables.go", "return old&^0xff | (old+1)&0xff, true", "return old, true"),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "A region leaves its place for ever",
			edits: edit("virtrnic/mr.go", "\t\tn.freedKeys.Push(m.key)\n", ""),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "A completion queue goes that queue pairs use",
			edits: edit("virtrnic/cq.go", "\tcase c.users > 0:", "\tcase c.users < 0:"),
			test:  "virtrnic TestReclaim",
		}, {
			wrong: "Events of queue pairs that nobody asks for pile up when the queue pairs are gone",
			edits: edit("virtrnic/tables.go", "\tn.disown(q)\n", ""),
			test:  "virtrnic TestDestroyOrder",
		}, {
			wrong: "A rank that ends gives back its connections and nothing else: its groups stay",
			edits: edit("rank/own.go", "\t\t_ = a.Delete(now, g) // refused if another host leads it\n", ""),
			test:  "drivers/sim TestNothingLeft",
		}, {
			wrong: "A part of a job that is not closed stays when the job is over",
			edits: edit("rank/own.go", "slices.Backward(r.job.views)", "slices.Backward(r.job.views[:1])"),
			test:  "drivers/sim TestNothingLeft",
		}, {
			wrong: "What a failed or deadlocked workload has made stays",
			edits: edit("drivers/sim/task.go", "\tif err == nil && !j.keep {", "\tif err == nil && failed == nil && !j.keep {"),
			test:  "drivers/sim TestNothingLeft",
		}, {
			wrong: "Plain multicast groups of a workload that fails stay in the switches",
			edits: edit("drivers/sim/task.go", "\tfor _, ip := range j.multicast {\n\t\tj.net.endMulticast(ip)\n\t}\n", ""),
			test:  "drivers/sim TestNothingLeft",
		}, {
			wrong: "Each group that the fallback leaves costs a completion queue",
			edits: edit("rank/collective/fallback/epochs.go", "\tif g.ended { // else", "\tif false { // else"),
			test:  "rank/collective/fallback TestFallbackLeavesNothing",
		}},
	},
	{
		what: "Nobody repeats that a group is to be forgotten, and the switch never asks",
		bugs: []bug{{
			wrong: "A deletion is sent once; if it is lost, switches keep the group and its load",
			edits: edit("core/mrp/registrar.go", "\t\t\tmost = deletionsMax\n", "\t\t\tmost = 0\n"),
			test:  "core/mrp TestFailedIsDeleted",
		}, {
			wrong: "Who has left a group does not confirm that it is to be forgotten, and its leader says it to the end",
			edits: edit("core/mrp/agent.go", "if !joined && p.Flags != wire.MRPDelete || listing", "if !joined || listing"),
			test:  "core/mrp TestStrangerConfirmsDeletion",
		}, {
			wrong: "The leader keeps every registration it ever had",
			edits: edit("core/mrp/registrar.go", "\tif r.left && (r.phase == Deleted", "\tif false && (r.phase == Deleted"),
			test:  "core/mrp TestFailedIsDeleted",
		}, {
			wrong: "A repeat of a deletion does not find its way past switches that have heard the first one a while ago",
			edits: edit("virtswitch/forget.go", "\t\tg.forgetAt = now.Add(s.quarantine) // the next", "\t\t// the next"),
			test:  "virtswitch TestDeletionFindsItsWay",
		}, {
			wrong: "A group that nobody deletes keeps its room and its load for ever",
			edits: edit("virtswitch/registration.go", "\ts.Age(now) // groups that", "\t// groups that"),
			test:  "virtswitch TestAgeMakesRoom",
		}, {
			wrong: "A group that is in use is aged out",
			edits: edit("virtswitch/group.go", "\tg.used = now\n", ""),
			test:  "virtswitch TestAge",
		}},
	},
	{
		what: "Pauses of several classes wait for one link, and only those of one are put together",
		bugs: []bug{{
			wrong: "What is one too many takes the place of another of the same classes, and two storms pile up",
			edits: edit("virtrnic/transmit.go", "k >= pausesMax {", "k >= pausesMax && n.tx.pauses.At(k-1).f.PFC().Enable == classes {"),
			test:  "virtrnic TestGuardsFire",
		}, {
			wrong: "What takes the place of a pause forgets its other classes",
			edits: edit("virtrnic/transmit.go", "\t\tp.Enable |= old.Enable\n", ""),
			test:  "virtrnic TestGuardsFire",
		}},
	},
}
