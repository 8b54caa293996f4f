// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackJoins are groups of external devices, and of switches that take another's place.
var attackJoins = []pitfall{
	{
		what: "A real device joins a group, and its switch never hears of it",
		seen: "mcastlab: the port of an external host took IGMP and MLD for foreign, as bridges do that snoop and see no querier",
		bugs: []bug{{
			wrong: "Reports of a device stay at its port",
			edits: edit("internal/external/joins.go", "\ta.tell(now, up)\n\tif full {", "\tif full {"),
			test:  "internal/external TestJoinsOfDevice",
		}, {
			wrong: "Queries do not reach the device, which is taken out",
			edits: edit("internal/external/joins.go", "\ta.stats.Queries++\n\ta.out.send(now, f)\n", "\ta.stats.Queries++\n\ta.c.Pool.Put(f)\n"),
			test:  "internal/external TestDeviceQueried",
		}, {
			wrong: "A port without an answer is kept by who stands between",
			edits: edit("internal/external/joins.go", "return m.heard < since", "return m.heard < since && m.heard < 0"),
			test:  "internal/external TestDeviceQueried",
		}},
	},
	{
		what: "One number stands for two addresses of a group",
		seen: "this project: ff0e::ffff:239.1.2.3 and ff15::239.1.2.3 of one device",
		bugs: []bug{{
			wrong: "The device leaves one address, and the switch stops the other",
			edits: edit("internal/external/joins.go", "\t\t\tif len(a.joins.of(x.Number)) == 0 {", "\t\t\tif true {"),
			test:  "internal/external TestJoinsOfDevice",
		}, {
			wrong: "A datagram comes under the fabric's address, which the device has not joined",
			edits: edit("internal/external/joins.go", "\t\tg.SetGroup(m.Addr)\n", "\t\t_ = m\n"),
			test:  "internal/external TestJoinsOfDevice",
		}, {
			wrong: "An address is changed and the ICRC is not",
			edits: edit("core/wire/regroup.go", "\t\tf.icrc ^= f.icrcDelta(at, x[:len(a)])\n", ""),
			test:  "core/wire TestSetGroup",
		}},
	},
	{
		what: "Every Linux host joins groups of its link, which fill the fabric's tables",
		seen: "RFC 4541, 2.1.2",
		bugs: []bug{{
			wrong: "They are joined like all others",
			edits: edit("internal/external/joins.go", "case !group || linkScope(x.Addr):", "case !group:"),
			test:  "internal/external TestJoinsOfDevice",
		}},
	},
	{
		what: "A frame of the largest MTU to an address of another kind is longer than any that is kept",
		seen: "this project: 4,096 bytes to ff0e::/16",
		bugs: []bug{{
			wrong: "The headers of a frame of no kind have 60 bytes",
			edits: edit("core/wire/bytes.go", "max(MinFrameLen, min(len(b)-BlockCap, HeaderCap-VLANLen))", "MinFrameLen"),
			test:  "core/wire TestRegroup",
		}},
	},
	{
		what: "A switch agent's successor forwards to nobody until it has asked",
		seen: "this project",
		bugs: []bug{{
			wrong: "The successor knows no group",
			edits: edit("nodeagent/successor_linux.go", "\t\tn.sw.Resume(x.Left.Last, x.Snooped)\n", ""),
			test:  "nodeagent TestSwitchSuccessor",
		}, {
			wrong: "It believes what it was left for as long as two minutes",
			edits: edit("virtswitch/snoop.go", "\ts.setDue(now.Add(pauseGap))\n}\n\n// ofPrograms", "\ts.setDue(now.Add(queryInterval))\n}\n\n// ofPrograms"),
			test:  "virtswitch TestMembershipsResumed",
		}},
	},
}
