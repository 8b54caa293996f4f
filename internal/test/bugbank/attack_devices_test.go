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
		}},
	},
}
