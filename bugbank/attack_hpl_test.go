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
	},
}
