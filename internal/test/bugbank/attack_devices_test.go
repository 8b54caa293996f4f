// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackDevices are formats and ends of runs that only devices of others show to be wrong.
var attackDevices = []pitfall{
	{
		what: "Both ends read a field the same wrong way, so that their own tests pass and no device of others connects",
		seen: "mcastlab, with rdma_cm of Linux: the Starting PSN of a REQ was the sender's first",
		bugs: []bug{{
			wrong: "The Starting PSN that a side says is the one that it sends with",
			edits: edit("core/cm/machine.go", "SQPSN: e.remote.psn, RQPSN: e.psn", "SQPSN: e.psn, RQPSN: e.remote.psn"),
			test:  "core/cm TestStartingPSN",
		}, {
			wrong: "A REP says the peer's Starting PSN again",
			edits: edit("core/cm/actions.go", "GUID: m.guid, QPN: p.QPN, PSN: e.psn,\n\t\tResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl, SRQ: p.SRQ,\n\t\tRNRRetryCount", "GUID: m.guid, QPN: p.QPN, PSN: e.remote.psn,\n\t\tResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl, SRQ: p.SRQ,\n\t\tRNRRetryCount"),
			test:  "internal/test/interop TestManaged/it_listens",
		}},
	},
	{
		what: "A run ends when those have the message that it sees, and takes the group from the others",
		seen: "mcastlab, with Linux Soft-RoCE as the root: verified, exit 0, while a receiver lacked the tail and the root its last acknowledgement",
		bugs: []bug{{
			wrong: "Devices are not waited for",
			edits: edit("apps/bcast/bcast.go", "if err == nil && len(p.External) > 0 {\n\t\t\tlast :=", "if err == nil && len(p.External) < 0 {\n\t\t\tlast :="),
			test:  "command TestExternalEnd/tail-lost", root: true,
		}, {
			wrong: "The group goes with the last acknowledgement, which a root may have to ask for again",
			edits: edit("orchestrator/dilated/device_confirmation.go", "|| !x.view.source || still >= wall(vtime.Duration(x.view.x.LingerTime()))", "|| !x.view.source || true"),
			test:  "orchestrator/dilated TestFinished",
		}, {
			wrong: "A root that has its acknowledgement and asks for it again has it",
			edits: edit("orchestrator/dilated/device_confirmation.go", "&& (s.OwedPSN == nil || wire.PSN(*s.OwedPSN).After(psn))", ""),
			test:  "orchestrator/dilated TestHas",
		}, {
			wrong: "Any acknowledgement to a device covers all that it has sent",
			edits: edit("internal/external/seen.go", "s.Owed = s.Owed && s.OwedPSN.After(psn)", "s.Owed = false"),
			test:  "internal/external TestSeen",
		}, {
			wrong: "A row is verified if the ranks that were asked have its bytes",
			edits: edit("apps/bcast/bcast.go", "\tok = ok && len(row.Unconfirmed) == 0\n", ""),
			test:  "command TestExternalEnd/dead", root: true,
		}},
	},
}
