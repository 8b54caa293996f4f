// SPDX-License-Identifier: Apache-2.0

package bugbank

var multicast = []pitfall{
	{
		number: 43, what: "A NAK acknowledges what is before it, and so for members that lack it",
		bugs: []bug{{
			wrong: "A NAK is passed on as soon as it comes, and the source forgets what another member still lacks",
			edits: edit("virtswitch/aggregation.go", "case a.nakPending && m == a.pendingNakPSN.Add(-1):", "case a.nakPending:"),
			test:  "virtswitch TestNakAggregation",
		}, {
			wrong: "A fatal NAK is passed on with the PSN of its member",
			edits: edit("virtswitch/aggregation.go", "if first := a.aggAckPSN.Add(1); psn.After(first) {", "if first := a.aggAckPSN.Add(1); false {"),
			test:  "virtswitch TestNakAggregation",
		}},
	},
	{
		number: 44, what: "A later NAK covers an earlier one of a smaller PSN",
		bugs: []bug{{
			wrong: "The last NAK takes the place of the one that waits",
			edits: edit("virtswitch/aggregation.go", "smallest := !a.nakPending || !psn.After(a.pendingNakPSN)", "smallest := true"),
			test:  "virtswitch TestLaterHigherNak",
		}, {
			wrong: "A NAK that all paths have passed is remembered, and being the smallest keeps back all that follow",
			edits: edit("virtswitch/aggregation.go", "case a.nakPending && a.rules.ForgetStaleNak && !a.pendingNakPSN.After(m):", "case false:"),
			test:  "virtswitch TestStaleNak",
		}},
	},
	{
		number: 45, what: "The minimum of PSNs on both sides of 2^24",
		bugs: []bug{{
			wrong: "The path with the smallest PSN is found as if PSNs were numbers",
			edits: edit("virtswitch/aggregation.go", "!least.After(psn)", "least <= psn"),
			test:  "virtswitch TestAggregationWraps",
		}, {
			wrong: "Which PSN is later is told by the larger number",
			edits: edit("core/wire/psn.go", "func (p PSN) After(q PSN) bool { return int32((p-q)<<8) > 0 }", "func (p PSN) After(q PSN) bool { return p > q }"),
			test:  "core/wire TestPSN",
		}},
	},
	{
		number: 46, what: "A path of which nothing is known counts as having all, or nothing",
		bugs: []bug{{
			wrong: "Paths have acknowledged what the table says when it is made, whatever PSN the group starts at",
			edits: edit("virtswitch/aggregation.go", "\tfor i := range a.ackPSN {\n\t\ta.ackPSN[i] = a.aggAckPSN\n\t}\n", ""),
			test:  "virtswitch TestAggregationWraps",
		}, {
			wrong: "A path joins a group that is active, and the source waits for what it never got",
			edits: edit("virtswitch/registration.go", "if settled {", "if settled && g.covers(out) {"),
			test:  "virtswitch TestLateMember",
		}, {
			wrong: "A repeated activation takes back what has been acknowledged",
			edits: edit("virtswitch/registration.go", "\tif !g.active {\n\t\ts.open(now, g,", "\tif true {\n\t\ts.open(now, g,"),
			test:  "virtswitch TestRepeatedActivation",
		}},
	},
	{
		number: 47, what: "A member is taken out while its last acknowledgement is under way",
		bugs: []bug{{
			wrong: "Who does not answer within a window is given up, and its answer is under way",
			edits: edit("rank/collective/fallback/source.go", "\t\tcase c.unreachable(i) != \"\":\n\t\t\tb.giveUp(i, c.unreachable(i))\n", "\t\tcase !reached:\n\t\t\tb.giveUp(i, \"it does not answer\")\n"),
			test:  "rank/collective/fallback TestFallbackOncePerCause",
		}, {
			wrong: "Who is given up is to be in the groups to come all the same, and they wait for it",
			edits: edit("rank/collective/fallback/membership.go", "m.alive, m.apart = without(m.alive, i), without(m.apart, i)", "m.apart = without(m.apart, i)"),
			test:  "rank/collective/fallback TestFallbackCrash",
		}, {
			wrong: "Who is given up and lives is not told, and waits",
			edits: edit("rank/collective/fallback/membership.go", "return !slices.Contains(m.alive, m.me)", "return false"),
			test:  "rank/collective/fallback TestFallbackUnreachable",
		}},
	},
	{
		number: 48, what: "Repeats reach those who have the packet, and each acknowledges it again",
		bugs: []bug{{
			wrong: "Switches send repeats to all members",
			edits: edit("virtswitch/aggregation.go", "return a.rules.FilterRetransmits && !psn.After(a.ackPSN[path])", "return false"),
			test:  "virtswitch TestRepeatsFiltered",
		}},
	},
	{
		number: 49, what: "The losses of all members are taken from one count of retries",
		bugs: []bug{{
			wrong: "The count starts from zero with each message, and not with each packet that got through",
			edits: edit("virtrnic/requester.go", "r.retries, r.rnrRetries, r.nakAt = q.attr.RetryCnt, q.attr.RNRRetry, 0", "r.nakAt = 0"),
			test:  "virtrnic TestRetriesByProgress",
		}},
	},
	{
		number: 50, what: "Rewriting a damaged packet gives it a valid ICRC",
		bugs: []bug{{
			wrong: "A leaf computes the ICRC of what it bridges",
			edits: edit("core/wire/rewrite.go", "\tput24(f.h[q:q+3], uint32(r.DestQP))\n", "\tput24(f.h[q:q+3], uint32(r.DestQP))\n\tf.icrc = f.computeICRC()\n"),
			test:  "core/wire TestDamageSurvivesRewrite",
		}, {
			wrong: "Damaged feedback is aggregated",
			edits: edit("virtswitch/feedback.go", "if !f.CheckICRC() {", "if false {"),
			test:  "virtswitch TestDamagedFeedback",
		}, {
			wrong: "A damaged announcement of a region is believed, and WRITEs land elsewhere",
			edits: edit("virtswitch/region.go", "len(b)%wire.MRUpdateLen != 0 || !f.CheckICRC() {", "len(b)%wire.MRUpdateLen != 0 {"),
			test:  "virtswitch TestAnnouncedRegions",
		}},
	},
	{
		number: 51, what: "One branch that is paused fills the buffer and stops every other branch",
		bugs: []bug{{
			wrong: "A queue that is full stops all neighbours, and not the one it is filled by",
			edits: edit("virtswitch/pfc.go", "\ts.sendPause(now, in, 1<<prio, s.pauseQuanta)\n\ts.timers.Set(s.timerRefresh(in), now", "\tfor p := range s.ports {\n\t\ts.sendPause(now, p, 1<<prio, s.pauseQuanta)\n\t}\n\ts.timers.Set(s.timerRefresh(in), now"),
			test:  "virtswitch TestPausedGroups",
		}, {
			wrong: "What the watchdog drops goes on holding its part of the buffer",
			edits: edit("virtswitch/watchdog.go", "\t\ts.release(now, w)\n", ""),
			test:  "virtswitch TestWatchdogFrees",
		}},
	},
	{
		number: 52, what: "The member whose congestion counts has died",
		bugs: []bug{{
			wrong: "Counts do not age: the worst path stays that, and no other reaches the source",
			edits: edit("virtswitch/cnp.go", "g.path[k].cnps >>= min(age, 31)", "g.path[k].cnps += 0"),
			test:  "virtswitch TestCNPFilter",
		}},
	},
	{
		number: 53, what: "A group is installed in half of the fabric, and the other half is a hole",
		bugs: []bug{{
			wrong: "A registration that fails leaves what it has installed",
			edits: edit("core/mrp/registrar.go", "return p == Deleting || p == Failed", "return p == Deleting"),
			test:  "core/mrp TestRegistrarFails",
		}, {
			wrong: "The first member that confirms stands for all",
			edits: edit("core/mrp/registrar.go", "\tif len(r.waiting) > 0 {\n\t\treturn\n\t}\n", ""),
			test:  "core/mrp TestRegistrar",
		}, {
			wrong: "A switch without room says nothing",
			edits: edit("virtswitch/registration.go", "\t\ts.refuse(now, in, f, id, p.Attempt, wire.MRPErrNoMemory)\n", "\t\ts.absorb(f)\n"),
			test:  "virtswitch TestRegistrationRefused",
		}, {
			wrong: "A group that a switch has refused is used all the same",
			edits: edit("rank/collective/fallback/bcast.go", "\tif first.err == nil {\n", "\tif first.ended {\n"),
			test:  "rank/collective/fallback TestFallbackFanOut",
		}},
	},
	{
		number: 54, what: "The address of a group is used again while packets of the old one are under way",
		bugs: []bug{{
			wrong: "A switch takes a McstID again as soon as it is deleted",
			edits: edit("virtswitch/registration.go", "g.forgetAt != 0 && p.Attempt == g.attempt) {", "g.forgetAt == 1 && p.Attempt == g.attempt) {"),
			test:  "virtswitch TestDeletion",
		}, {
			wrong: "A McstID is forgotten before its packets can have left a paused queue of a slow link",
			edits: edit("virtswitch/forget.go", "s.quarantine = max(s.quarantine, 2*s.quanta(p, pauseQuanta))", "s.quarantine = max(s.quarantine, 0*s.quanta(p, pauseQuanta))"),
			test:  "virtswitch TestQuarantineOutlastsPauses",
		}, {
			wrong: "A group that is left for another is not deleted, and switches keep it for ever",
			edits: edit("rank/collective/fallback/epochs.go", "\t\t_ = g.group.Drop()", "\t\tg.group.Abandon()"),
			test:  "rank/collective/fallback TestFallbackLeavesNothing",
		}, {
			wrong: "Who leaves a group keeps its queue pair, which what is under way can still reach",
			edits: edit("rank/lost.go", "\t\t_ = g.r.destroy(g.qp)", "\t\tdelete(g.r.own.qps, g.qp)"),
			test:  "rank/collective/fallback TestFallbackLeavesNothing",
		}},
	},
	{
		number: 55, what: "Two sources at once, after the source has changed",
		bugs: []bug{{
			wrong: "A late packet of the old source makes it the source again",
			edits: edit("virtswitch/aggregation.go", "if !psn.After(a.aggAckPSN) {\n\t\t\treturn", "if false {\n\t\t\treturn"),
			test:  "virtswitch TestStaleSource",
		}, {
			wrong: "A damaged acknowledgement that looks like data makes its sender the source",
			edits: edit("virtswitch/group.go", "if !f.CheckICRC() {", "if false {"),
			test:  "virtswitch TestStaleSource",
		}},
	},
	{
		number: 56, what: "Two changes to unicast for one cause, or one that races the last acknowledgement",
		bugs: []bug{{
			wrong: "A group comes back though its test has failed, and is left again for the cause that there was",
			edits: edit("rank/collective/fallback/source.go", "if why, err = b.test(c); err != nil {", "if _, err = b.test(c); err != nil {"),
			test:  "rank/collective/fallback TestFallbackThroughput",
		}, {
			wrong: "A group that is left soon after it came back is tried again at once",
			edits: edit("rank/collective/fallback/backoff.go", "b.Hold, atOnce = min(2*b.Hold, holdWindowsMax*window), false", "b.Hold = min(2*b.Hold, holdWindowsMax*window)"),
			test:  "rank/collective/fallback TestBackoff",
		}, {
			wrong: "What had come of a message that is broken off is not forgotten, and counts when it comes again",
			edits: edit("rank/collective/fallback/receiver.go", "\tif !b.members.isApart(b.me()) {\n\t\trankrun.OfBuffer(m.buf).Forget(m.n)\n\t}\n", ""),
			test:  "rank/collective/fallback TestFallbackTorn",
		}, {
			wrong: "Who is served alone and was not heard is sent again what it has, and the source waits until it wants that",
			edits: edit("rank/collective/fallback/receiver.go", "\t\ta.Have = b.has(st.Seq)\n", ""),
			test:  "rank/collective/fallback TestFallbackUnheard",
		}},
	},
	{
		number: 57, what: "A host that is out of processor time looks like a network that loses packets",
		seen: "sonic-swss#3036 is of this kind",
		bugs: []bug{{
			wrong: "What a rank does too late for its instant is not recorded",
			edits: edit("drivers/live/loop.go", "\t\trecord(l.lag.Acted, l.clock.Mono(l.last)-l.clock.Mono(at))\n", ""),
			test:  "drivers/live TestLateCall",
		}, {
			wrong: "Frames that leave too late are not recorded",
			edits: edit("drivers/live/loop.go", "record(l.lag.Sent, ", "record(NewLag().Sent, "),
			test:  "drivers/live TestTransfer",
		}},
	},
	{
		number: 58, what: "Feedback grows with the receivers, and the slowest is heard least",
		seen: "RFC 5401, RFC 2887",
		bugs: []bug{{
			wrong: "Every acknowledgement of a member makes one to the source, whether the minimum has moved or not",
			edits: edit("virtswitch/aggregation.go", "m.After(a.aggAckPSN) || a.rules.EmitTies, m", "true, m"),
			test:  "virtswitch TestAggregation",
		}, {
			wrong: "Each member's NAK for one packet reaches the source",
			edits: edit("virtswitch/aggregation.go", "if a.nakOutstanding && psn == a.sentNakPSN && a.rules.HoldRepeatedNak {", "if false {"),
			test:  "virtswitch TestAskedAgain",
		}},
	},
}
