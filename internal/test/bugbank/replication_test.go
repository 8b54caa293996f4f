// SPDX-License-Identifier: Apache-2.0

package bugbank

import "github.com/mcastlab/mcastlab/internal/test/patch"

var replication = []pitfall{
	{
		number: 22, what: "Leadership that is lost leaves the outcome unknown, and the client does it again",
		seen: "hashicorp/raft, api.go",
		bugs: []bug{{
			wrong: "What a command came to is not kept: one that comes again takes effect again",
			edits: edit("internal/controller/apply.go", "\tx.Results = slices.Insert(x.Results, i, Kept{c.Seq, r})\n", ""),
			test:  "internal/controller TestOnce",
		}, {
			wrong: "Each try of a command has a number of its own, and nobody can tell that they are the same",
			edits: edit("internal/controller/client/client.go", "\t\tcmd.Low = c.low(cmd.Seq)\n", "\t\tc.mu.Lock()\n\t\tcmd.Seq = c.next\n\t\tc.next++\n\t\tc.mu.Unlock()\n\t\tcmd.Low = c.low(cmd.Seq)\n"),
			test:  "internal/controller/replica TestAnswerLost",
		}, {
			wrong: "A late copy of a client that is forgotten is taken for a new command",
			edits: []patch.Edit{
				{File: "internal/controller/apply.go", Old: "if c.Until < s.Clock || c.Until > s.Clock+2*int64(Retry) {", New: "if c.Until > s.Clock+2*int64(Retry) {"},
				{File: "internal/controller/apply.go", Old: "\tcase c.Until < s.Clock:\n", New: "\tcase c.Until < 0:\n"},
			},
			test: "internal/controller TestOnce",
		}, {
			wrong: "That nobody has answered counts as a refusal, and the client does something else",
			edits: edit("internal/controller/client/client.go", "%s: %w: %w\", cmd.Kind, ErrUnknown, err)", "%s: %w: %w\", cmd.Kind, ErrRefused, err)"),
			test:  "internal/controller/replica TestNoMajority",
		}},
	},
	{
		number: 23, what: "A log store that hangs on the leader, whose heartbeats go on",
		seen: "hashicorp/raft#503",
		bugs: []bug{{
			wrong: "A leader that commits nothing goes on being heard, and nobody else is elected",
			edits: edit("internal/controller/replica/lead.go", "\t\t\tl.r.c.Network.mute(1)\n", "\t\t\tl.r.c.Network.mute(0)\n"),
			test:  "internal/controller/replica TestDiskHangs",
		}},
	},
	{
		number: 24, what: "What was acknowledged is not on the disk",
		seen: "rostam#94, nomad#14624, consul#15648",
		bugs: []bug{{
			wrong: "A replica says that a write is durable and has not asked the disk",
			edits: edit("apps/storage/pebblestore/pebble.go", "v.db.LogData(nil, pebble.Sync)", "v.db.LogData(nil, pebble.NoSync)"),
			test:  "apps/storage/pebblestore TestCrash",
		}, {
			wrong: "The folder of a store is not durable: after a loss of power it is gone with all that is in it",
			edits: edit("apps/storage/pebblestore/pebble.go", "errors.Join(above.Sync(), above.Close())", "above.Close()"),
			test:  "apps/storage/pebblestore TestCrash",
		}, {
			wrong: "A full disk is reported once, and what is written after that is acknowledged",
			edits: edit("apps/storage/pebblestore/pebble.go", "\tif err := g.failed(); err != nil {\n\t\treturn err\n\t}\n\tdone", "\tif err := g.failed(); err != nil {\n\t\treturn nil\n\t}\n\tdone"),
			test:  "apps/storage/pebblestore TestFull",
		}, {
			wrong: "A controller whose log could not be written goes on writing it",
			edits: edit("internal/controller/replica/disk.go", "\tif d.broken != nil {\n\t\treturn d.broken\n\t}\n", "\td.broken = nil\n"),
			test:  "internal/controller/replica TestBrokenDisk",
		}},
	},
	{
		number: 25, what: "A snapshot that cannot be read, or that is restored in part",
		seen: "hashicorp/raft#522, rqlite#2759, atomix#1038",
		bugs: []bug{{
			wrong: "A snapshot that cannot be read counts as one of nothing",
			edits: edit("internal/controller/replica/fsm.go", "\ts, err := controller.DecodeState(b)\n\tif err != nil {\n\t\treturn err\n\t}\n", "\ts, err := controller.DecodeState(b)\n\tif err != nil {\n\t\ts = controller.New()\n\t}\n"),
			test:  "internal/controller/replica TestRestore",
		}, {
			wrong: "What comes behind the end of a snapshot is not looked at",
			edits: edit("core/strictjson/strictjson.go", "if _, err := d.Token(); !errors.Is(err, io.EOF) {", "if _, err := d.Token(); errors.Is(err, io.ErrNoProgress) {"),
			test:  "internal/controller/replica TestRestore",
		}, {
			wrong: "A snapshot leaves out which commands have taken effect, and after it they do so again",
			edits: edit("internal/controller/controller.go", "Sessions []Session `json:\"sessions\"`", "Sessions []Session `json:\"-\"`"),
			test:  "internal/controller TestAgainstModel",
		}},
	},
	{
		number: 26, what: "A state machine that cannot fail, or that does I/O when it is replayed",
		seen: "hashicorp/raft#307",
		bugs: []bug{{
			wrong: "An entry that a replica does not understand is left out, and it goes on with a state of its own",
			edits: edit("internal/controller/replica/fsm.go", "panic(fmt.Sprintf(\"entry %d of the log: %v\", entry.Index, err))", "return controller.Result{Error: err.Error()}"),
			test:  "internal/controller/replica TestUnknownEntry",
		}, {
			wrong: "A command that cannot be ends all replicas, and at each start again",
			edits: edit("internal/controller/apply.go", "if g == nil || g.Run != c.Run {", "if g.Run != c.Run {"),
			test:  "internal/controller TestAgainstModel",
		}, {
			wrong: "The clock is read when an entry is applied, and what it comes to depends on when it is replayed",
			edits: edit("internal/controller/apply.go", "s.Clock = max(s.Clock, c.At)", "s.Clock = max(s.Clock, time.Now().UnixNano())"),
			test:  "internal/controller TestGolden",
		}},
	},
	{
		number: 27, what: "A snapshot taken while what it is taken of changes",
		seen: "hashicorp/raft, fsm.go",
		bugs: []bug{{
			wrong: "What is in a snapshot is found when it is written, beside the commands that are applied meanwhile",
			edits: []patch.Edit{
				{File: "internal/controller/replica/fsm.go", Old: "\tm.mu.Lock()\n\tdefer m.mu.Unlock()\n\tb, err := m.state.Encode()\n\treturn image(b), err\n", New: "\treturn image{m}, nil\n"},
				{File: "internal/controller/replica/fsm.go", Old: "type image []byte", New: "type image struct{ m *machine }"},
				{File: "internal/controller/replica/fsm.go", Old: "\tif _, err := sink.Write(i); err != nil {", New: "\tb, _ := i.m.read()\n\tif _, err := sink.Write(b); err != nil {"},
			},
			test: "internal/controller/replica TestSnapshotHolds",
		}},
	},
	{
		number: 28, what: "Who is not heard of counts as dead, and what he held is thrown away",
		seen: "cocoon-operator#20",
		bugs: []bug{{
			wrong: "An engine that does not answer is taken to hold nothing: the lab's folder goes, and its containers stay",
			edits: edit("orchestrator/destroy.go", "if errors.Is(err, engine.ErrUnavailable) && !s.under(e) {", "if errors.Is(err, engine.ErrUnavailable) {"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{
		number: 29, what: "Who comes back meets his replacement",
		seen: "nomad#12680, nomad#19729",
		bugs: []bug{{
			wrong: "A leader that was stopped goes on, and nodes do what it asks",
			edits: edit("internal/nodeapi/fence.go", "epoch < highest {", "epoch < min(highest, 1) {"),
			test:  "internal/nodeapi TestFenceOrder",
		}, {
			wrong: "A new leader is at work while a node is still doing what the old one asked",
			edits: edit("internal/nodeapi/fence.go", "\tf.calls.Lock() // those of older epochs end first\n\tdefer f.calls.Unlock()\n", ""),
			test:  "internal/nodeapi TestFence",
		}, {
			wrong: "A deposed leader's report of what it has done is believed",
			edits: edit("internal/controller/apply.go", "if c.Epoch < s.Epoch {", "if c.Epoch > s.Epoch {"),
			test:  "internal/controller TestDoneOfOld",
		}, {
			wrong: "That a fault is applied is taken down of one that is to go, and it stays",
			edits: edit("internal/controller/apply.go", "case f == nil || f.Stage != d.Stage || !d.Stage.pending():\n\t\t\tcase f.Stage == StageRemoving:", "case f == nil || !d.Stage.pending():\n\t\t\tcase d.Stage == StageRemoving:"),
			test:  "internal/controller TestDoneOfOld",
		}},
	},
	{
		number: 30, what: "Calls that are repeated, or waited for, without end hide that nobody answers",
		seen: "Jepsen, TigerBeetle 0.16.11",
		bugs: []bug{{
			wrong: "A node that stands still is waited for as long as it does",
			edits: edit("orchestrator/agents.go", "\t\tctx, cancel := context.WithTimeout(ctx, wait)\n\t\tdefer cancel()\n", ""),
			test:  "orchestrator TestCallsEnd",
		}},
	},
}
