// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackEvents are ways in which a program at a NIC hurts others, or gets an event too early, found by attacking mcastlab itself.
var attackEvents = []pitfall{
	{
		what: "Events that nobody reads stop whoever raises them",
		seen: "mcastlab, with perftest's ib_write_bw -R -q 256: the NIC and the whole lab, also from another host",
		bugs: []bug{{
			wrong: "In virtual time nobody sends what the socket had no room for",
			edits: edit("nodeagent/verbs/turn_linux.go", "\t\t\tt.s.flushBehind()\n", ""),
			test:  "nodeagent/verbs TestUnreadTurn",
		}, {
			wrong: "An event overtakes those that wait",
			edits: edit("nodeagent/verbs/pipe_linux.go", "if len(p.queue) == 0 && p.try(b) {", "if p.try(b) {"),
			test:  "nodeagent/verbs TestUnreadInOrder",
		}, {
			wrong: "What a program does not read is not bounded",
			edits: edit("nodeagent/verbs/pipe_linux.go", "if err := p.c.take(useEvents, u.size()); err != nil {", "if p.c.used[useEvents].Add(u.size()); p.c.s.used[useEvents].Add(u.size()) < 0 {"),
			test:  "nodeagent/verbs TestUnreadHurtsItself",
		}, {
			wrong: "Beyond the bound events are lost, and their program waits for them",
			edits: edit("nodeagent/verbs/pipe_linux.go", "\t\tp.c.cut()\n", ""),
			test:  "nodeagent/verbs TestUnreadHurtsItself",
		}, {
			wrong: "A queue whose events nobody reads takes room for each",
			edits: edit("nodeagent/verbs/pipe_linux.go", "\t\t*queued = true\n", ""),
			test:  "nodeagent/verbs TestUnreadOnce",
		}, {
			wrong: "What was read still counts",
			edits: edit("nodeagent/verbs/pipe_linux.go", "\t\tp.c.give(useEvents, u.size())\n", ""),
			test:  "nodeagent/verbs TestUnreadInOrder",
		}},
	},
	{
		what: "A WRITE completes at its sender before its bytes are in the receiver's memory",
		seen: "mcastlab, with rdma-core's test_qp_ex_rc_rdma_write: 20 of 40 runs",
		bugs: []bug{{
			wrong: "The NIC acknowledges what it has handed on",
			edits: edit("virtrnic/responder.go", "after > 0 || r.out.Len() > 0", "r.out.Len() > 0"),
			test:  "virtrnic TestPlaced",
		}, {
			wrong: "An atomic is answered at once",
			edits: edit("virtrnic/guest.go", "func (r *responder) answers() bool { return r.out.Len() > 0 && r.out.At(0).after == 0 }",
				"func (r *responder) answers() bool {\n\treturn r.out.Len() > 0 && (r.out.At(0).after == 0 || r.out.At(0).kind == respondAtomic)\n}"),
			test: "virtrnic TestPlaced",
		}, {
			wrong: "The NIC is not told to wait",
			edits: edit("nodeagent/verbs/server_linux.go", "c.NIC.SetFence(s.fence)", "_ = s.fence"),
			test:  "nodeagent/verbs TestWrittenBeforeAcknowledged",
		}, {
			wrong: "The acknowledgement that leaves next waits for whatever comes later",
			edits: edit("virtrnic/resources.go", "(k > 1 || x.after <= last.after)", "true"),
			test:  "virtrnic TestPlacedMoves",
		}},
	},
	{
		what: "A program uses up the memory or the address space of the process that serves all",
		seen: "mcastlab, by 200 regions of 1 TiB, and by a message of 8 GiB that is refused after it was read",
		bugs: []bug{{
			wrong: "Address space is not counted",
			edits: edit("nodeagent/verbs/account_linux.go", "if err := c.take(useAddress, int64(pages(n))); err != nil {", "if err := c.take(useAddress, 0); err != nil {"),
			test:  "nodeagent/verbs TestRegionsMax",
		}, {
			wrong: "What some have, others cannot have, however little they want",
			edits: edit("nodeagent/verbs/account_linux.go", "all+n > l.all && own+n > l.share", "all+n > l.all"),
			test:  "nodeagent/verbs TestRegionsMax",
		}, {
			wrong: "Memory is read before it is known whether the request may have it",
			edits: edit("nodeagent/verbs/worker_linux.go", "reads := c.s.nic.Loads(q.qp, &s.wr)", "reads := c.s.nic.Loads(q.qp, &s.wr) || true"),
			test:  "nodeagent/verbs TestRefusedReadsNothing",
		}, {
			wrong: "Memory is given back that a request waits with",
			edits: edit("nodeagent/verbs/worker_linux.go", "c.refresh(&w.s[n], n == 0)", "c.refresh(&w.s[n], true)"),
			test:  "nodeagent/verbs TestImagesMax",
		}, {
			wrong: "Rings are not counted when a queue grows",
			edits: edit("nodeagent/verbs/cq_linux.go", "\t\tc.unshare(mem)\n\t}) {", "\t\tunmap(mem)\n\t}) {"),
			test:  "nodeagent/verbs TestHostileMemory",
		}},
	},
}
