// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackGroups are multicast groups of programs, which joined and heard nothing through a switch.
var attackGroups = []pitfall{
	{
		what: "A join succeeds, and no switch on the way knows of it",
		seen: "mcastlab, with mckey and perftest -g; tested until then with two NICs on one wire",
		bugs: []bug{{
			wrong: "A switch keeps to itself what it has been told of members",
			edits: edit("virtswitch/snoop.go", "\tif !known {\n\t\ts.climbs(now, g)\n\t}\n", ""),
			test:  "drivers/sim TestJoins",
		}, {
			wrong: "A change of state is reported once, and the report may be lost",
			edits: edit("virtswitch/snoop.go", "\tfor range wire.MembershipRobustness {\n", "\tfor range 1 {\n"),
			test:  "virtswitch TestMembershipsProxy",
		}},
	},
	{
		what: "A packet to a group goes back where it came from, and round for ever",
		seen: "argued",
		bugs: []bug{{
			wrong: "A packet also leaves by the port that it came by",
			edits: edit("virtswitch/snoop.go", "\t\tif p == in || p == up {", "\t\tif p == up {"),
			test:  "drivers/sim TestJoins",
		}},
	},
	{
		what: "Who has left without a word stays a member",
		seen: "RFC 3376, 4.1: queriers exist for this",
		bugs: []bug{{
			wrong: "Nobody is removed who has not answered",
			edits: edit("virtswitch/snoop.go", "\t\ts.quit(now, x.port, x.ip)\n\t}\n\ts.stats.MembershipsExpired", "\t\t_ = x\n\t}\n\ts.stats.MembershipsExpired"),
			test:  "drivers/sim TestJoinsExpire",
		}, {
			wrong: "There is room for as many members as report",
			edits: edit("virtswitch/snoop.go", "\tif n.members == MembershipsMax {", "\tif false {"),
			test:  "virtswitch TestMembershipsFull",
		}},
	},
	{
		what: "What a program sends to a group does not reach others at its host, or comes back to who does not want it",
		seen: "mcastlab, with rdma-core's own multicast tests",
		bugs: []bug{{
			wrong: "The sending queue pair hears itself although it blocks that",
			edits: edit("virtrnic/loopback.go", "q.loopback == LoopbackOthers && f.DETH().SrcQP != q.num", "q.loopback == LoopbackOthers"),
			test:  "virtrnic TestMulticastLoopback",
		}},
	},
}
