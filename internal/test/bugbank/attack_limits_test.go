// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackLimits are limits of the device, and operations that it grants, found by the suites of others.
var attackLimits = []pitfall{
	{
		what: "A program that asks for exactly what a device advertises is refused",
		seen: "mcastlab, with libfabric's verbs;ofi_rxm; linux-rdma/rdma-core#1624, jcxue/RDMA-Tutorial#6",
		bugs: []bug{{
			wrong: "A completion queue of max_cqe has an entry more than the NIC has",
			edits: edit("nodeagent/verbs/cq_linux.go", "\tn := ringEntries(min(m.Depth+1, cqesMax))\n\tmem, fd, err := c.share(ringBytes(n, completionLen))\n\tif err != nil {\n\t\treturn r, nil, err\n\t}\n\tq :=", "\tn := ringEntries(m.Depth + 1)\n\tmem, fd, err := c.share(ringBytes(n, completionLen))\n\tif err != nil {\n\t\treturn r, nil, err\n\t}\n\tq :="),
			test:  "nodeagent/verbs TestLimits/advertised",
		}, {
			wrong: "The depth of its own receive queue counts for a queue pair with a shared one",
			edits: edit("verbs/qp.c", "a->srq ? 0 : a->cap.max_recv_wr,", "a->cap.max_recv_wr,"),
			test:  "nodeagent/verbs TestLimits/advertised",
		}, {
			wrong: "Protection domains are limited more than the device says",
			edits: edit("nodeagent/verbs/requests_linux.go", "len(c.pds) >= c.s.most[ofPD]", "len(c.pds)+1 >= c.s.most[ofPD]"),
			test:  "nodeagent/verbs TestLimits/advertised",
		}, {
			wrong: "Groups are not limited, as the device says they are",
			edits: edit("virtrnic/events.go", "len(n.mcast) >= MaxMcastGroups &&", "false &&"),
			test:  "nodeagent/verbs TestLimits/advertised",
		}, {
			wrong: "A new limit is advertised that nothing asks for",
			edits: edit("verbs/device.c", "\ta->phys_port_cnt = 1;", "\ta->phys_port_cnt = 1;\n\ta->max_fmr = 8;"),
			test:  "nodeagent/verbs TestLimits/advertised",
		}},
	},
	{
		what: "A request that the NIC refuses leaves its program waiting for a completion for ever",
		seen: "mcastlab, by asking for one byte more than max_msg_sz",
		bugs: []bug{{
			wrong: "The library posts messages of any length",
			edits: edit("verbs/post.c", "\treturn length <= V_MESSAGE && (", "\treturn 1 || ("),
			test:  "nodeagent/verbs TestLimits/advertised",
		}},
	},
	{
		what: "An operation is granted that is not served, and the program jumps to nothing",
		seen: "mcastlab, with pyverbs' test_qp_ex_rc_atomic_write",
		bugs: []bug{{
			wrong: "ibv_create_qp_ex grants any send_ops_flags",
			edits: edit("verbs/qp.c", "(a->send_ops_flags & ~verbs_ex_ops(a->qp_type))", "0"),
			test:  "nodeagent/verbs TestLimits/operations",
		}, {
			wrong: "Raw packets are refused as an invalid argument, which says that other arguments would do",
			edits: edit("verbs/qp.c", "\treturn a->qp_type == IBV_QPT_RC || a->qp_type == IBV_QPT_UC || a->qp_type == IBV_QPT_UD;", "\treturn 1;"),
			test:  "nodeagent/verbs TestLimits/operations",
		}, {
			wrong: "Creation flags are refused even if there are none",
			edits: edit("verbs/qp.c", " | IBV_QP_INIT_ATTR_CREATE_FLAGS))", "))"),
			test:  "nodeagent/verbs TestLimits/operations",
		}},
	},
	{
		what: "A queue takes twice what was granted when its program posts slowly, and sends inline only what was asked for",
		seen: "mcastlab, with pyverbs' test_full_rq_bad_flow and Debian's rdma_xclient",
		bugs: []bug{{
			wrong: "A place in the receive ring is free when the NIC has taken the receive",
			edits: edit("nodeagent/verbs/queues_linux.go", "q.rq.taken - uint64(q.qp.Posted())", "q.rq.taken"),
			test:  "nodeagent/verbs TestLimits/depths",
		}, {
			wrong: "So it is with a shared receive queue",
			edits: edit("nodeagent/verbs/srq_linux.go", "s.rq.taken - uint64(posted)", "s.rq.taken + 0*uint64(posted)"),
			test:  "nodeagent/verbs TestLimits/depths",
		}, {
			wrong: "So it is with sends",
			edits: edit("nodeagent/verbs/worker_linux.go", "q.sent.Load() - uint64(q.qp.Outstanding())", "q.sent.Load()"),
			test:  "nodeagent/verbs TestLimits/depths",
		}, {
			wrong: "Room for inline data is the requested size",
			edits: edit("verbs/qp.c", "\ta->cap.max_inline_data = c->attr.max_inline;", "\t;"),
			test:  "nodeagent/verbs TestLimits/depths",
		}},
	},
	{
		what: "A receive whose list is longer than its region fails although the message fits",
		seen: "mcastlab; rxe looks at the bytes that arrive",
		bugs: []bug{{
			wrong: "The whole list has to be in memory",
			edits: edit("virtrnic/responder.go", "\t\tr.pieces = r.mr == nil\n", "\t\tif r.pieces = r.mr == nil; r.left > 0 && !q.nic.reachable(q.pd, r.wr.sge, r.wr.sgl(), AccessLocalWrite) {\n\t\t\treturn wire.SyndromeRemoteOp, WCLocProtErr\n\t\t}\n"),
			test:  "virtrnic TestReceiveBeyondRegion",
		}},
	},
	{
		what: "A launcher overrides what its user has set, and chooses what ends the job",
		seen: "mcastlab, with OSU's one-sided benchmarks and with UCX 1.22",
		bugs: []bug{{
			wrong: "Options of mpirun hide the user's variables",
			edits: edit("orchestrator/programs/settings.go", "if _, ok := os.LookupEnv(prefix + s.name); !ok {", "if prefix != \"\" || os.Getenv(s.name) == \"\" {"),
			test:  "orchestrator/programs TestSettings",
		}, {
			wrong: "One-sided communication goes by what has no atomics",
			edits: edit("orchestrator/programs/settings.go", `{"osc", "^rdma"}`, `{"osc", "^ucx"}`),
			test:  "command TestLiveOneSided", root: true,
		}, {
			wrong: "UCX 1.22 looks for a route of the kernel",
			edits: edit("orchestrator/programs/program.go", "\t\town = append(own, ProgramSettings()...)\n", ""),
			test:  "orchestrator/programs TestSettings",
		}},
	},
	{
		what: "A program takes a folder of the device's for one that is not there",
		seen: "mcastlab, with pyverbs, which leaves out all tests of rdma_cm",
		bugs: []bug{{
			wrong: "Only files are shown",
			edits: edit("verbs/sysfs/sysfs.c", "\tif (is_folder(find(path))) {", "\tif (0) {"),
			test:  "nodeagent/verbs TestSysfs",
		}},
	},
}
