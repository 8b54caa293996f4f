// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackHosts are descriptors, servers and clean-up on the server that carries a lab, found by attacking mcastlab itself.
var attackHosts = []pitfall{
	{
		what: "A process that outlives its caller inherits the caller's files, and with them its locks and its rights",
		seen: "mcastlab: a program as nobody read /etc/shadow from a descriptor of root's shell, and flock waited for a lab's nodes",
		bugs: []bug{{
			wrong: "Descriptors stay as the caller left them",
			edits: edit("command/main.go", "cmp.Or(enoughFiles(), keepDescriptors())", "cmp.Or(enoughFiles())"),
			test:  "command TestDescriptors", root: true,
		}, {
			wrong: "Only the first few are looked at where the kernel has no close_range",
			edits: edit("command/descriptors_linux.go", "err == nil && fd > 2 {", "err == nil && fd > 2 && fd < 4 {"),
			test:  "command TestMarkDescriptors",
		}},
	},
	{
		what: "Cleaning up writes before it removes, so a full file system keeps everything",
		seen: "mcastlab, with a full /run",
		bugs: []bug{{
			wrong: "A destroy that cannot be recorded ends",
			edits: edit("orchestrator/destroy.go", "\t\trecorded = s.put(st)\n", "\t\tif recorded = s.put(st); recorded != nil {\n\t\t\treturn recorded\n\t\t}\n"),
			test:  "orchestrator TestDestroyTrouble", root: true,
		}},
	},
	{
		what: "A few requests that never end lock all other clients out",
		seen: "mcastlab: four requests with a body that never came held the server of metrics",
		bugs: []bug{{
			wrong: "Bodies are waited for",
			edits: edit("internal/httpserve/httpserve.go", "\t\tif r.ContentLength != 0 {", "\t\tif false {"),
			test:  "internal/httpserve TestBodies",
		}, {
			wrong: "Connections are not bounded in number",
			edits: edit("internal/httpserve/httpserve.go", "if len(c.idle)+len(c.busy) > ConnectionsMax {", "if len(c.idle)+len(c.busy) > 1000*ConnectionsMax {"),
			test:  "internal/httpserve TestBound",
		}, {
			wrong: "A request whose first bytes have arrived counts as under way",
			edits: edit("internal/httpserve/httpserve.go", "\tcase http.StateClosed, http.StateHijacked:", "\tcase http.StateActive:\n\t\tdelete(c.idle, conn)\n\t\tc.busy[conn] = true\n\tcase http.StateClosed, http.StateHijacked:"),
			test:  "internal/httpserve TestBound",
		}},
	},
	{
		what: "A check finds ready whatever answers",
		seen: "mcastlab: check as nobody, without a Swarm",
		bugs: []bug{{
			wrong: "A runtime is asked for its labs alone",
			edits: edit("orchestrator/check.go", "err == nil && ok {\n\t\terr = r.Ready(ctx)", "err == nil && ok && false {\n\t\terr = r.Ready(ctx)"),
			test:  "orchestrator TestRuntimeOf",
		}},
	},
	{
		what: "A word that is not in the list has index -1, which is less than any other",
		seen: "mcastlab: an unknown kind of fault was said to be one of links",
		bugs: []bug{{
			wrong: "Only the order of kinds is looked at",
			edits: edit("faults/kind.go", "return k.Known() && slices.Index(kinds, k) <= slices.Index(kinds, KindLinkDown)", "return slices.Index(kinds, k) <= slices.Index(kinds, KindLinkDown)"),
			test:  "faults TestUnknownKind",
		}},
	},
}
