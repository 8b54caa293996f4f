// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackHPL are figures quoted from programs and papers, found by attacking mcastlab itself.
var attackHPL = []pitfall{
	{
		what: "A generator that is almost the reference's: what it makes passes its own checks",
		seen: "HPL's matrix, N 1000: ||A||_1 was 263.917 here, hpcc has 263.865; argued for the norms that only the report has",
		bugs: []bug{{
			wrong: "The generator starts one number too early, and every column is shifted by one",
			edits: edit("apps/hpl/matrix.go", "g.myRow, g.P)) + 1).of(lcgSeed)", "g.myRow, g.P))).of(lcgSeed)"),
			test:  "apps/hpl TestMatrix",
		}, {
			wrong: "The norm ||A||_1 is of what one process row has",
			edits: edit("apps/hpl/solve.go", "\tif err := s.reduce(s.col, 0, len(columns), columns, sum); err != nil {\n\t\treturn err\n\t}\n", ""),
			test:  "apps/hpl TestNorms",
		}},
	}, {
		what: "A file that a lab names and that is elsewhere, or is no file",
		seen: "HPL's `dat:` followed a link to /etc/shadow and printed a line of it",
		bugs: []bug{{
			wrong: "Links are followed wherever they lead",
			edits: edit("lab/within.go", "\tf, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)\n", "\tf, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)\n"),
			test:  "lab TestDatStaysInFolder",
		}, {
			wrong: "A message shows what the file holds",
			edits: edit("apps/hpl/dat.go", "\t\tr.failf(\"a value is not a whole number\")\n", "\t\tr.failf(\"a value is not a whole number: %s\", s)\n"),
			test:  "lab TestDatStaysInFolder",
		}},
	}, {
		what: "A name from the command line that becomes a part of a path",
		seen: "--lab ../../x read a state.json outside the folder of labs",
		bugs: []bug{{
			wrong: "Any name is a lab's",
			edits: edit("orchestrator/store.go", "\tif !lab.NameOK(name) {\n", "\tif name == \"\" {\n"),
			test:  "orchestrator TestNamesStayInside",
		}, {
			wrong: "Any name is taken by --lab",
			edits: edit("command/fault_linux.go", "\tif !lab.NameOK(name) {\n", "\tif name == \"\" {\n"),
			test:  "command TestLabNames",
		}},
	}, {
		what: "A file whose end is missing, taken for all there is",
		seen: "half of a trace.jsonl was explained as if it were the run",
		bugs: []bug{{
			wrong: "A trace ends where its file does",
			edits: edit("traces/explain/load.go", "\tif end != n-1 {\n", "\tif end > n {\n"),
			test:  "traces/explain TestTruncated",
		}, {
			wrong: "A trace may lack lines in between",
			edits: edit("traces/explain/load.go", "if err := sum.End(uint64(l.Count), l.Sum); err != nil &&", "if err := sum.End(uint64(l.Count), l.Sum); false &&"),
			test:  "traces/explain TestTruncated",
		}, {
			wrong: "What is shown of half a trace ends with exit code 0",
			edits: edit("command/trace.go", "\tif t.Incomplete != \"\" {", "\tif t.Incomplete == \"-\" {"),
			test:  "command TestTraceErrors",
		}},
	}, {
		what: "Called durable, and not asked of the disk",
		seen: "intents and state.json were written and renamed, and never synced",
		bugs: []bug{{
			wrong: "The content of a state is not synced before it gets its name",
			edits: edit("orchestrator/disk.go", "; err == nil {\n\t\terr = f.Sync()\n\t}\n\treturn errors.Join(err, f.Close())", "; err != nil {\n\t\terr = f.Sync()\n\t}\n\treturn errors.Join(err, f.Close())"),
			test:  "orchestrator TestLossOfPower",
		}, {
			wrong: "The new name of a state is not synced",
			edits: edit("orchestrator/disk.go", "\t\treturn err\n\t}\n\treturn syncFolder(d, filepath.Dir(path))\n}\n\n// writeSynced", "\t}\n\treturn err\n}\n\n// writeSynced"),
			test:  "orchestrator TestLossOfPower",
		}},
	}, {
		what: "A listener that takes a passing want for its end, or asks again without a pause",
		seen: "too many open files ended a controller's listener for good, and made an agent spin",
		bugs: []bug{{
			wrong: "Any error of Accept is the end",
			edits: edit("internal/nodeapi/accept.go", "if err == nil || errors.Is(err, net.ErrClosed) {", "if true || errors.Is(err, net.ErrClosed) {"),
			test:  "internal/controller/replica TestListensOn",
		}, {
			wrong: "No pause between attempts, and each is told",
			edits: edit("internal/nodeapi/accept.go", "\t\twait = min(2*wait, acceptWaitMax)\n", "\t\twait = acceptWait\n"),
			test:  "internal/nodeapi TestAccept",
		}},
	}, {
		what: "A log that is believed although a bit of it is not what was written",
		seen: "a flipped byte of a raft log ended in the trace of a library's panic",
		bugs: []bug{{
			wrong: "An entry of the log has no sum",
			edits: edit("internal/controller/replica/sum.go", "\tif string(entrySum(l)) != string(sum) {\n", "\tif len(sum) == 0 {\n"),
			test:  "internal/controller/replica TestFlipped",
		}, {
			wrong: "An older page of beginnings stands in for the newer, and the last write is gone",
			edits: edit("internal/controller/replica/verify.go", " || e.Uint64(m[boltMetaSummed:]) != sum.Sum64() {", " {"),
			test:  "internal/controller/replica TestFlipped",
		}, {
			wrong: "A leader that comes upon damage ends in raft's panic, or goes on",
			edits: edit("internal/controller/replica/disk.go", "\tif d.started.Load() {\n\t\td.stuck.Store(true)\n", "\tif !d.started.Load() {\n\t\td.stuck.Store(true)\n"),
			test:  "internal/controller/replica TestDamagedReplica",
		}},
	}, {
		what: "What has not been opened is closed on the way out",
		seen: "a store that could not be opened again after a crash ended in a nil pointer; argued for a store passed over at first",
		bugs: []bug{{
			wrong: "The store of a replica is closed although there is none",
			edits: edit("apps/storage/replica.go", "\t\t\tif p.store == nil {\n\t\t\t\treturn // it could not be opened again\n\t\t\t}\n", ""),
			test:  "apps/storage TestNoStore",
		}},
	},
}
