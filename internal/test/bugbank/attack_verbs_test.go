// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackVerbs are verbs that were refused, or would have been served wrongly.
var attackVerbs = []pitfall{
	{
		what: "A region that its program changes is the former one for its peers",
		seen: "mcastlab, which refused ibv_rereg_mr; pyverbs' test_mr_rereg_*",
		bugs: []bug{{
			wrong: "The library keeps the former keys when the memory is another",
			edits: edit("verbs/memory.c", "mr->handle = mr->lkey = mr->rkey = p->id = r.id;\n\treturn 0;", "p->id = r.id;\n\treturn 0;"),
			test:  "nodeagent/verbs TestReregister",
		}, {
			wrong: "Rights are changed only together with the memory",
			edits: edit("virtrnic/mr.go", "next.pd, next.access, next.closed = pd, access, false", "next.pd, next.closed = pd, false"),
			test:  "nodeagent/verbs TestReregister",
		}, {
			wrong: "A WRITE that is under way keeps the rights that it began with",
			edits: edit("virtrnic/mr.go", "\tm.gone, m.mem = true, nil\n\tm.pd.users--\n\tpd.users++", "\tm.pd.users--\n\tpd.users++"),
			test:  "virtrnic TestRightsTakenAway",
		}, {
			wrong: "A domain that a region has left cannot be deallocated",
			edits: edit("virtrnic/mr.go", "\tm.pd.users--\n\tpd.users++\n\treturn &next, nil", "\tpd.users++\n\treturn &next, nil"),
			test:  "nodeagent/verbs TestReregister",
		}, {
			wrong: "The domain of another device is taken by its number",
			edits: edit("verbs/memory.c", "\t\tif (pd->context != mr->context)\n\t\t\treturn fail_with(EINVAL, IBV_REREG_MR_ERR_CMD);", "\t\tif (0)\n\t\t\treturn 0;"),
			test:  "nodeagent/verbs TestReregister",
		}},
	},
	{
		what: "What stands for a protection domain is another domain to the NIC, or goes while something is in it",
		seen: "mcastlab, which refused parent domains; pyverbs' test_parent_domain",
		bugs: []bug{{
			wrong: "A parent domain has no domain of the NIC's",
			edits: edit("verbs/domain.c", "p->pd.handle = p->id = of->id;", "p->pd.handle = of->id;"),
			test:  "nodeagent/verbs TestLimits/domains",
		}, {
			wrong: "It goes while a queue pair is in it",
			edits: edit("verbs/qp.c", "\tverbs_hold(a->pd);\n", ""),
			test:  "nodeagent/verbs TestLimits/domains",
		}, {
			wrong: "A region that moves to another domain is still counted in the former",
			edits: edit("verbs/memory.c", "\t\tverbs_hold(pd);\n\t\tverbs_release(mr->pd);\n", "\t\tverbs_hold(pd);\n"),
			test:  "nodeagent/verbs TestLimits/domains",
		}, {
			wrong: "Allocators are taken, and never called",
			edits: edit("verbs/domain.c", "a->comp_mask & ~(uint32_t)IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)", "a->comp_mask > 3)"),
			test:  "nodeagent/verbs TestLimits/domains",
		}},
	},
	{
		what: "A queue pair that is used again after an error gets the completions from before it",
		seen: "mcastlab, with pyverbs' test_mr_rereg_pd",
		bugs: []bug{{
			wrong: "RESET leaves completions where they are",
			edits: edit("verbs/qp.c", "a->qp_state == IBV_QPS_RESET) {", "a->qp_state == IBV_QPS_UNKNOWN) {"),
			test:  "nodeagent/verbs TestLimits/resets",
		}, {
			wrong: "It takes those of other queue pairs, too",
			edits: edit("verbs/cq.c", ".qpn != qpn && --to != at)", ".qpn == 0 && --to != at)"),
			test:  "nodeagent/verbs TestLimits/resets",
		}, {
			wrong: "Its answer comes before what has completed is in the ring",
			edits: edit("nodeagent/verbs/requests_linux.go", "\t\t\tc.ask(func() {}) // the library forgets", "\t\t\t// the library forgets"),
			test:  "nodeagent/verbs TestLimits/resets",
		}},
	},
	{
		what: "A file of the device says something else than the device",
		seen: "mcastlab: ports/1/rate, gids and node_guid were not there",
		bugs: []bug{{
			wrong: "The rate is that of a lane",
			edits: edit("verbs/sysfs/facts.c", "int lanes = a.active_width == 2 ? 4 : 1;", "int lanes = 1;"),
			test:  "nodeagent/verbs TestSysfs",
		}, {
			wrong: "Without a NIC a file of it is there, and empty",
			edits: edit("verbs/sysfs/facts.c", "\t\treturn NULL;\n\tclose(sock);", "\t\treturn b;\n\tclose(sock);"),
			test:  "nodeagent/verbs TestSysfs",
		}, {
			wrong: "Files look like a device to who asks before reading",
			edits: edit("verbs/sysfs/sysfs.c", "\"/proc/self/status\"", "\"/dev/null\""),
			test:  "nodeagent/verbs TestSysfs",
		}},
	},
	{
		what: "A fabric of IPv6 whose addresses the C library refuses, since no interface has one",
		seen: "mcastlab, with rping -a and an address of IPv6",
		bugs: []bug{{
			wrong: "A number is looked for only where an interface has an address of its kind",
			edits: edit("verbs/sysfs/resolve.c", "(number.ai_flags & ~AI_ADDRCONFIG) |", "number.ai_flags | AI_ADDRCONFIG |"),
			test:  "nodeagent/verbs TestNumericIPv6", root: true,
		}},
	},
	{
		what: "A thread that ends comes back into the clock's library by the program's own munmap, after its page has gone",
		seen: "mcastlab: ucx_perftest over two hosts in virtual time, both ranks killed by SIGSEGV in seat_asleep",
		bugs: []bug{{
			wrong: "The page is forgotten after it has been unmapped",
			edits: edit("verbs/time/seat.c", "\tstruct v_seat *page = seat;\n\tseat = NULL;", "\tstruct v_seat *page = seat;"),
			test:  "nodeagent/verbs TestUnmapHook",
		}},
	},
}
