// SPDX-License-Identifier: Apache-2.0

package bugbank

// attackResults are results that are wrong and said to be right, and files and messages about them, found by attacking
// mcastlab itself.
var attackResults = []pitfall{
	{
		what: "A number that JSON does not have loses the file that it should be in, and the run counts as passed",
		seen: "mcastlab: no summary.json, and meta.json said ok",
		bugs: []bug{{
			wrong: "A side of an expectation that is infinite compares like any other",
			edits: edit("lab/expect.go", "\tcase !finite(got):", "\tcase false:"),
			test:  "lab/runner TestNotFinite",
		}, {
			wrong: "A comparison with 1/0, which always holds, is taken",
			edits: edit("lab/expect.go", "b == 0 { // a constant", "b == 0 && false { // a constant"),
			test:  "lab TestExpectFinite",
		}, {
			wrong: "What could not be written does not count in the status",
			edits: edit("lab/runner/record.go", "\tcase written != nil: // what", "\tcase false: // what"),
			test:  "lab/runner TestNotWritten",
		}},
	},
	{
		what: "A damaged file is taken at its word",
		seen: "mcastlab: a changed measurement went into a table, lines taken out of the events were not missed",
		bugs: []bug{{
			wrong: "A resumed sweep takes measurements that are not as they were written",
			edits: edit("lab/batch/batch.go", "checksum.CheckObject(b) != nil || ", "checksum.CheckObject(nil) == nil || "),
			test:  "lab/batch TestRecall",
		}, {
			wrong: "Nobody looks at what the end of the events says of the lines before it",
			edits: edit("lab/report/events.go", "\t\t\t_ = sum.End(lines, crc) // kept by sum", "\t\t\t_, _ = lines, crc"),
			test:  "lab/report TestDamages",
		}, {
			wrong: "Events whose end is cut off are those of a run that was killed",
			edits: edit("lab/report/events.go", "\tif f.over && len(unended) > 0 {", "\tif false {"),
			test:  "lab/report TestCutShort",
		}, {
			wrong: "The state of a lab that is up is read whatever has become of it",
			edits: edit("orchestrator/store.go", "err = checksum.ReadObject(b, &st)", "_, err = checksum.CheckObject(b), json.Unmarshal(b, &st)"),
			test:  "orchestrator TestDamagedState",
		}, {
			wrong: "The counters have no checksum",
			edits: edit("lab/runner/folder.go", "\treturn checksum.Object(b.Bytes()), nil\n}\n\n// onCores", "\treturn b.Bytes(), nil\n}\n\n// onCores"),
			test:  "lab/report TestDamages",
		}},
	},
	{
		what: "Two lists of one line are taken to have one length",
		seen: "mcastlab: an index out of range in a trace without hosts",
		bugs: []bug{{
			wrong: "A message's hosts and times of receipt are not compared",
			edits: edit("traces/explain/load.go", "\t\t\tif len(l.Hosts) != len(l.Received) {", "\t\t\tif false {"),
			test:  "traces/explain TestMessageLists",
		}},
	},
	{
		what: "A page takes cubic time in the messages under way",
		seen: "mcastlab: 26 s for a trace of 17,000 lines",
		bugs: []bug{{
			wrong: "Each message looks at every packet that it waited behind",
			edits: edit("traces/explain/walk.go", "j := w.others(p, cur, k, r.at); j < k", "j := k; j < k"),
			test:  "traces/explain TestUnderWay",
		}, {
			wrong: "Each packet looks for its request among all that are under way",
			edits: edit("traces/explain/requests.go", "\tif k < 0 || uint32", "\tif true || uint32"),
			test:  "traces/explain TestUnderWay",
		}, {
			wrong: "A table that would take minutes is made all the same",
			edits: edit("traces/explain/text.go", "\t\tif t.steps > until {", "\t\tif t.steps > until && false {"),
			test:  "traces/explain TestTooMany",
		}},
	},
	{
		what: "What happened is put down to the wrong row of results",
		seen: "mcastlab: a storm was not in force for a flow that ran through all of it",
		bugs: []bug{{
			wrong: "Rows that run side by side are taken to follow each other",
			edits: edit("lab/runner/rowfaults.go", "\t\tcase row.Began > 0: // rows overlap\n\t\t\tfrom = row.Began\n", ""),
			test:  "lab/runner TestRowsBeside",
		}, {
			wrong: "The first row of a workload that reports no iterations gets the time of the whole workload",
			edits: edit("apps/manycast/reduce.go", "\t\tEnded: ended,\n", ""),
			test:  "lab/runner TestRowsAfterEachOther",
		}},
	},
	{
		what: "A figure in plain words is a median and does not say so",
		seen: "mcastlab: 168.86 us beside an average of 443.89",
		bugs: []bug{{
			wrong: "The sentence under a table gives a time",
			edits: edit("lab/runner/sentence.go", "\tif r.Iterations < 2 {", "\tif true {"),
			test:  "lab/runner TestSentences",
		}},
	},
	{
		what: "A full disk leaves half a file",
		seen: "mcastlab: counters.json.tmp, meta.json.tmp, report.html.tmp, summary.json.tmp",
		bugs: []bug{{
			wrong: "What could not take its place stays",
			edits: edit("lab/runner/runfolder.go", "\t\t_ = f.root.Remove(next) // it is not whole; the error is returned\n", ""),
			test:  "lab/runner TestNotWritten",
		}},
	},
	{
		what: "A run that could not begin counts as one that has not ended",
		seen: "mcastlab: meta.json said running after a full disk",
		bugs: []bug{{
			wrong: "What was written first stays as it was",
			edits: edit("lab/runner/record.go", "\t\tr.Meta.Status, r.Meta.Error, r.Meta.Locked = StatusError, err.Error(), false\n", ""),
			test:  "lab/runner TestNotBegun",
		}},
	},
	{
		what: "What takes the place of a folder gets what is written to it, with the rights of root",
		seen: "mcastlab: counters.json and others were written through a link in place of a run's folder",
		bugs: []bug{{
			wrong: "The folder is looked up by its name for each file",
			edits: edit("lab/runner/runfolder.go", "\terr := f.root.WriteFile(next, b, 0o644)\n\tif err == nil {\n\t\terr = f.root.Rename(next, name)", "\terr := os.WriteFile(filepath.Join(f.path, next), b, 0o644)\n\tif err == nil {\n\t\terr = os.Rename(filepath.Join(f.path, next), filepath.Join(f.path, name))"),
			test:  "lab/runner TestFolderReplaced",
		}},
	},
	{
		what: "A message quotes a megabyte, or a setting is taken in one notation and refused in the other",
		seen: "mcastlab",
		bugs: []bug{{
			wrong: "A value is quoted whole",
			edits: edit("lab/mistakes.go", "\tif len(s) <= most {", "\tif true {"),
			test:  "lab TestMessagesShort",
		}, {
			wrong: "A rate may have an exponent, a sign and underscores, which a duration may not",
			edits: edit("apps/setting/values.go", " || strings.Trim(strings.TrimPrefix(num, \"-\"), \"0123456789.\") != \"\"", ""),
			test:  "lab TestNumbersAlike",
		}, {
			wrong: "The last word of a run is that of TLS",
			edits: edit("drivers/lockstep/coordinator_linux.go", "err = errors.Join(err, c.lost(m, fmt.Errorf(\"its daemon has gone before the run ended: %w\", merr)))", "err = errors.Join(err, merr)"),
			test:  "drivers/lockstep TestDaemonGone",
		}, {
			wrong: "The byte order mark of an editor is part of the first key",
			edits: edit("lab/parse.go", "bytes.TrimPrefix(text, []byte(\"\\ufeff\"))", "bytes.TrimPrefix(text, nil)"),
			test:  "lab TestByteOrderMark",
		}},
	},
	{
		what: "A configuration that loses packets, or repeats what was not lost, is valid without a word",
		seen: "alibaba-edu/High-Precision-Congestion-Control#15: 1,790 time-outs without a loss; mcastlab: headroom of 1B",
		bugs: []bug{{
			wrong: "Headroom is not compared with what the links need",
			edits: edit("lab/warnings.go", "\tif int(*own) >= most {", "\tif true {"),
			test:  "lab TestWarnsOfTooShort",
		}, {
			wrong: "A buffer is not compared with the retransmission timeout",
			edits: edit("lab/warnings.go", "\tif drain > timeout {", "\tif false {"),
			test:  "lab TestWarnsOfTooShort",
		}, {
			wrong: "A run whose congestion control never acted says nothing",
			edits: edit("lab/runner/report.go", "cc != \"none\" && len(r.Counters) > 0 &&", "false &&"),
			test:  "lab/runner TestNeverActed",
		}},
	},
}
