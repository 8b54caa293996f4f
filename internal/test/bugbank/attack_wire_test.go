// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackWire are packets that adapters of others do not take, or do not send.
var attackWire = []pitfall{
	{
		what: "A bit that nobody here looks at is sent as it comes, and devices look at it",
		seen: "rxe-dev issue 6: a ConnectX-3 sets MigReq and did not take Soft-RoCE's acknowledgements, which clear it; so did all that mcastlab sent",
		bugs: []bug{{
			wrong: "Requests and answers of connections have MigReq 0",
			edits: edit("core/wire/build.go", "h := BTH{Migrated: true, PKey: PKeyDefault, DestQP: dst}", "h := BTH{PKey: PKeyDefault, DestQP: dst}"),
			test:  "drivers/sim TestMigrated",
		}, {
			wrong: "READs and atomics have MigReq 0",
			edits: edit("virtrnic/reader.go", "bth := wire.BTH{Migrated: true, PKey", "bth := wire.BTH{PKey"),
			test:  "drivers/sim TestMigrated",
		}, {
			wrong: "Datagrams have MigReq 0",
			edits: edit("virtrnic/datagram.go", "OpCode: op, Migrated: true, PKey", "OpCode: op, PKey"),
			test:  "drivers/sim TestMigrated",
		}, {
			wrong: "Acknowledgements that a switch makes have MigReq 0",
			edits: edit("virtswitch/feedback.go", "OpCode: wire.OpAcknowledge, Migrated: true, PKey", "OpCode: wire.OpAcknowledge, PKey"),
			test:  "drivers/sim TestMigrated",
		}, {
			wrong: "Sums that a switch makes have MigReq 0",
			edits: edit("virtswitch/reduce.go", "OpCode: wire.OpUDSendOnlyImm, Migrated: true, PKey", "OpCode: wire.OpUDSendOnlyImm, PKey"),
			test:  "virtswitch TestReduceRoot",
		}, {
			wrong: "Datagrams of connection management have MigReq 0",
			edits: edit("virtrnic/gsi.go", "OpCode: wire.OpUDSendOnly, Migrated: true, PKey", "OpCode: wire.OpUDSendOnly, PKey"),
			test:  "virtrnic TestMADMigrated",
		}, {
			wrong: "CNPs have MigReq 1, which those of ConnectX adapters clear",
			edits: edit("virtrnic/cnp.go", "OpCode: wire.OpCNP, PKey", "OpCode: wire.OpCNP, Migrated: true, PKey"),
			test:  "drivers/sim TestMigrated",
		}},
	},
}
