// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

var roce = []pitfall{
	{
		number: 31, what: "A guard that can never fire",
		seen: "Linux rxe, check_length: it looks for flags of an opcode in the opcode itself",
		bugs: []bug{{
			wrong: "The check that a packet in the middle of a message is full looks for the flag in the opcode, eight bits that cannot hold it",
			edits: edit("virtrnic/responder.go", "case info.Flags&wire.OpFull != 0 && size != uint64(q.mtu),", "case uint32(op)&^0xff != 0 && size != uint64(q.mtu),"),
			test:  "virtrnic TestBadRequests",
		}, {
			wrong: "A packet that does not begin a message is taken where none has begun",
			edits: edit("virtrnic/responder.go", "case info.Flags&wire.OpBegin != 0 == r.active:", "case info.Flags&wire.OpBegin != 0 && r.active:"),
			test:  "virtrnic TestBadRequests",
		}},
	},
	{
		number: 32, what: "The length of a payload is that of the datagram less headers, pad and ICRC, and nobody looks whether anything is left",
		seen: "Linux rxe, rxe_recv.c",
		bugs: []bug{{
			wrong: "A packet that ends inside the headers of its opcode is cut all the same",
			edits: edit("core/wire/bytes.go", "\tif n < 0 {\n\t\treturn ErrShort\n\t}\n", ""),
			test:  "core/wire TestParseLength",
		}, {
			wrong: "A datagram is as long as its UDP header says, whatever has come of it",
			edits: edit("core/wire/bytes.go", "if int(udp.Length) != len(dgram) {", "if false {"),
			test:  "core/wire TestParseLength",
		}},
	},
	{
		number: 33, what: "Copies of a multicast packet share what is known of the packet, and the later one overwrites the earlier",
		seen: "Linux rxe, rxe_rcv_mcast_pkt",
		bugs: []bug{{
			wrong: "A switch bridges one frame to each member in turn instead of a copy for each",
			edits: edit("virtswitch/group.go", "s.emitData(now, s.pool.Clone(f), g, last, &a)", "s.emitData(now, f, g, last, &a)"),
			test:  "virtswitch TestReplication",
		}, {
			wrong: "An adapter hands one frame to all queue pairs that are attached to a group",
			edits: edit("virtrnic/nic.go", "last.takeMulticast(now, n.pool.Clone(f))", "last.takeMulticast(now, f)"),
			test:  "virtrnic TestMulticast",
		}},
	},
	{
		number: 34, what: "The repeat of a READ is answered with less care than the READ",
		seen: "Linux rxe, rxe_resp.c",
		bugs: []bug{{
			wrong: "Domain and rights are not looked at again",
			edits: edit("virtrnic/resources.go", "case !q.allows(h.RKey, h.VA, h.DMALen, AccessRemoteRead):", "case q.nic.region(h.RKey) == nil:"),
			test:  "virtrnic TestReplayChecks",
		}, {
			wrong: "A repeat from the middle has the length of the whole, and reads what is behind",
			edits: edit("virtrnic/resources.go", "case done+uint64(h.DMALen) > uint64(e.length):", "case h.DMALen > e.length:"),
			test:  "virtrnic TestReplayChecks",
		}},
	},
	{
		number: 35, what: "Repeats of READs and of what stands beside them get in each other's way",
		seen: "Linux commits 4e4c53df, 030e46e4",
		bugs: []bug{{
			wrong: "The repeat of a READ in the middle of a message ends the message",
			edits: edit("virtrnic/resources.go", "\te := r.past.find(psn)\n", "\te := r.past.find(psn)\n\tr.active = false\n"),
			test:  "virtrnic TestReplayInMessage",
		}, {
			wrong: "The repeat of a WRITE is acknowledged with the number of a READ after it, whose answer is still to come",
			edits: edit("virtrnic/resources.go", "last = at.Add(-1)", "_ = at"),
			test:  "virtrnic TestDuplicateBeforeRead",
		}, {
			wrong: "A READ that is requested again starts from its first packet instead of where its answers stopped",
			edits: edit("virtrnic/reader.go", "return max(w.first, r.una)", "return seq"),
			test:  "virtrnic TestRandomReads",
		}},
	},
	{
		number: 36, what: "Keys that can be guessed, ranges whose end overflows",
		seen: "CVE-2016-8636; Linux rxe, rxe_mr.c",
		bugs: []bug{{
			wrong: "The end of a range is computed, and comes out below its start",
			edits: edit("virtrnic/mr.go", "if va < m.addr || length > m.length || va-m.addr > m.length-length {", "if va < m.addr && va+length > m.addr || va+length > m.addr+m.length {"),
			test:  "virtrnic TestRemoteErrors",
		}, {
			wrong: "A key is looked up by its index, and the rest of it is not compared",
			edits: edit("virtrnic/mr.go", "m != nil && m.key != key {", "m == nil {"),
			test:  "virtrnic TestRemoteErrors",
		}},
	},
	{
		number: 37, what: "A timer fires while its queue pair is being destroyed",
		seen: "CVE-2026-45910",
		bugs: []bug{{
			wrong: "A queue pair leaves its timers behind when it goes",
			edits: []patch.Edit{
				{File: "virtrnic/qp.go", Old: "\tq.stopTimers()\n\tq.enter(now, StateReset)\n", New: "\tq.enter(now, StateReset)\n"},
				{File: "virtrnic/nic.go", Old: "\t\tcase q == nil:\n", New: ""},
			},
			test: "virtrnic TestDestroyedUnderTimers",
		}},
	},
	{
		number: 38, what: "A receiver asks once for what it lacks: if a switch swallows that, only a timeout helps",
		seen: "Linux rxe, sent_psn_nak",
		bugs: []bug{{
			wrong: "A switch that has passed a NAK on keeps back all later ones for the same packet, also after it has come again",
			edits: edit("virtswitch/group.go", "\tg.onData(psn)\n", ""),
			test:  "virtswitch TestAskedAgain",
		}, {
			wrong: "A NAK that acknowledges nothing new is put aside until something else comes",
			edits: edit("virtswitch/aggregation.go", "if smallest && a.rules.NakGenerates || ", "if "),
			test:  "virtswitch TestAskedAgain",
		}},
	},
	{
		number: 39, what: "Frames that nobody has a route for are flooded, or turn up again after they came down, and lossless classes lock each other",
		seen: "Guo et al., SIGCOMM 2016, §4.2",
		bugs: []bug{{
			wrong: "A switch floods what it has no route for",
			edits: edit("virtswitch/switch.go", "\t\ts.drop(now, in, f, DropNoRoute)\n\t\treturn\n", "\t\tvar a arrival\n\t\ts.arrived(&a, f, in)\n\t\ta.shared = true\n\t\tfor q := range s.ports {\n\t\t\tif q != in {\n\t\t\t\ts.out(now, q, s.pool.Clone(f), &a)\n\t\t\t}\n\t\t}\n\t\ts.pool.Put(f)\n\t\treturn\n"),
			test:  "virtswitch TestForward",
		}, {
			wrong: "A group's tree climbs by a port that its packets have come down by",
			edits: edit("virtswitch/registration.go", "case s.up != nil && s.up.has(port) && !climb.has(port):", "case false:"),
			test:  "virtswitch TestOnePortUp",
		}},
	},
	{
		number: 40, what: "One loss makes the sender do all over again, and under any loss at all nothing comes to its end",
		seen: "Guo et al., SIGCOMM 2016, §4.1",
		bugs: []bug{{
			wrong: "A loss sends the source back to the start of the message instead of to the packet that is missing",
			edits: edit("virtrnic/irn_requester.go", "\tif s == nil {\n\t\tr.seek(r.una)\n", "\tif s == nil {\n\t\tr.seek(min(r.una, r.wqes.At(0).first))\n"),
			test:  "virtrnic TestGoesBackToLoss",
		}, {
			wrong: "Every packet behind a gap is answered with a NAK of its own, each of which makes the source go back",
			edits: edit("virtrnic/responder.go", "\t\tif r.nakSent {\n\t\t\tn.drop(now, f, DropSequence)\n\t\t\treturn\n\t\t}\n", ""),
			test:  "virtrnic TestGoesBackToLoss",
		}},
	},
	{
		number: 41, what: "The watchdog of pauses sees storms that are none, and overlooks those that are",
		seen: "sonic-buildimage#29203 and #3964, sonic-swss#4581, #1586 and #3036",
		bugs: []bug{{
			wrong: "While the storm lasts the priority is given back, and taken over again, and so on",
			edits: edit("virtswitch/pfc.go", "s.watchdogs[port].stopped(uint8(i))\n", "s.watchdogs[port].stopped(uint8(i))\n\t\tif storm {\n\t\t\ts.watchdogs[port].due[i] = now\n\t\t\ts.armWatchdog(port, now)\n\t\t}\n"),
			test:  "virtswitch TestWatchdog",
		}, {
			wrong: "The end of a pause does not stop the watchdog's clock: pauses with breaks count as one",
			edits: edit("virtswitch/watchdog.go", "\t\tw.due[prio] = vtime.Never\n\t\tif w.storm", "\t\tif w.storm"),
			test:  "virtswitch TestWatchdogPatience",
		}, {
			wrong: "A pause with nothing waiting is a storm",
			edits: edit("virtswitch/pfc.go", "\t\t\tif e.ready>>i&1 != 0 {\n\t\t\t\ts.watch(now, port, uint8(i))\n\t\t\t}\n", "\t\t\ts.watch(now, port, uint8(i))\n"),
			test:  "virtswitch TestWatchdogPatience",
		}, {
			wrong: "A link that goes down while its neighbour pauses stays paused, and is taken for a storm",
			edits: edit("virtswitch/command.go", "\ts.resume(now, port, s.eg[port].obeyed().stopped)\n", ""),
			test:  "virtswitch TestWatchdogLinkDown",
		}, {
			wrong: "What waited before the pause came does not start the clock: the storm is noticed when the next frame comes, if one does",
			edits: edit("virtswitch/pfc.go", "\t\t\tif e.ready>>i&1 != 0 {\n\t\t\t\ts.watch(now, port, uint8(i))\n\t\t\t}\n", ""),
			test:  "virtswitch TestWatchdogWaiting",
		}},
	},
	{
		number: 42, what: "Congestion control that is stable with two flows need not be with ten, and its notifications stand in the queue they are about",
		seen: "Zhu et al., CoNEXT 2016",
		bugs: []bug{{
			wrong: "Notifications travel in the class of the data, which is paused when they are needed most",
			edits: edit("virtrnic/cnp.go", "const cnpTraffic = 48<<2 | wire.ECNECT0", "const cnpTraffic = 26<<2 | wire.ECNECT0"),
			test:  "virtrnic TestNotificationPoint",
		}, {
			wrong: "Each marked packet is notified, however many there are: the more flows, the deeper each is cut",
			edits: edit("virtrnic/cnp.go", "\tif now < q.cc.quiet {\n\t\treturn\n\t}\n", ""),
			test:  "virtrnic TestNotificationPoint",
		}},
	},
}
