// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackBounds are bounds of virtual time, and links and memory of labs in containers, found by attacking mcastlab itself.
var attackBounds = []pitfall{
	{
		what: "A bound that holds for those that may do something is asked of those that only take what has come",
		seen: "mcastlab: a lab whose tiers have unlike delays ended with exit 4",
		bugs: []bug{{
			wrong: "A node whose links are full may report no event before what was known of it",
			edits: edit("drivers/window/ledger.go", "i.floor = min(i.floor, a.from.Add(f.Delay))", "i.floor = min(i.floor, i.from)"),
			test:  "drivers/lockstep TestSameTiers/allgather",
		}, {
			wrong: "It may report whatever it likes",
			edits: edit("drivers/window/ledger.go", "next < a.floor {", "next < a.floor && false {"),
			test:  "drivers/window TestLedgerLies",
		}, {
			wrong: "A frame may arrive as soon as its sender has an event",
			edits: edit("drivers/window/ledger.go", "soonest := a.from.Add(f.Delay); at < soonest {\n\t\t\treturn fmt.Errorf(\"node %s says that a frame", "soonest := a.from; at < soonest {\n\t\t\treturn fmt.Errorf(\"node %s says that a frame"),
			test:  "drivers/window TestLedgerLies",
		}, {
			wrong: "A request on the out-of-band channel may have been sent before the round",
			edits: edit("drivers/window/ledger.go", "l.parts[part].from.Add(delay); at < soonest {", "l.parts[part].from; at < soonest {"),
			test:  "drivers/window TestLedgerRequest",
		}},
	},
	{
		what: "What has been set up is taken for ready: the first frame of a link is lost, and sendmsg reports success",
		seen: "mcastlab: 65 of 200 links, from the end that came up first; two of 150 labs ended after a minute",
		bugs: []bug{{
			wrong: "An interface that is up is not waited for",
			edits: edit("drivers/netdev/netdev_linux.go", "[]End{a, b} {\n\t\tif err := e.NS.ready", "[]End{} {\n\t\tif err := e.NS.ready"),
			test:  "drivers/netdev TestFirstFrame", root: true,
		}},
	},
	{
		what: "The transport's words stand before what went wrong, twice",
		seen: "mcastlab: node leaf0, at 8us of lab time: rpc error: code = Aborted desc = rpc error: code = Aborted desc = h0:0 announced frame 0",
		bugs: []bug{{
			wrong: "Errors are shown as gRPC spells them",
			edits: edit("internal/nodeapi/plain.go", "prefix.ReplaceAllString(e.s.Message(), \"\")", "e.s.String()"),
			test:  "internal/nodeapi TestPlain",
		}},
	},
	{
		what: "What a failed step is to clean up by, its error return has set to nil",
		seen: "mcastlab: with few open files, a Go trace, and the lab stayed up",
		bugs: []bug{{
			wrong: "A coordinator's memory is cleaned up by way of a result",
			edits: edit("drivers/lockstep/shared_linux.go", "local []bool) (_ *shared, err error) {\n\tg := cfg.Graph\n\ts := &shared", "local []bool) (s *shared, err error) {\n\tg := cfg.Graph\n\ts = &shared"),
			test:  "drivers/lockstep TestMemoryFails",
		}, {
			wrong: "So is a node's",
			edits: append(edit("drivers/lockstep/files_linux.go", "(_ *NodeMemory, err error)", "(m *NodeMemory, err error)"), edit("drivers/lockstep/files_linux.go", "m := &NodeMemory{}", "m = &NodeMemory{}")...),
			test:  "drivers/lockstep TestMemoryFails",
		}, {
			wrong: "A coordinator without memory is closed by way of the memory that could not be made",
			edits: edit("drivers/lockstep/coordinator_linux.go", "\ts, err := newShared(cfg, all)\n\tif err != nil {\n\t\treturn nil, err\n\t}\n\tc.shared = s\n", "\tif c.shared, err = newShared(cfg, all); err != nil {\n\t\treturn nil, errors.Join(err, c.Close())\n\t}\n"),
			test:  "drivers/lockstep TestMemoryFails",
		}},
	},
	{
		what: "A key of switches is taken in a lab without switches, where one half of what it asks for is missing",
		seen: "mcastlab: two hosts back to back with credits send one packet each, and no more",
		bugs: []bug{{
			wrong: "A NIC spends credits on a link to another NIC",
			edits: edit("drivers/fabric/fabric.go", "s.Switch.Input.Credits && s.toSwitch(node)", "s.Switch.Input.Credits"),
			test:  "lab/search TestWideCredits",
		}, {
			wrong: "Random labs have no hosts back to back",
			edits: edit("lab/search/labdraw.go", "if d.wide && d.r.Chance(0.5) {", "if false {"),
			test:  "lab/search TestWideKeys",
		}},
	},
	{
		what: "Two ends of a link count one packet under two priorities",
		seen: "mcastlab fuzz --labs 1 --from 8005199, at 74f15dca: a lab with credits, a VLAN and a rule for a code point waits for good",
		bugs: []bug{{
			wrong: "Rules for code points are taken with credits",
			edits: edit("lab/switchcheck.go", "*k.PCP != k.Priority {", "*k.PCP > 7 {"),
			test:  "lab TestErrors",
		}},
	},
	{
		what: "A line that one reader counts is none for another, and an index leaves its slice",
		seen: "go test -fuzz FuzzParse ./lab: a lab file with line ends of CR alone",
		bugs: []bug{{
			wrong: "The search for wrong indentation counts lines as the parser does",
			edits: edit("lab/parse.go", "lines[:min(last, len(lines))]", "lines[:last]"),
			test:  "lab TestRemedies",
		}},
	},
}
