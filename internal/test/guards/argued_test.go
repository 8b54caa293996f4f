// SPDX-License-Identifier: Apache-2.0

package guards

// argued are guards that no input can fire, or none of the sweeps', each with its purpose.
var argued = map[string]string{
	"drivers/sim/check.go walk: depth == 0": "A tree with a loop cannot be installed: in one attempt a switch is entered by one port and goes by one set of routes " +
		"(virtswitch/registration.go). Should that rule break, the walk of the checker ends here instead of never.",
	"drivers/sim/checktree.go follow: w.entered[far.Node]": "Invariant 8, for a switch that registers otherwise: bug-bank patches and mutants fire it.",
	"drivers/sim/check.go afterEvent: len(g.Paths) > ports": "Invariant 6. A switch keeps one path per port, in a table that is indexed by port, so that no input makes it keep more; " +
		"the check is for a switch that is written differently.",
	"drivers/sim/cutoff.go cutOff: n.graph.Nodes[far.Node].Kind == topo.Host": "The walk begins only at a switch that keeps a group at rest which no orphan explains: one lab of the 10,000 " +
		"of the soak had it. TestCutOff has links and switches fail one after the other, and TestVoidedAttempt (lab/runner) is that lab.",
	"drivers/sim/cutoff.go cutOff: !w.cutOff(far.Node)":                              "As that of a host.",
	"drivers/sim/cutoff.go cutOff: !w.c.gaps.switches[far.Node]":                     "As that of a host.",
	"drivers/sim/cutoff.go holds: !w.c.net.nodes[at.Node].sw.ReadGroup(w.group, &g)": "As that of a host.",
	"drivers/sim/schedule.go NewSchedule: err != nil": "Only the settings of a switch can be refused, and the simulation of a schedule has none. The check is for a simulation " +
		"that refuses something else one day.",
	"drivers/sim/loop.go step: at < n.now": "The event queue gives keys in order, and nothing is scheduled before now. An event of the past would be a mistake in one of the two, " +
		"which must not pass as a result.",
	"drivers/sim/task.go runTasks: t.done": "A task is put into the list of those that are ready only if it is parked, and it leaves the list before it runs. " +
		"The check is for a job that is ended from outside while one of its tasks is listed.",
	"drivers/sim/skip.go unfit: n.lates > 0 || len(n.ready) > 0 || len(n.postponed) > 0 || n.err != nil || n.stuck": "All of it is state that the probe does not visit. " +
		"Frames that a fault delays are gone, or the fault is still there, whenever one of the random labs is tried.",
	"drivers/sim/skip.go unfit: n.channel != nil && n.channel.coming > 0": "Messages of the out-of-band channel are state that the probe does not visit. In the random labs none is under way in the midst of a long message.",
	"drivers/sim/skip.go find: n.Next() == n.now && !s.instant()":         "A run that ends by an error at the very instant of a try must not be looked at.",
	"drivers/sim/ties.go after: y.node == x.node && !commute(x, y)": "Two frames at one switch and instant that want the same port, in a steady state: no random lab has had it, since senders that meet at a port queue there, one after " +
		"the other. TestTies (virtswitch) says of which frames the order shows.",
	"drivers/sim/ties.go commute: x.ack == y.ack || x.ack && !y.psn.After(x.psn) || y.ack && !x.psn.After(y.psn)": "As that of after: data of one group, or data and an acknowledgement of it, at one switch and instant.",
	"drivers/sim/ties.go commute: p == q": "As that of after: two frames that want the same port.",
	"virtrnic/events.go attach: len(members) == 0 && len(n.mcast) >= MaxMcastGroups && q.service == wire.UD": "4,096 groups at one NIC are more than any sweep joins. " +
		"TestLimits (nodeagent/verbs) asks for the limit and for one more.",
	"virtrnic/guest.go Loads: q.checkSend(wr, length) != nil, q.service == wire.UD && length > uint64(q.mtu)": "The drawn requests of hostile programs that are too long fail " +
		"an earlier check. TestRefusedReadsNothing (nodeagent/verbs) has one that fails only this one.",
	"virtrnic/guest.go EachLoad: w.traits&(isRead|isInline) != 0": "Memory is reclaimed only when the images are full, which the drawn programs do not reach. " +
		"TestImagesMax (nodeagent/verbs) reaches it with READs under way.",
	"virtrnic/nic.go multicast: own && q.service == wire.UD && !q.hears(f)": "No drawn program blocks what its own NIC sends to a group. TestMulticastLoopback (virtrnic) has the combinations.",
	"virtswitch/snoop.go rejoin: i < len(s.snoop.groups) && s.snoop.groups[i].ip != g.ip": "It takes a change of routes that makes the last port with members of a group " +
		"the way to the root of its tree. The drawn changes take links away and give them back, after which the root is where it was.",
	"virtswitch/snoop.go answerQuery: !slices.Contains(s.fib.Uplinks, in)": "Only switches query, and each queries downward. The check is for a host that queries: no answer leads packets to it.",
	"virtswitch/snoop.go forwardJoined: !f.DecTTL()":                       "Drawn datagrams have the TTL of the NIC, and no way through a tree is as long. A program may set another one.",
	"internal/external/seen.go given: op.Service() != wire.RC":             "The drawn packets to a device are RC. UC and UD have no acknowledgement that could be missing.",
}
