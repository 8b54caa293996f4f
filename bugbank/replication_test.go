package bugbank

// noController is the reason of pitfalls that only a replicated controller can have.
const noController = "no replicated controller yet: one command at a time holds a lab's lock"

var replication = []pitfall{
	{number: 22, what: "Leadership that is lost leaves the outcome unknown, and the client does it again", seen: "hashicorp/raft, api.go", not: noController},
	{number: 23, what: "A log store that hangs on the leader, whose heartbeats go on", seen: "hashicorp/raft#503", not: noController},
	{
		number: 24, what: "What was acknowledged is not on the disk",
		seen: "rostam#94, nomad#14624, consul#15648",
		bugs: []bug{{
			wrong: "A replica says that a write is durable and has not asked the disk",
			edits: edit("store/pebble.go", "v.db.LogData(nil, pebble.Sync)", "v.db.LogData(nil, pebble.NoSync)"),
			test:  "store TestCrash",
		}, {
			wrong: "The folder of a store is not durable: after a loss of power it is gone with all that is in it",
			edits: edit("store/pebble.go", "errors.Join(above.Sync(), above.Close())", "above.Close()"),
			test:  "store TestCrash",
		}, {
			wrong: "A full disk is reported once, and what is written after that is acknowledged",
			edits: edit("store/pebble.go", "\tif err := g.failed(); err != nil {\n\t\treturn err\n\t}\n\tdone", "\tif err := g.failed(); err != nil {\n\t\treturn nil\n\t}\n\tdone"),
			test:  "store TestFull",
		}},
	},
	{number: 25, what: "A snapshot that cannot be read, or that is restored in part", seen: "hashicorp/raft#522, rqlite#2759, atomix#1038", not: noController},
	{number: 26, what: "A state machine that cannot fail, or that does I/O when it is replayed", seen: "hashicorp/raft#307", not: noController},
	{number: 27, what: "A snapshot taken while what it is taken of changes", seen: "hashicorp/raft, fsm.go", not: noController},
	{
		number: 28, what: "Who is not heard of counts as dead, and what he held is thrown away",
		seen: "cocoon-operator#20",
		bugs: []bug{{
			wrong: "An engine that does not answer is taken to hold nothing: the lab's folder goes, and its containers stay",
			edits: edit("orchestrator/deploy_linux.go", "if errors.Is(err, engine.ErrUnavailable) && !s.under(e) {", "if errors.Is(err, engine.ErrUnavailable) {"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{number: 29, what: "Who comes back meets his replacement", seen: "nomad#12680, nomad#19729", not: noController},
	{
		number: 30, what: "Calls that are repeated, or waited for, without end hide that nobody answers",
		seen: "Jepsen, TigerBeetle 0.16.11",
		bugs: []bug{{
			wrong: "A node that stands still is waited for as long as it does",
			edits: edit("orchestrator/clients_linux.go", "\t\tctx, cancel := context.WithTimeout(ctx, wait)\n\t\tdefer cancel()\n", ""),
			test:  "orchestrator TestCallsEnd",
		}},
	},
}
